"""A Source in, a Reference out; runs the user's code, so it belongs in a child process."""

import functools
import importlib
import inspect

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from liger_dev.errors import BadInput
from liger_dev.loading.benchmark_file import benchmark_operation
from liger_dev.loading.benchmark_file import is_benchmark
from liger_dev.loading.choices import with_choices
from liger_dev.loading.expression import expression_text
from liger_dev.loading.frozen import detached
from liger_dev.loading.frozen import detached_text
from liger_dev.loading.frozen import frozen_tensors
from liger_dev.loading.modules import first_that_runs
from liger_dev.loading.modules import fixed_sizes
from liger_dev.loading.modules import module_operation
from liger_dev.loading.modules import without_optional
from liger_dev.loading.operation import Bound
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import import_file
from liger_dev.loading.operation import users_code
from liger_dev.loading.printing import compare
from liger_dev.loading.printing import print_reference
from liger_dev.loading.probe import check
from liger_dev.loading.probe import give_shapes
from liger_dev.loading.probe import with_ranges
from liger_dev.loading.reference_file import Constants
from liger_dev.loading.reference_file import depends_on
from liger_dev.loading.reference_file import edited_file
from liger_dev.loading.reference_file import read_constants
from liger_dev.loading.signature import ONES
from liger_dev.loading.signature import ZEROS
from liger_dev.loading.signature import Arguments
from liger_dev.loading.signature import parameters_of
from liger_dev.loading.signature import public_name
from liger_dev.loading.signature import read_signature
from liger_dev.loading.spelled import spelled_out
from liger_dev.loading.spelled import without_compilation
from liger_dev.loading.usual_shapes import Shape
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.records import Tensor


def load(name: str, source: Source, folder: Path) -> Reference:
    """The standalone reference of the operation `name`.

    Args:
        folder: an empty folder for the files that tracing needs.

    Raises:
        BadInput: the source can't be loaded, or is no differentiable function of tensors.
        Unsupported: an operation in it can't be written as torch code.
    """
    match source.kind:
        case "expression":
            text, said = expression_text(name, source.text, source.init)
            return _from_file(name, replace(source, kind="function", text=text, entry=name, init={}), folder, said)
        case "function":
            return _from_file(name, source, folder, ())
        case "import":
            return _from_import(name, source, folder)
    raise AssertionError(f"unknown kind of source {source.kind}")


def is_printed(source: Source, reference: Reference) -> bool:
    """Whether the reference's text is the tool's own, not the user's."""
    return source.kind != "function" or "printed from its traced graph." in reference.text


def _from_file(name: str, source: Source, folder: Path, said: tuple[str, ...]) -> Reference:
    place = Place(source.origin, folder / f"source_{name}.py")
    source = replace(source, text=without_compilation(spelled_out(source.text)))
    constants = read_constants(source.text, source.origin)
    with users_code("the file fails", place):
        module = import_file(source.text, place.path)
    entry = getattr(module, source.entry)
    shapes = {**(constants.shapes or {}), **source.shapes}
    if isinstance(entry, type):
        return _from_class(name, entry, replace(source, shapes=shapes), place, folder, module)
    _refuse_part(source)
    arguments = read_signature(entry, source.init, place.shown, shapes)
    operation = _with_dtypes(_function_operation(entry, arguments, place, {}), constants, shapes)
    operation = give_shapes(operation, shapes)
    operation = with_choices(operation, source.text, source.entry, constants.static)
    operation = _with_parameters(
        operation, constants.parameters if constants.shapes is None else constants.parameters or {}
    )
    operation = replace(operation, summary=_summary(module, entry), assumptions=(*said, *operation.assumptions))
    frozen = frozen_tensors(operation)
    operation = detached(operation, frozen)
    check(operation)
    foreign = depends_on(source.text)
    if foreign:
        printed = print_reference(name, _described(operation, name, source.entry), source.origin, folder)
        note = f"{source.origin} imports {', '.join(foreign)}: the reference was printed from its traced graph"
        return replace(printed, assumptions=(*printed.assumptions, note))
    scalars = tuple(sorted(operation.scalars, key=lambda scalar: scalar.default is not None))
    own = detached_text(source.text, source.entry, operation, frozen) if frozen else source.text
    text = edited_file(own, source.entry, name, operation.tensors, scalars, source.origin)
    if text != source.text:
        with users_code("the file fails under its new name", place):
            edited = getattr(import_file(text, folder / f"edited_{name}.py"), name)
        compare(edited, operation, {})
    return Reference(name, text, operation.tensors, scalars, source.origin, operation.summary, operation.assumptions)


def _from_class(
    name: str, entry: type, source: Source, place: Place, folder: Path, module: ModuleType | None = None
) -> Reference:
    """`module` is the file that the class stands in, where it is a file of the user's."""
    if not issubclass(entry, torch.nn.Module):
        raise BadInput(
            f"{entry.__name__} is a class, but no torch.nn.Module", place.shown, "name a function or a module"
        )
    if module is not None and is_benchmark(module):
        operation = benchmark_operation(module, entry, source.init, source.shapes, source.part, place)
    else:
        operation = module_operation(entry, source.init, source.shapes, place, source.part)
    operation = with_ranges(detached(operation, frozen_tensors(operation)))
    check(operation)
    summary = _first_line(entry.__doc__ if "__doc__" in vars(entry) else None)
    return print_reference(
        name, _described(replace(operation, summary=summary), name, source.entry), source.origin, folder
    )


def _from_import(name: str, source: Source, folder: Path) -> Reference:
    place = Place(source.origin)
    found = _imported(source.entry, place)
    if isinstance(found, type):
        return _from_class(name, found, source, place, folder)
    if not callable(found) or isinstance(found, torch.nn.Module):
        raise BadInput(f"{source.origin} is no function or class", place.shown, "name a function or a module's class")
    _refuse_part(source)
    arguments = read_signature(found, source.init, place.shown)
    given = [*arguments.constants.values(), *(scalar.default for scalar in arguments.scalars)]
    sizes = [*fixed_sizes(given), None]
    shapes = {public_name(tensor): shape for tensor, shape in source.shapes.items()}
    arguments = without_optional(arguments, shapes)
    names = {public_name(tensor.name): tensor.name for tensor in arguments.tensors}
    width = _width(shapes)
    shapes = _channels_second(arguments, shapes)
    operation = first_that_runs(_function_operation(found, arguments, place, names), width, sizes, {}, shapes)
    operation = detached(operation, frozen_tensors(operation))
    check(operation)
    operation = replace(_with_parameters(operation, None), summary=_first_line(inspect.getdoc(found)))
    return print_reference(name, _given(_described(operation, name, source.entry)), source.origin, folder)


def _channels_second(arguments: Arguments, shapes: dict[str, Shape]) -> dict[str, Shape]:
    """The shapes of what takes a number of groups, where none are given."""
    if shapes or "num_groups" not in {scalar.name for scalar in arguments.scalars}:
        return shapes
    first, *others = (public_name(tensor.name) for tensor in arguments.tensors)
    return {first: ("B", "C", "H", "W"), **{name: ("C",) for name in others if name in ONES | ZEROS}}


def _refuse_part(source: Source) -> None:
    if source.part:
        raise BadInput("a function has no parts to cut out", "--part", "leave --part out, or name a module")


def _imported(entry: str, place: Place) -> Any:
    """What `module:qualname` names; as many trailing names as needed are attributes."""
    module_name, _, qualname = entry.partition(":")
    attributes = qualname.split(".")
    module: ModuleType | None = None
    while module is None:
        with users_code("the import fails", place, "check the name; a file is given as path.py:Name"):
            try:
                module = importlib.import_module(module_name)
            except ModuleNotFoundError as error:
                own = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
                if not own or "." not in module_name:
                    raise
                module_name, _, last = module_name.rpartition(".")
                attributes.insert(0, last)
    found: Any = module
    for attribute in attributes:
        if not hasattr(found, attribute):
            raise BadInput(
                f"'{module_name}' has no '{'.'.join(attributes)}'", place.shown, "check the spelling of the name"
            )
        found = getattr(found, attribute)
    return found


def _function_operation(fn: Callable[..., Any], arguments: Arguments, place: Place, names: dict[str, str]) -> Operation:
    """`names` maps a tensor's public name to the function's own, where they differ."""
    own = names or {tensor.name: tensor.name for tensor in arguments.tensors}
    defaults = {scalar.name: scalar.default for scalar in arguments.scalars if scalar.default is not None}
    positional = _positional(fn)

    def bind(scalars: dict[str, Any]) -> Bound:
        return functools.partial(_call, fn, own, positional, {**arguments.constants, **defaults, **scalars})

    tensors = tuple(replace(tensor, name=name) for tensor, name in zip(arguments.tensors, own, strict=True))
    return Operation(bind, tensors, arguments.scalars, place, assumptions=arguments.assumptions)


def _call(
    fn: Callable[..., Any],
    own: dict[str, str],
    positional: tuple[str, ...] | None,
    others: dict[str, Any],
    tensors: dict[str, torch.Tensor],
) -> Any:
    values = {own[name]: tensor for name, tensor in tensors.items()} | others
    if positional is None:
        return fn(*tensors.values(), **others)
    return fn(*[values.pop(name) for name in positional if name in values], **values)


def _positional(fn: Callable[..., Any]) -> tuple[str, ...] | None:
    """The arguments that can't go by keyword; None if the function does not tell."""
    parameters = parameters_of(fn)
    if parameters is None:
        return None
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)


def _with_dtypes(operation: Operation, constants: Constants, shapes: dict[str, Shape]) -> Operation:
    """Sets what a tensor holds, as the file's `DTYPES` and `RANGES` say."""
    shown = operation.place.shown
    names = {tensor.name for tensor in operation.tensors}
    axes = {axis for shape in shapes.values() for axis in shape}
    for constant, rows, allowed in (
        ("DTYPES", constants.dtypes, {"float", "int", "bool"}),
        ("RANGES", constants.ranges, axes),
    ):
        unknown = sorted(set(rows) - names)
        if unknown:
            raise BadInput(f"{constant} names '{unknown[0]}', which is no tensor", shown, "mend the name")
        wrong = [value for value in rows.values() if value not in allowed]
        if wrong:
            choice = ", ".join(sorted(map(str, allowed)))
            raise BadInput(f"{constant} has the value '{wrong[0]}'", shown, f"use one of {choice}")
    tensors = tuple(
        replace(t, dtype=constants.dtypes.get(t.name, t.dtype), range=constants.ranges.get(t.name, ""))
        for t in operation.tensors
    )
    return replace(operation, tensors=tensors)


def _with_parameters(operation: Operation, given: dict[str, str] | None) -> Operation:
    """Marks the tensors that a module would own: as given, else vectors with a parameter's usual name."""
    if given is not None:
        unknown = set(given) - {tensor.name for tensor in operation.tensors}
        if unknown:
            raise BadInput(
                f"PARAMETERS names '{min(unknown)}', which is no tensor", operation.place.shown, "mend the name"
            )
        return replace(operation, tensors=tuple(replace(t, init=given.get(t.name, "")) for t in operation.tensors))
    tensors = tuple(replace(tensor, init=_usual_init(tensor)) for tensor in operation.tensors)
    said = tuple(f"{t.name} is taken for a parameter that starts as {t.init}" for t in tensors if t.init)
    return replace(operation, tensors=tensors, assumptions=(*operation.assumptions, *said))


def _usual_init(tensor: Tensor) -> str:
    if len(tensor.shape) != 1:
        return ""
    return "ones" if tensor.name.lower() in ONES else "zeros" if tensor.name.lower() in ZEROS else ""


def _given(operation: Operation) -> Operation:
    """Optional tensors are traced as given, so the printed function needs them."""
    optional = [tensor.name for tensor in operation.tensors if tensor.optional]
    if not optional:
        return operation
    note = f"{', '.join(optional)} may be left out of the original; the reference takes them always"
    tensors = tuple(replace(tensor, optional=False) for tensor in operation.tensors)
    return replace(operation, tensors=tensors, assumptions=(*operation.assumptions, note))


def _described(operation: Operation, name: str, entry: str) -> Operation:
    return (
        operation
        if operation.summary
        else replace(operation, summary=f"{name}, as {entry.replace(':', '.')} computes it.")
    )


def _width(shapes: dict[str, Shape]) -> str:
    last = next((shape[-1] for shape in shapes.values() if shape), "H")
    return last if isinstance(last, str) else "H"


def _summary(module: ModuleType, entry: Callable[..., Any]) -> str:
    return _first_line(module.__doc__) or _first_line(entry.__doc__)


def _first_line(doc: str | None) -> str:
    """The first line of a docstring, if it is a sentence: functions of torch begin with a signature."""
    line = ((doc or "").strip().splitlines() or [""])[0].strip()
    if "->" in line or "\\" in line or '"' in line or not line.isprintable() or len(line) > 115:
        return ""
    return line
