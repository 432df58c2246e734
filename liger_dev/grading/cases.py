"""An operation's signature and a seed in, the ways to call it out: shapes, dtypes, layouts, values, gradients.

Nothing here is an operation's own: the classes follow from the names of axes alone. The sizes are drawn, so that no
case can be known before; none is ever shown to a repair.
"""

import random

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from liger_dev.axes import extent
from liger_dev.axes import named
from liger_dev.axes import whole_of
from liger_dev.choices import setting_text
from liger_dev.choices import settings
from liger_dev.records import Scalar
from liger_dev.records import Tensor

FLOAT_DTYPES = ("float32", "bfloat16", "float16")
LAYOUTS = ("transposed", "sliced", "expanded", "offset storage")
UPSTREAMS = ("zero", "constant", "transposed", "sliced")
VALUES = ("zeros", "equal", "large", "tiny", "far from zero", "saturated", "one large row")
NON_FINITE = ("nan", "inf", "-inf")

_PRIMES = (61, 67, 73, 89, 97, 101, 113, 131, 151, 173)
_POWERS = (32, 64, 128, 256)


@dataclass(frozen=True)
class GradeCase:
    """One call. `sizes` gives every axis that is no batch axis; `batch` is None where tensors share no leading axes.

    `declared` is false outside of what the reference's SHAPES say (another rank, broadcasting): a clear refusal will
    do there. `reuses` puts the inputs into the storages of the case before. `steps` are checks beyond one forward and
    one backward: `repeat`, `accumulate`, `second derivative`.
    """

    id: str
    sizes: dict[str, int]
    batch: tuple[int, ...] | None
    dtype: str = "float32"
    parameters: str = ""
    layout: str = ""
    values: str = ""
    upstream: str = "random"
    scalars: tuple[tuple[str, Any], ...] = ()
    frozen: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    alias: tuple[str, str] | None = None
    broadcast: str = ""
    mode: str = "grad"
    steps: tuple[str, ...] = ()
    declared: bool = True
    reuses: bool = False

    @property
    def rows(self) -> int:
        rows = 1
        for size in self.batch or ():
            rows *= size
        return rows


@dataclass(frozen=True)
class Axes:
    """How tensors share axes: `batch` leads all that have it, `columns` is the last axis of the first tensor."""

    batch: tuple[str | int, ...]
    columns: str
    others: tuple[str, ...]


def axes_of(tensors: Sequence[Tensor]) -> Axes:
    """The axes of the first tensor that is no table: rows that an index counts are no batch. If it is an index itself,
    a row is what it takes from its table."""
    counted = {tensor.range for tensor in tensors}
    lead = next((t for t in tensors if t.shape[:1] == () or t.shape[0] not in counted), tensors[0])
    tables = [t.shape for t in tensors if lead.range and t.shape[:1] == (lead.range,)]
    first = (*lead.shape, *tables[0][1:]) if tables else lead.shape
    batch = next(
        (first[:n] for n in range(len(first) - 1, 0, -1) if all(_leads(first[:n], tensor.shape) for tensor in tensors)),
        (),
    )
    last = whole_of(first[-1]) if first else ""
    last = last if last in named(tensors) and last not in batch else ""
    return Axes(batch, str(last), tuple(axis for axis in named(tensors) if axis not in (*batch, last)))


def _leads(batch: tuple[str | int, ...], shape: tuple[str | int, ...]) -> bool:
    if not all(isinstance(axis, str) for axis in batch):
        return False
    rest = shape[len(batch) :] if shape[: len(batch)] == batch else shape
    return not set(batch) & {axis for axis in rest if isinstance(axis, str)}


def shape_of(tensor: Tensor, axes: Axes, case: GradeCase) -> tuple[int, ...]:
    """The sizes of a tensor in a case."""
    shape, lead = tensor.shape, ()
    if axes.batch and shape[: len(axes.batch)] == axes.batch:
        shape, lead = shape[len(axes.batch) :], case.batch or ()  # type: ignore[assignment]
    if tensor.name == case.broadcast:
        lead = (1,) * len(lead)  # type: ignore[assignment]
    return (*lead, *(extent(axis, case.sizes) for axis in shape))


Maker = Iterator[GradeCase]


def grade_cases(
    tensors: Sequence[Tensor],
    scalars: Sequence[Scalar],
    seed: int,
    divisors: Mapping[str, int] = MappingProxyType({}),
    mixed_dtypes: bool = True,
) -> tuple[GradeCase, ...]:
    """All cases of an operation, in the order in which they run. The same seed gives the same cases.

    Sizes are rounded up to multiples of `divisors`, so that an op of halves or groups is graded on as many cases.
    `mixed_dtypes`: parameters may have another dtype than inputs.
    """
    draw = random.Random(seed)
    axes = axes_of(tensors)
    base = _case(axes, draw, "base", (2, 3), draw.choice(_PRIMES), _defaults(scalars))
    makers: tuple[Callable[..., Maker], ...] = (_layouts, _values, _gradients, _arguments, _contracts)
    if axes.batch or axes.columns:
        makers = (_shapes, *makers)
    found = [case for maker in makers for case in maker(tensors, scalars, axes, draw, base)]
    found = [case for case in found if mixed_dtypes or not case.parameters]
    return tuple({case.id: _divisible(case, axes, divisors) for case in found}.values())


def _divisible(case: GradeCase, axes: Axes, divisors: Mapping[str, int]) -> GradeCase:
    sizes = {axis: _rounded_up(size, divisors.get(axis, 1)) for axis, size in case.sizes.items()}
    batch = case.batch
    if batch is not None and len(batch) == len(axes.batch):
        batch = tuple(_rounded_up(size, divisors.get(str(axis), 1)) for axis, size in zip(axes.batch, batch))
    return replace(case, sizes=sizes, batch=batch)


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _defaults(scalars: Sequence[Scalar]) -> tuple[tuple[str, Any], ...]:
    values = {"int": 1, "float": 0.5, "bool": True, "str": ""}
    return tuple((s.name, _first(s, values.get(s.type)) if s.default is None else s.default) for s in scalars)


def _first(scalar: Scalar, usual: Any) -> Any:
    return scalar.choices[0] if scalar.choices else usual


def _case(
    axes: Axes, draw: random.Random, id: str, batch: tuple[int, ...], columns: int, scalars: Any = ()
) -> GradeCase:
    """A case with drawn sizes for the axes beside rows and columns."""
    sizes = {name: draw.choice((2, 3, 4, 5)) for name in axes.others}
    if axes.columns:
        sizes[axes.columns] = columns
    return GradeCase(id, sizes, _at_rank(batch, len(axes.batch)) if axes.batch else None, scalars=scalars)


def _at_rank(batch: tuple[int, ...], rank: int) -> tuple[int, ...]:
    while len(batch) > rank:
        batch = (batch[0] * batch[1], *batch[2:]) if len(batch) > 1 else ()
    return (1,) * (rank - len(batch)) + batch


def _shapes(tensors: Any, scalars: Any, axes: Axes, draw: random.Random, base: GradeCase) -> Maker:
    table = (
        ("power-of-two columns", (3, 2), draw.choice(_POWERS), FLOAT_DTYPES, ("repeat",)),
        ("prime columns", (2, 3), draw.choice(_PRIMES), FLOAT_DTYPES, ("repeat", "accumulate", "second derivative")),
        ("one column", (2, 3), 1, FLOAT_DTYPES[:2], ()),
        ("one row", (1, 1), draw.choice(_PRIMES), FLOAT_DTYPES[:1], ()),
        ("many short rows", (draw.randint(3, 5), draw.randint(61, 79)), draw.randint(3, 7), FLOAT_DTYPES, ()),
        ("beyond one block", (2, draw.randint(2, 4)), draw.randint(1025, 1300), FLOAT_DTYPES, ()),
        ("long rows", (1, 2), draw.randint(4097, 5200), FLOAT_DTYPES[:2], ()),
        ("no rows", (0, 2), draw.choice(_PRIMES), FLOAT_DTYPES[:1], ()),
    )
    for name, rows, columns, dtypes, steps in table:
        made = _case(axes, draw, "", rows, columns, base.scalars)
        for dtype in dtypes:
            yield replace(made, id=f"{name}, {dtype}", dtype=dtype, steps=steps if dtype != "float16" else ())
    ranks: list[tuple[int, ...]] = [(), (draw.randint(5, 9),), (draw.randint(2, 3), 2), (2, 2, draw.randint(2, 4))]
    for batch in ranks if axes.batch else ():
        made = replace(_case(axes, draw, "", (2, 3), draw.choice(_PRIMES), base.scalars), batch=batch)
        yield replace(made, id=f"{len(batch)} batch axes", declared=len(batch) == len(axes.batch))


def _layouts(tensors: Any, scalars: Any, axes: Axes, draw: random.Random, base: GradeCase) -> Maker:
    for layout in LAYOUTS:
        yield replace(base, id=f"layout {layout}", layout=layout)
    yield replace(base, id="layout sliced, bfloat16", layout="sliced", dtype="bfloat16")
    for layout in UPSTREAMS:
        yield replace(base, id=f"upstream gradient {layout}", upstream=layout)


def _values(tensors: Any, scalars: Any, axes: Axes, draw: random.Random, base: GradeCase) -> Maker:
    for values in (*VALUES, *NON_FINITE):
        yield replace(base, id=f"values {values}", values=values)
    yield replace(base, id="values large, float16", values="large", dtype="float16")
    yield replace(base, id="values saturated, bfloat16", values="saturated", dtype="bfloat16")


def _gradients(tensors: Sequence[Tensor], scalars: Any, axes: Axes, draw: random.Random, base: GradeCase) -> Maker:
    floats = [tensor.name for tensor in tensors if tensor.dtype == "float"]
    patterns = {(name,) for name in floats} | {tuple(other for other in floats if other != name) for name in floats}
    for frozen in sorted(patterns - {(), tuple(floats)}):
        yield replace(base, id=f"without gradient of {', '.join(frozen)}", frozen=frozen)
    yield replace(base, id="no gradient needed", frozen=tuple(floats))


def _arguments(
    tensors: Sequence[Tensor], scalars: Sequence[Scalar], axes: Axes, draw: random.Random, base: GradeCase
) -> Maker:
    usual, *others = settings(scalars)
    for row in others:
        changed = {name: value for name, value in row.items() if value != usual[name]}
        given = tuple((name, row.get(name, value)) for name, value in base.scalars)
        for dtype in FLOAT_DTYPES[:2]:
            yield replace(base, id=f"{setting_text(changed)}, {dtype}", dtype=dtype, scalars=given)
    for scalar in (s for s in scalars if not s.choices):
        if isinstance(scalar.default, bool):
            yield replace(
                base, id=f"{scalar.name}={not scalar.default}", scalars=_with(base, scalar, not scalar.default)
            )
        elif isinstance(scalar.default, float):
            value = round(1.5 * scalar.default + draw.choice((0.25, 0.375, 0.625)), 4)
            yield replace(base, id=f"{scalar.name}={value}", scalars=_with(base, scalar, value))
    optional = [tensor.name for tensor in tensors if tensor.optional]
    for absent in dict.fromkeys([*((name,) for name in optional), tuple(optional)]) if optional else ():
        yield replace(base, id=f"without {', '.join(absent)}", absent=absent)
    if any(tensor.init for tensor in tensors):
        for dtype in FLOAT_DTYPES[1:]:
            yield replace(base, id=f"{dtype} with float32 parameters", dtype=dtype, parameters="float32")
    floats = [tensor for tensor in tensors if tensor.dtype == "float" and not tensor.optional]
    same = next(((a, b) for i, a in enumerate(floats) for b in floats[i + 1 :] if a.shape == b.shape and a.shape), None)
    if same is not None:
        yield replace(base, id=f"{same[0].name} also given as {same[1].name}", alias=(same[1].name, same[0].name))
    for tensor in tensors[1:] if axes.batch else ():
        if tensor.shape[: len(axes.batch)] == axes.batch:
            yield replace(base, id=f"{tensor.name} with batch axes of 1", broadcast=tensor.name, declared=False)


def _with(base: GradeCase, scalar: Scalar, value: Any) -> tuple[tuple[str, Any], ...]:
    return (*((name, old) for name, old in base.scalars if name != scalar.name), (scalar.name, value))


def _contracts(tensors: Any, scalars: Any, axes: Axes, draw: random.Random, base: GradeCase) -> Maker:
    yield replace(base, id="base", steps=("repeat", "accumulate", "second derivative"))
    yield replace(base, id="new values at the same addresses", reuses=True)
    for mode in ("no_grad", "inference_mode"):
        yield replace(base, id=f"under {mode}", mode=mode)
