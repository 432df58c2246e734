"""A reference function in, its torch.export graph out: sizes symbolic, scalars replaced by recognisable tags."""

import ast
import contextlib
import importlib.util
import io
import logging
import math
import sys
import warnings

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from liger_dev.axes import extent
from liger_dev.axes import multiples
from liger_dev.axes import named
from liger_dev.compiler.decompose import decompose
from liger_dev.compiler.one_hot import restore
from liger_dev.compiler.one_hot import sizes_kept
from liger_dev.compiler.overwritten import forget_overwritten
from liger_dev.errors import Unsupported
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor

# Sizes that a trace uses for axes: at least 2 (1 would be specialised), even, and pairwise different, so that a
# wrong match of axes shows: none is the sum or difference of others, for all are odd multiples of 2. Those that the
# reference names as numbers, or that differ by such a number, are left out, since they would match too.
_SIZES = (6, 10, 14, 22, 26, 34, 38, 46, 58, 62, 74, 82, 86, 94, 106, 118, 122)
_AXES = 12

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@dataclass(frozen=True)
class Traced:
    """What a trace knows beside the graph itself.

    `tags` maps a scalar's name to the number it was traced with: a constant of the graph that derives from the
    scalar is recognised by these digits, which occur nowhere else. `source` is the reference's file. `constants` are the
    tensors that the reference makes of numbers, by the placeholder they are passed in. `fixed` are the named axes whose
    size became a number.
    """

    graph: torch.fx.Graph
    sizes: dict[str, int]
    tags: dict[str, float]
    source: Path
    absent: frozenset[str]
    constants: dict[str, torch.Tensor]
    fixed: tuple[str, ...] = ()


def load_function(reference: Reference, folder: Path) -> Callable[..., Any]:
    """Imports the reference from a file of its own in `folder` (source lines are read from it later)."""
    path = folder / f"{reference.name}.py"
    path.write_text(reference.text)
    spec = importlib.util.spec_from_file_location(f"_reference_{reference.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, reference.name)  # type: ignore[no-any-return]


def axis_sizes(reference: Reference) -> dict[str, int]:
    """A size for each named axis of the reference's tensors."""
    axes = named(reference.tensors)
    if len(axes) > _AXES:
        raise Unsupported(f"the reference has {len(axes)} axes, more than {_AXES}", reference.name)
    numbers = _numbers(reference)
    free: list[int] = []
    for size in _SIZES:
        if size not in numbers and not any(abs(size - other) in numbers for other in free):
            free.append(size)
    free += [size for size in _SIZES if size not in free]
    parts = multiples(reference.tensors)
    return {axis: math.lcm(size, parts.get(axis, 1)) for axis, size in zip(axes, free)}


def _numbers(reference: Reference) -> set[int]:
    """The integers above 1 in the reference's text."""
    found = {node.value for node in ast.walk(ast.parse(reference.text)) if isinstance(node, ast.Constant)}
    return {number for number in found if type(number) is int and number > 1}


def tag(scalar: Scalar, position: int, integers: bool) -> Any:
    """A stand-in for an argument: a float near its default, so that the reference's branches stay the same; an integer far
    from it, if `integers` are not needed as they are (a dimension, a number of groups)."""
    if scalar.choices:
        return scalar.default
    if scalar.type == "int" and integers and not isinstance(scalar.default, bool):
        return (scalar.default or 0) + 100003 * (position + 1)
    if scalar.type != "float":
        return scalar.default
    # No tag, nor its square, is a number of few digits, or a simple function of another tag.
    digits = 1.0 + 0.002 * math.log(_PRIMES[position % len(_PRIMES)] + position // len(_PRIMES))
    return (scalar.default or 0.7182818) * digits


def trace(
    fn: Callable[..., Any],
    reference: Reference,
    source: Path,
    absent: frozenset[str] = frozenset(),
    rows: Collection[str] = (),
    parts: Mapping[str, int] = MappingProxyType({}),
    numbers: bool = False,
) -> Traced:
    """Exports `fn` in bfloat16, so that the reference's own casts show; `absent` optional inputs are None. Operations
    whose names are not in `rows` are decomposed where torch can. Sizes are multiples of what `parts` says. Integers are `numbers`, those of their defaults,
    where that is asked for or they can't be traced as others.

    Raises:
        Unsupported: torch.export can't trace it (data-dependent control flow, say); the reason is torch's first line.
    """
    first: Unsupported | None = None
    sizes = sizes_taken(fn, reference, absent, parts)
    for integers in (True, False) if any(s.type == "int" for s in reference.scalars) and not numbers else (False,):
        try:
            return _trace_at(fn, reference, source, absent, sizes or axis_sizes(reference), rows, integers)
        except Unsupported as error:
            first = first or error
    assert first is not None
    raise first


# For references that divide an axis into groups: how many times as large one axis may be.
_MULTIPLES = (3, 5, 7, 2, 4, 8, 16, 32, 64, 6, 12, 24, 10, 20, 14, 18)


def _candidate_sizes(reference: Reference) -> Iterator[dict[str, int]]:
    """Sizes to trace at: the usual ones, then each axis in turn some times as large."""
    sizes, numbers = axis_sizes(reference), _numbers(reference)
    yield sizes
    for multiple in _MULTIPLES:
        for axis in reversed(sizes):
            if multiple * sizes[axis] not in numbers:
                yield {**sizes, axis: multiple * sizes[axis]}


def sizes_taken(
    fn: Callable[..., Any],
    reference: Reference,
    absent: frozenset[str],
    parts: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int] | None:
    """Small sizes of the reference's axes that it runs with; None if there are none among those that are tried."""
    found = (sizes for sizes in _candidate_sizes(reference) if all(sizes[axis] % n == 0 for axis, n in parts.items()))
    return next((sizes for sizes in found if runs(fn, reference, absent, sizes)), None)


def runs(fn: Callable[..., Any], reference: Reference, absent: frozenset[str], sizes: dict[str, int]) -> bool:
    """Whether the reference takes tensors of such sizes; any reason against it shows again in the trace."""
    scalars = {scalar.name: tag(scalar, i, False) for i, scalar in enumerate(reference.scalars)}
    given = {t.name: sample(t.shape, t.dtype, sizes) for t in reference.tensors if t.name not in absent}
    try:
        with torch.no_grad(), quiet():
            fn(**given, **dict.fromkeys(absent), **scalars)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        return False
    return True


def _trace_at(
    fn: Callable[..., Any],
    reference: Reference,
    source: Path,
    absent: frozenset[str],
    sizes: dict[str, int],
    rows: Collection[str],
    integers: bool,
) -> Traced:
    tags = {scalar.name: tag(scalar, i, integers) for i, scalar in enumerate(reference.scalars)}
    given = [tensor for tensor in reference.tensors if tensor.name not in absent]
    samples = [sample(tensor.shape, tensor.dtype, sizes) for tensor in given]
    names = [tensor.name for tensor in given]
    dynamic = tuple({i: torch.export.Dim.AUTO for i, n in enumerate(t.shape) if isinstance(n, str)} for t in given)

    class Wrapper(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            return fn(**dict(zip(names, tensors)), **dict.fromkeys(absent), **tags)

    with quiet(), sizes_kept():
        program = decompose(_export(Wrapper(), tuple(samples), dynamic, reference), rows)
    restore(program.graph)
    forget_overwritten(program.graph)
    constants = _constants(program)
    fixed = _fixed([n for n in program.graph.nodes if n.op == "placeholder" and n.name not in constants], given)
    return Traced(program.graph, sizes, _recognisable(reference, tags), source, absent, constants, fixed)


def _fixed(placeholders: list[torch.fx.Node], tensors: list[Tensor]) -> tuple[str, ...]:
    """The named axes whose size the trace took for a number."""
    sizes = [pair for node, tensor in zip(placeholders, tensors) for pair in zip(node.meta["val"].shape, tensor.shape)]
    return tuple(dict.fromkeys(axis for size, axis in sizes if isinstance(axis, str) and str(size).isdigit()))


def _constants(program: Any) -> dict[str, torch.Tensor]:
    kind = torch.export.graph_signature.InputKind.CONSTANT_TENSOR
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == kind]
    return {spec.arg.name: program.constants[spec.target] for spec in specs}


def _recognisable(reference: Reference, tags: dict[str, Any]) -> dict[str, float]:
    """The tags that are not simply the argument's default."""
    usual = {scalar.name: scalar.default for scalar in reference.scalars}
    return {k: v for k, v in tags.items() if isinstance(v, float) or isinstance(v, int) and v != usual[k]}


def _export(module: torch.nn.Module, samples: tuple[torch.Tensor, ...], dynamic: Any, reference: Reference) -> Any:
    """Strict export keeps the names of helpers; what it can't trace is tried without it."""
    try:
        return torch.export.export(module, samples, dynamic_shapes=(dynamic,), strict=True)
    except (RuntimeError, IndexError, AttributeError, torch._dynamo.exc.TorchDynamoException):
        pass
    try:
        return torch.export.export(module, samples, dynamic_shapes=(dynamic,), strict=False)
    except (RuntimeError, ArithmeticError, AttributeError, TypeError, ValueError, IndexError) as error:
        raise Unsupported(
            f"torch.export can't trace the reference: {str(error).strip().splitlines()[0]}",
            reference.name,
            "write it without data-dependent control flow, in-place writes and .item()",
        ) from error


def sample(
    shape: tuple[str | int, ...], dtype: str, sizes: Mapping[str, int], floats: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    dims = [extent(axis, sizes) for axis in shape]
    if dtype == "bool":
        return torch.ones(dims, dtype=torch.bool)
    if dtype == "int":
        return torch.zeros(dims, dtype=torch.int64)
    return torch.randn(dims).to(floats)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch.export's warnings, logs and prints away from the user."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(level)
