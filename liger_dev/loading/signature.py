"""A callable's signature in, its tensor and scalar arguments out."""

import ast
import inspect
import re

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from liger_dev.errors import BadInput
from liger_dev.records import Scalar
from liger_dev.records import Tensor

ONES = frozenset("weight gamma scale w g".split())
ZEROS = frozenset("bias beta b".split())

# Names of tensors that can't be anything but indices; a plain annotation does not tell.
_INDICES = re.compile(r"(^|_)(ids|idx|indices)$")
_WORD = re.compile(r"\w+")
_TENSORS = {"Tensor": "float", "FloatTensor": "float", "LongTensor": "int", "IntTensor": "int", "BoolTensor": "bool"}
_TYPES = {"float": float, "int": int, "bool": bool, "str": str}


@dataclass(frozen=True)
class Arguments:
    """What a callable takes: tensors (shapes still empty), scalars, and other arguments that keep one value."""

    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    constants: dict[str, Any]
    assumptions: tuple[str, ...] = ()


def read_signature(fn: Callable[..., Any], init: dict[str, Any], shown: str, shaped: Collection[str] = ()) -> Arguments:
    """Sorts the arguments of `fn`; `init` gives values to arguments that are no tensors, those in `shaped` are tensors.

    Raises:
        BadInput: there is no tensor argument, or an argument's role can't be told.
    """
    parameters = parameters_of(fn)
    if parameters is None:
        return _without_signature(init, shown)
    unknown = [name for name in init if name not in {p.name for p in parameters}]
    if unknown:
        takes = ", ".join(p.name for p in parameters)
        raise BadInput(f"there is no argument '{unknown[0]}'", f"--init {unknown[0]}", f"{shown} takes {takes}")
    tensors: list[Tensor] = []
    scalars: list[Scalar] = []
    constants: dict[str, Any] = {}
    for parameter in parameters:
        role = _role(parameter, init, shown, shaped)
        if isinstance(role, Tensor):
            tensors.append(role)
        elif isinstance(role, Scalar):
            scalars.append(role)
        elif parameter.name in init:
            constants[parameter.name] = init[parameter.name]
        elif parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            constants[parameter.name] = parameter.default
    if not tensors:
        raise BadInput("the operation takes no tensor", shown, "annotate its tensor arguments with torch.Tensor")
    tensors.sort(key=lambda tensor: tensor.optional)
    return Arguments(tuple(tensors), tuple(scalars), constants, _said(constants, init))


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """What a function takes; functions of torch that are written in C++ tell it in their docstring alone, or not at all."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except ValueError:
        pass
    name = getattr(fn, "__name__", "")
    found = re.search(rf"^{re.escape(name)}\((.*)\) -> Tensor$", fn.__doc__ or "", re.MULTILINE)
    if found is None:
        return None
    try:
        given = ast.parse(f"def f({found[1]}): pass").body[0]
    except SyntaxError:
        return None
    assert isinstance(given, ast.FunctionDef), "written so"
    return list(_documented(given.args))


def _documented(given: ast.arguments) -> Iterator[inspect.Parameter]:
    """Parameters with the defaults that are literals; those without one are tensors."""
    defaults = dict(zip(reversed([a.arg for a in given.args]), reversed(given.defaults)))
    for argument in given.args:
        default = defaults.get(argument.arg)
        try:
            value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
        except ValueError:
            continue
        yield inspect.Parameter(argument.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value)


def _role(
    parameter: inspect.Parameter, init: dict[str, Any], shown: str, shaped: Collection[str]
) -> Tensor | Scalar | None:
    name, default, annotation = parameter.name, parameter.default, _annotation(parameter)
    words = set(_WORD.findall(annotation))
    required = default is parameter.empty
    if parameter.kind is parameter.VAR_KEYWORD:
        return None
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise BadInput(f"the arguments *{name} have no names", shown, "name each tensor in the signature")
    if name in init:
        kind = type(init[name]).__name__
        return Scalar(name, kind, init[name]) if kind in _TYPES else None
    dtype = next((dtype for kind, dtype in _TENSORS.items() if kind in words), "")
    if dtype or (not annotation and (required or _optional_tensor(name, default, shaped))):
        if required or default is None:
            counts = dtype in ("", "float") and _INDICES.search(name)
            optional = default is None and (bool(dtype) or name not in shaped or _optional_tensor(name, default, ()))
            return Tensor(name, (), "int" if counts else dtype or "float", optional=optional)
    listed = literals(annotation)
    if listed and (required or default in listed):
        usual = None if required else default
        return Scalar(name, type(listed[0]).__name__, usual, tuple(dict.fromkeys([usual or listed[0], *listed])))
    kind = next((kind for kind in _TYPES if annotation == kind), type(default).__name__)
    if kind in _TYPES and (required or isinstance(default, _TYPES[kind] | int)):
        return Scalar(name, kind, None if required else default)
    if required:
        raise BadInput(
            f"'{name}: {annotation or 'unannotated'}' is neither a tensor nor a number",
            shown,
            f"give it: --init {name}=VALUE",
        )
    return None


def literals(annotation: str) -> tuple[Any, ...]:
    """The values of `Literal["mean", "sum"]`; none for other annotations, and for values of several types."""
    found = re.fullmatch(r"(?:typing\.)?Literal\[(.*)\]", annotation)
    if found is None:
        return ()
    values: tuple[Any, ...] = ast.literal_eval(f"({found[1]},)")
    return values if len({type(value) for value in values}) == 1 and type(values[0]).__name__ in _TYPES else ()


def _optional_tensor(name: str, default: Any, shaped: Collection[str]) -> bool:
    return default is None and (name in ONES | ZEROS | {"residual"} or name in shaped)


def _annotation(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    if isinstance(parameter.annotation, type):
        return parameter.annotation.__name__
    return str(parameter.annotation)


def _said(constants: dict[str, Any], init: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"argument {name} keeps its default {value!r}; pass --init {name}=VALUE for another"
        for name, value in constants.items()
        if name not in init
    )


def _without_signature(init: dict[str, Any], shown: str) -> Arguments:
    """Functions of torch that are written in C++ don't tell their arguments."""
    said = f"{shown} does not tell its arguments: assumed that it takes one tensor, x"
    return Arguments((Tensor("x", ()),), (), dict(init), (said,))


def public_name(name: str) -> str:
    """A name for a tensor argument that hides no builtin of Python: torch calls its own `input`."""
    return {"input": "x", "self": "x"}.get(name, name)
