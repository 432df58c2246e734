"""A reference and a profile go in; what the template of a kernel's tests prints comes out: inputs, shapes, cases."""

import math
import re

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import Any

from liger_dev.axes import named
from liger_dev.axes import part_of
from liger_dev.axes import whole_of
from liger_dev.choices import settings
from liger_dev.literals import literal
from liger_dev.profile import KernelProfile
from liger_dev.ranks import accepts_mixed_dtypes
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor

# Rows and columns: few rows of odd lengths, since the interpreter runs programs one after another. 37 rows are more
# than one block of short rows, and no multiple of it. 8193 columns are wide: what follows a reduction is loaded again.
_ANY_RANK = (
    ((2, 3), 127),
    ((6,), 1),
    ((2, 2, 3), 2),
    ((37,), 3),
    ((), 5),
    ((3,), 128),
    ((5,), 1023),
    ((1, 2), 4097),
    ((2,), 8193),
    ((0,), 33),
)
_LARGE_ANY_RANK = (((4, 512), 4096), ((3, 17), 16385), ((4099,), 1000), ((1,), 32768))
# The first is often the one that is reduced, such as channels: of three numbers, too many are nearly equal.
_OTHER_AXES = (5, 3, 2, 4)

DTYPES = ("float32", "bfloat16", "float16")

Batch = tuple[str | int, ...]
Table = tuple[tuple[tuple[int, ...], int], ...]

# The axes in `sum[B, T](…)`.
_REDUCED = re.compile(r"\w\[([^\]]*)\]\(")


@dataclass(frozen=True)
class SizeDemands:
    """Which sizes an op takes: multiples of `divisors`, no part larger than its whole in `limits`, and those that reach
    `least`. `counts` are the arguments that say how many parts an axis has."""

    divisors: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    counts: Sequence[str] = ()

    def multiple(self, axis: str) -> int:
        return next((number for name, number in self.divisors.items() if _axis(name) == axis), 1)

    def reaching(self, axis: str | int, size: int) -> int:
        return max([size, *(number for name, number in self.least.items() if _axis(name) == _axis(axis))])

    def fitting(self, axis: str | int, size: int) -> int:
        return _rounded(self.reaching(axis, size), self.multiple(_axis(axis)))

    def parts(self, whole: str) -> list[str]:
        return [_axis(part) for part, name in self.limits.items() if _axis(name) == whole]

    def whole(self, part: str) -> str:
        return next((_axis(name) for axis, name in self.limits.items() if _axis(axis) == part), part)


FREE = SizeDemands()


def case_values(
    reference: Reference,
    profile: KernelProfile,
    batch: Batch,
    any_rank: bool,
    demands: SizeDemands,
    picked: Iterable[Mapping[str, Any]] = (),
    dtypes: Sequence[str] = DTYPES,
) -> dict[str, Any]:
    """`batch` are the leading axes that all rows share; `any_rank` says that any number of them will do. Sizes are
    made larger until the op takes them. `picked` are inputs whose integers pick along an axis: `name`, `axis`, whether
    some are left out (`kept`), and the scalar (`mark`) that those equal: they are drawn from it, unless the reference
    says otherwise. `dtypes` are those that eager PyTorch runs the reference with."""
    picked = list(picked)
    drawn = {one["name"]: str(one["axis"]) for one in picked}
    columns = demands.whole(_columns(reference, batch))
    others = _other_sizes(reference, batch, columns, demands)
    least = max([demands.reaching(columns, 1), *(others[part] for part in demands.parts(columns))])
    are_rows = bool(columns) and isinstance(reference.tensors[0].shape[-1], int)
    sizes = Sizes(columns, demands.multiple(columns), least, are_rows)
    usual = _default_sizes(batch, sizes, others, demands)
    learnable = {param.name for param in profile.learnable_params}
    floats = [tensor.name for tensor in reference.tensors if tensor.dtype == "float"]
    inputs = [name for name in floats if name not in learnable]
    optional = [tensor.name for tensor in reference.tensors if tensor.optional]
    absent = [*([name] for name in optional), *([optional] if len(optional) > 1 else [])]
    return {
        "dtypes": [f"torch.{name}" for name in dtypes],
        "low_dtype": f"torch.{dtypes[1] if dtypes[1:] else dtypes[0]}",
        "make_inputs_signature": ", ".join(["dtype", *usual]),
        "make_inputs_items": [
            _input(replace(tensor, range=tensor.range or drawn.get(tensor.name, "")), batch, columns)
            for tensor in reference.tensors
        ],
        "case_arguments": ", ".join([*(["batch"] if batch else []), *([columns] if columns else [])]),
        "cases": _cases(_fast_cases(reference, profile, batch, columns), batch, sizes, any_rank, demands),
        "large_cases": _cases(_LARGE_ANY_RANK, batch, sizes, any_rank, demands),
        "longer_batch": (1, *_default_batch(batch, demands)),
        "beyond": _beyond(reference, batch, sizes),
        "input_name": (inputs or floats)[0],
        "float_inputs": _names(inputs or floats),
        "float_parameters": _names([name for name in floats if name in learnable])
        if learnable and accepts_mixed_dtypes(reference)
        else "",
        "float_names": _names(floats) if len(floats) > 1 else "",
        "refused_shapes": _names(_refused(reference)) if _refused(reference) else "",
        "refused_singles": _names(_refused(reference, 1)) if _refused(reference, 1) else "",
        "picks": [
            _pick(reference, one, dict(text.split("=") for text in usual))
            for one in {one["name"]: one for one in picked}.values()
        ],
        "has_integers": len(floats) < len(reference.tensors),
        "absent": ", ".join(map(_names, absent)),
        **_scalar_cases(reference, demands),
        **_module_cases(reference, profile, demands),
    }


def _refused(reference: Reference, size: int = 0) -> list[str]:
    """The tensors whose last axis, or any axis that is not `size` already, can't have another size: others share it, or
    the reference fixes it."""

    def is_bound(tensor: Tensor) -> bool:
        axes = tensor.shape if size else tensor.shape[-1:]
        others = [other for other in reference.tensors if other is not tensor]
        return any(a != size if isinstance(a, int) else any(a in other.shape for other in others) for a in axes)

    return [tensor.name for tensor in reference.tensors[1:] if is_bound(tensor)]


def _pick(reference: Reference, picked: Mapping[str, Any], sizes: Mapping[str, str]) -> dict[str, Any]:
    """Indices that an op must refuse, and the one that it leaves out. Where a condition other than that says which
    ones are left out, a negative one may be among them."""
    size = sizes.get(_axis(picked["axis"]), str(picked["axis"]))
    default = next((scalar.default for scalar in reference.scalars if scalar.name == picked["mark"]), None)
    outside = [*(["-1"] if default is not None or not picked["kept"] else []), size]
    return {"name": picked["name"], "outside": f"[{', '.join(outside)}]", "mark": default}


def _scalar_cases(reference: Reference, demands: SizeDemands) -> dict[str, Any]:
    """Scalars without a default stand in the constant SCALARS of the test file, if there are any."""
    required = [f'"{s.name}": {_required(s)}' for s in reference.scalars if s.default is None]
    return {
        "required_scalars": "{" + ", ".join(required) + "}" if required else "",
        "other_scalars": ", ".join(_other_scalars(reference.scalars, demands)),
        "scalars_argument": ", SCALARS" if required else "",
        "scalars_text": "SCALARS" if required else "{}",
        "scalars_unpacked": ", **SCALARS" if required else "",
        "scalars_merged": "{**SCALARS, **scalars}" if required else "scalars",
    }


def _other_scalars(scalars: Sequence[Scalar], demands: SizeDemands, names: Collection[str] | None = None) -> list[str]:
    """Dictionaries of what differs from the defaults: each setting that has kernels of its own, then each other value.
    `names`: those that may differ."""
    wanted = [s for s in scalars if names is None or s.name in names]
    usual, *others = settings(wanted)
    changed = [{n: literal(v) for n, v in row.items() if v != usual[n]} for row in others]
    changed += [{s.name: value} for s in wanted if not s.choices for value in _others(s, demands)]
    return ["{" + ", ".join(f'"{name}": {value}' for name, value in row.items()) + "}" for row in changed]


def _names(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _columns(reference: Reference, batch: Batch) -> str:
    """The name that tests give the last axis of the first tensor that holds numbers: indices count rows. Empty if its
    size is fixed, unless no other size of the tests would vary: then that of its last axis whose size is not."""
    first = next((t for t in reference.tensors if t.dtype == "float"), reference.tensors[0])
    last = first.shape[-1:]
    if not batch:
        last = tuple(axis for axis in first.shape if isinstance(axis, str))[-1:]
    last = tuple(map(whole_of, last))
    return _axis(last[0]) if last and last[0] in named(reference.tensors) and last[0] not in batch else ""


def _axis(name: str | int) -> str:
    """An axis as an argument's name: linters take I, O and l for digits."""
    part = part_of(name)
    if part:
        return f"{_axis(part[0])} // {part[1]}"
    return f"n_{name}" if name in ("I", "O", "l", "dtype", "batch") else str(name)


@dataclass(frozen=True)
class Sizes:
    """The sizes that tests give the columns: multiples of a number, and not too small for what is taken from them.
    `are_rows`: the columns' own size is fixed, and it is another axis whose sizes vary."""

    columns: str
    multiple: int
    least: int
    are_rows: bool = False

    def __call__(self, size: int) -> int:
        return _rounded(max(size, self.least), self.multiple)


def _beyond(reference: Reference, batch: Batch, sizes: Sizes) -> dict[str, str]:
    """The arguments of `make_inputs` for one row, and for so many that a tensor has more than 2**31 elements; empty
    where no batch of rows can grow."""
    tensors = [t.name for t in reference.tensors if t.dtype == "float" and batch and t.shape[: len(batch)] == batch]
    if not tensors or not sizes.columns:
        return {}
    ones, lead = (1,) * len(batch), "1, " * (len(batch) - 1)
    many = f"({lead}2**31 // row + 8{',' if len(batch) == 1 else ''})"
    return {"name": tensors[0], "one": f"{ones}, {sizes(4096)}", "many": f"{many}, {sizes(4096)}"}


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _other_sizes(reference: Reference, batch: Batch, columns: str, demands: SizeDemands) -> dict[str, int]:
    """The sizes of all axes but rows and columns."""
    axes = named(reference.tensors)
    others = [axis for axis in dict.fromkeys(map(_axis, axes)) if axis not in {*map(_axis, batch), columns}]
    return {
        axis: _rounded(demands.reaching(axis, _OTHER_AXES[i % len(_OTHER_AXES)]), demands.multiple(axis))
        for i, axis in enumerate(others)
    }


def _default_sizes(batch: Batch, sizes: Sizes, others: Mapping[str, int], demands: SizeDemands) -> list[str]:
    return [
        *([f"batch={_default_batch(batch, demands)}"] if batch else []),
        *([f"{sizes.columns}={sizes(6 if sizes.are_rows else 127)}"] if sizes.columns else []),
        *(f"{axis}={size}" for axis, size in others.items()),
    ]


def _default_batch(batch: Batch, demands: SizeDemands) -> tuple[int, ...]:
    shape = (2,) * (len(batch) - 2) + (2, 3) if len(batch) > 1 else (6,)
    return tuple(map(demands.fitting, batch, shape))


def _input(tensor: Tensor, batch: Batch, columns: str) -> dict[str, str]:
    """One line of `make_inputs`: the call that makes a tensor."""
    has_batch = bool(batch) and tensor.shape[: len(batch)] == batch
    rest = [_axis(axis) for axis in (tensor.shape[len(batch) :] if has_batch else tensor.shape)]
    items = ["*batch", *rest] if has_batch else rest
    shape = "batch" if items == ["*batch"] else f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    calls = {"float": f"randn({shape}, dtype)", "bool": f"randint(2, {shape}).bool()"}
    unknown = 2 if tensor.is_mask else columns or 2
    high = f"batch[{batch.index(tensor.range)}]" if tensor.range in batch else _axis(tensor.range) or unknown
    return {"name": tensor.name, "call": calls.get(tensor.dtype, f"randint({high}, {shape})")}


def _fast_cases(reference: Reference, profile: KernelProfile, batch: Batch, columns: str) -> Table:
    """The cases of the interpreter, without the widest where columns are rows: what is summed over another axis for each
    of them, or for those of another axis too, takes a program each 64 numbers. Nothing there depends on how wide a row
    is, unless it is reduced as well."""
    formulas = " ".join([profile.forward_computation, *profile.gradient_formulas.values()])
    # A part of an axis, `D_2`, is as wide as the axis is.
    sums = [{_axis(re.sub(r"_\d+$", "", axis)) for axis in axes.split(", ")} for axes in _REDUCED.findall(formulas)]
    rows = {*map(_axis, batch)}
    first, *others = ({_axis(whole_of(axis)) for axis in tensor.shape} for tensor in reference.tensors)
    as_rows = any(columns not in axes and not axes <= rows for axes in sums)
    as_rows |= any(columns in axes and len(axes) > 1 and not first <= axes for axes in others)
    reduced = any(columns in axes and not axes & rows for axes in sums)
    return tuple(case for case in _ANY_RANK if case[1] < 8193 or reduced or not as_rows)


def _cases(table: Table, batch: Batch, sizes: Sizes, any_rank: bool, demands: SizeDemands) -> list[str]:
    rows: list[str] = []
    for shape, odd in table:
        size = sizes(math.prod(shape) if sizes.are_rows else odd)
        if any_rank and 0 in shape and any(demands.reaching(axis, 0) for axis in batch):
            continue
        lead = shape if any_rank else tuple(map(demands.fitting, batch, _at_rank(shape, len(batch))))
        if not batch:
            rows.append(str(size))
        elif not sizes.columns:
            rows.append(str(lead))
        else:
            rows.append(f"({lead}, {size})")
    return list(dict.fromkeys(rows))


def _at_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A batch shape of about as many rows in exactly `rank` dimensions."""
    while len(shape) > rank:
        shape = (shape[0] * shape[1], *shape[2:]) if len(shape) > 1 else ()
    return (1,) * (rank - len(shape)) + shape


def _others(scalar: Scalar, demands: SizeDemands) -> list[str]:
    """A value other than the default, where one can be told: an op that ignores the argument must fail."""
    match scalar.default:
        case bool():
            return [literal(not scalar.default)]
        case float():
            return [literal(round(1.5 * scalar.default + 0.25, 2))]
        case int() if scalar.name in demands.counts:
            return ["1"]
    return []


def _required(scalar: Scalar) -> str:
    if scalar.choices:
        return literal(scalar.choices[0])
    return {"int": "1", "float": "0.5", "bool": "True"}.get(scalar.type, "None")


def _module_cases(reference: Reference, profile: KernelProfile, demands: SizeDemands) -> dict[str, Any]:
    """How tests make a module for given inputs: its sizes are read from the parameters' shapes."""
    shapes = {tensor.name: tensor.shape for tensor in reference.tensors}
    sizes: dict[str, str] = {}
    for param in profile.learnable_params:
        if len(shapes.get(param.name, ())) == len(param.shape):
            for index, axis in enumerate(param.shape):
                sizes.setdefault(str(axis), f'inputs["{param.name}"].shape[{index}]')
    stored = [param.name for param in profile.module_init_params]
    others = _other_scalars(reference.scalars, demands, stored)
    base = _init_arguments(profile, sizes)
    place = ["device=DEVICE"] if profile.learnable_params else []
    optional = {t.name for t in reference.tensors if t.optional} | {
        p.name for p in profile.learnable_params if p.optional
    }
    return {
        "module_cases": ", ".join(["{}", *others]) if others else "",
        "module_call_arguments": ", ".join([*base, *(["**scalars"] if others else []), *place]),
        "module_flags": [
            {"name": p.name, "arguments": ", ".join([*base, f"with_{p.name}=False", *place])}
            for p in profile.learnable_params
            if p.name in optional
        ],
        "module_example_arguments": ", ".join([*_init_arguments(profile, dict.fromkeys(sizes, "7")), *place]),
        "module_example_shapes": _example_shapes(profile, sizes),
        "module_parameters": bool(profile.learnable_params),
        "initial": [{"name": p.name, "value": _initial(p.init)} for p in profile.learnable_params if _initial(p.init)],
    }


def _init_arguments(profile: KernelProfile, sizes: dict[str, str]) -> list[str]:
    """The arguments that a module can't be made without."""
    values = {"int": "1", "float": "0.5", "bool": "True", "str": '""'}
    given = {
        param.name: literal(param.choices[0]) if param.choices else sizes.get(param.name, values[param.type])
        for param in profile.module_init_params
    }
    needed = [p.name for p in profile.module_init_params if p.default is None or p.name in sizes]
    return [f"{name}={given[name]}" for name in needed]


def _example_shapes(profile: KernelProfile, sizes: dict[str, str]) -> str:
    items = []
    for param in profile.learnable_params:
        shape = tuple(7 if isinstance(axis, str) and axis in sizes else axis for axis in param.shape)
        items.append(f'"{param.name}": {shape}')
    return "{" + ", ".join(items) + "}"


def _initial(init: str) -> str:
    """The value that every element of a fresh parameter has; empty for a random one."""
    return {"ones": "1.0", "zeros": "0.0", "normal": ""}.get(init, init.removeprefix("full(").removesuffix(")"))
