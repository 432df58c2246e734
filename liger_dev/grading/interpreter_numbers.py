"""Number formats for Triton's interpreter: takes its module, mends bfloat16, 16-bit sums, NaN rules and overflow.

The interpreter keeps bfloat16 as the bits in a uint16 array. A GPU computes bfloat16 in float32 and rounds each result
to the nearest, ties to even; so do these.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from numpy.typing import NDArray

_ROUNDED = (
    "fadd fsub fmul fdiv frem precise_divf approx_divf minimumf maximumf minnumf maxnumf clampf fma fneg "
    "exp exp2 log log2 sin cos sqrt precise_sqrt rsqrt erf floor ceil"
).split()
_COMPARED = [f"fcmp{kind}" for kind in "OLT OGT OLE OGE OEQ ONE ULT UGT ULE UGE UEQ UNE".split()]
_QUIET_NAN = np.uint16(0x7FC0)


def widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 values that bfloat16 bits stand for, exactly."""
    wide: NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def round_to_bf16(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even; every NaN becomes the quiet one, as in torch."""
    single = np.array(values, dtype=np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), _QUIET_NAN, rounded)


def _is_bf16(up: ModuleType, handle: Any) -> bool:
    return (
        isinstance(handle, up.TensorHandle) and handle.dtype.scalar == up.tl.bfloat16 and handle.data.dtype == np.uint16
    )


def _widened(up: ModuleType, handle: Any) -> Any:
    return up.TensorHandle(widen(handle.data), up.tl.float32) if _is_bf16(up, handle) else handle


def _narrowed(up: ModuleType, values: NDArray[Any]) -> Any:
    return up.TensorHandle(round_to_bf16(values), up.tl.bfloat16)


def _bf16(up: ModuleType, *values: float) -> Any:
    return _narrowed(up, np.array(values))


def conversion_is_faulty(up: ModuleType) -> bool:
    """One float32 just above the middle of two bfloat16 numbers, and one integer."""
    builder, tl = up.interpreter_builder, up.tl
    single = up.TensorHandle(np.array([1 + 2**-8 + 2**-20], dtype=np.float32), tl.float32)
    integer = up.TensorHandle(np.array([3], dtype=np.int32), tl.int32)
    nearest = builder.create_fp_trunc(single, tl.bfloat16).data[0] == 0x3F81
    exact = builder.create_si_to_fp(integer, tl.bfloat16).data[0] == 0x4040
    return not (nearest and exact and hasattr(builder, "get_bf16"))


def mend_conversion(up: ModuleType) -> None:
    original = up.InterpreterBuilder.cast_impl

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        src = _widened(up, src)
        if dst_type.scalar == up.tl.bfloat16:
            return _narrowed(up, src.data)
        if src.data.dtype == np.bool_:
            return up.TensorHandle(src.data.astype(up._get_np_dtype(dst_type)), dst_type.scalar)
        return original(self, src, dst_type)

    up.InterpreterBuilder.cast_impl = cast_impl
    up.InterpreterBuilder.get_bf16 = lambda self, value: _bf16(up, value)


def arithmetic_is_faulty(up: ModuleType) -> bool:
    one = _bf16(up, 1.0)
    return bool(up.interpreter_builder.create_fadd(one, one).data[0] != 0x4000)


def mend_arithmetic(up: ModuleType) -> None:
    def in_float32(original: Callable[..., Any], pack: Callable[[Any], Any]) -> Callable[..., Any]:
        def operation(self: Any, *args: Any) -> Any:
            if not any(_is_bf16(up, arg) for arg in args):
                return original(self, *args)
            return pack(original(self, *(_widened(up, arg) for arg in args)).data)

        return operation

    for names, pack in (
        (_ROUNDED, lambda data: _narrowed(up, data)),
        (_COMPARED, lambda data: up.TensorHandle(data, up.tl.int1)),
    ):
        for name in names:
            original = getattr(up.InterpreterBuilder, f"create_{name}", None)
            if original is not None:
                setattr(up.InterpreterBuilder, f"create_{name}", in_float32(original, pack))


def fma_is_faulty(up: ModuleType) -> bool:
    """(1 + 2^-9)^2 - 1 in float16: the product alone rounds to 1 + 2^-8."""
    x, minus_one = (up.TensorHandle(np.array([v], dtype=np.float16), up.tl.float16) for v in (1 + 2**-9, -1.0))
    return bool(up.interpreter_builder.create_fma(x, x, minus_one).data[0] != np.float16(2**-8 + 2**-18))


def mend_fma(up: ModuleType) -> None:
    """Through float64: exact for 16-bit floats, and for float32 but for a rare second rounding."""

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        exact = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data.astype(np.float64)
        return up.TensorHandle(exact.astype(z.data.dtype), z.dtype.scalar)

    up.InterpreterBuilder.create_fma = create_fma


def dot_is_faulty(up: ModuleType) -> bool:
    one = up.TensorHandle(np.full((1, 1), 0x3F80, dtype=np.uint16), up.tl.bfloat16)
    zero = up.TensorHandle(np.zeros((1, 1), dtype=np.float32), up.tl.float32)
    return bool(up.interpreter_builder.create_dot(one, one, zero, None, 0).data[0, 0] != 1.0)


def mend_dot(up: ModuleType) -> None:
    original = up.InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, _widened(up, a), _widened(up, b), *rest)

    up.InterpreterBuilder.create_dot = create_dot


def atomics_are_faulty(up: ModuleType) -> bool:
    """Whether adding 1 to a bfloat16 in memory fails."""
    memory = np.zeros(1, dtype=np.uint16)
    pointer = up.TensorHandle(np.array([memory.ctypes.data], dtype=np.uint64), up.tl.pointer_type(up.tl.bfloat16))
    everywhere = up.TensorHandle(np.ones(1, dtype=bool), up.tl.int1)
    add, relaxed = up._ir.ATOMIC_OP.FADD, up._ir.MEM_SEMANTIC.RELAXED
    try:
        up.interpreter_builder.create_atomic_rmw(add, pointer, _bf16(up, 1.0), everywhere, relaxed, None)
    except ValueError:
        return True
    return bool(memory[0] != 0x3F80)


def mend_atomics(up: ModuleType) -> None:
    original = up.InterpreterBuilder.create_atomic_rmw
    combine: dict[Any, Callable[..., Any]] = {
        up._ir.ATOMIC_OP.FADD: np.add,
        up._ir.ATOMIC_OP.XCHG: lambda old, new: new,
    }

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        if not _is_bf16(up, val) or op not in combine:
            return original(self, op, ptr, val, mask, sem, scope)
        pointers, values, masks = np.broadcast_arrays(ptr.data, widen(val.data), mask.data)
        before = np.zeros(pointers.shape, dtype=np.uint16)
        always, nothing = np.ones(1, dtype=bool), np.zeros(1, dtype=np.uint16)
        for index in zip(*np.nonzero(masks)):
            pointer = np.array([pointers[index]], dtype=np.uint64)
            old = up._interpreter.load(pointer, always, nothing, np.dtype(np.uint16))
            up._interpreter.store(pointer, round_to_bf16(combine[op](widen(old), values[index])), always)
            before[index] = old[0]
        return up.TensorHandle(before, up.tl.bfloat16)

    up.InterpreterBuilder.create_atomic_rmw = create_atomic_rmw


def _tree_sum(data: NDArray[Any], axis: int | None, keep_dims: bool, rounded: Callable[[Any], Any]) -> NDArray[Any]:
    """The sum over one axis (or all: None) by halving, each partial sum rounded: the order that a GPU's lanes take."""
    rank = data.ndim
    lanes = data.reshape(-1) if axis is None else np.moveaxis(data, axis, -1)
    while lanes.shape[-1] > 1:
        half = (lanes.shape[-1] + 1) // 2
        upper = lanes[..., half:]
        padding = [(0, 0)] * (lanes.ndim - 1) + [(0, half - upper.shape[-1])]
        lanes = rounded(lanes[..., :half] + np.pad(upper, padding))
    total = lanes[..., 0]
    if not keep_dims:
        return total
    return total.reshape((1,) * rank) if axis is None else np.expand_dims(total, axis)


def sums_are_faulty(up: ModuleType) -> bool:
    """Whether float16 partial sums keep more digits than float16 has: 2048 + 1 + 1 must stay 2048 in some order."""
    data = np.array([2048, 1, 1, 1], dtype=np.float16)
    handle = up.tl.tensor(up.TensorHandle(data, up.tl.float16), up.tl.block_type(up.tl.float16, [4]))
    bf16 = up.tl.tensor(_bf16(up, 1.0, 1.0), up.tl.block_type(up.tl.bfloat16, [2]))
    sums = [up.ReduceOps(0, None, False).sum(value).handle.data.item() for value in (handle, bf16)]
    return sums != [2050.0, 0x4000]


def mend_sums(up: ModuleType) -> None:
    original = up.ReduceOps.sum

    def total(self: Any, input: Any) -> Any:
        data = input.handle.data
        if input.dtype == up.tl.bfloat16:
            values = _tree_sum(widen(data), self.axis, self.keep_dims, lambda x: widen(round_to_bf16(x)))
            return self.to_tensor(round_to_bf16(values), input.dtype)
        if input.dtype == up.tl.float16:
            return self.to_tensor(_tree_sum(data, self.axis, self.keep_dims, lambda x: x), input.dtype)
        return original(self, input)

    up.ReduceOps.sum = total
    for name, combine in (("cumsum", np.add), ("cumprod", np.multiply)):
        setattr(up.ScanOps, name, _bf16_scan(up, getattr(up.ScanOps, name), combine))


def row_sums_are_faulty(up: ModuleType) -> bool:
    """Whether 1 + 2**-24 + 2**-24 + ... stays 1 from row to row: a GPU adds the small numbers to each other."""
    rows = np.array([[1.0] * 2, *[[2.0**-24] * 2] * 15], dtype=np.float32)
    value = up.tl.tensor(up.TensorHandle(rows, up.tl.float32), up.tl.block_type(up.tl.float32, [16, 2]))
    return bool(up.ReduceOps(0, None, False).sum(value).handle.data[0] == 1.0)


def mend_row_sums(up: ModuleType) -> None:
    original = up.ReduceOps.sum

    def total(self: Any, input: Any) -> Any:
        data = input.handle.data
        if input.dtype != up.tl.float32 or data.ndim < 2 or self.axis in (None, data.ndim - 1):
            return original(self, input)
        return self.to_tensor(_tree_sum(data, self.axis, self.keep_dims, lambda x: x), input.dtype)

    up.ReduceOps.sum = total


def _bf16_scan(up: ModuleType, original: Callable[..., Any], combine: Callable[..., Any]) -> Callable[..., Any]:
    def scan(self: Any, input: Any) -> Any:
        if input.dtype != up.tl.bfloat16:
            return original(self, input)
        lanes = np.moveaxis(widen(input.handle.data), self.axis, 0)
        lanes = _doubled(lanes, lambda a, b: widen(round_to_bf16(combine(a, b))))
        return [self.to_tensor(round_to_bf16(np.moveaxis(lanes, 0, self.axis)), input.dtype)]

    return scan


def scans_are_faulty(up: ModuleType) -> bool:
    """Whether 1 + 2**-24 + 2**-24 + ... stays 1: a GPU adds the small numbers to each other."""
    handle = up.TensorHandle(np.array([1.0, *[2.0**-24] * 15], dtype=np.float32), up.tl.float32)
    value = up.tl.tensor(handle, up.tl.block_type(up.tl.float32, [16]))
    (found,) = up.ScanOps(0, None, False).cumsum(value)
    return bool(found.handle.data[-1] == 1.0)


def mend_scans(up: ModuleType) -> None:
    for name, combine in (("cumsum", np.add), ("cumprod", np.multiply)):
        setattr(up.ScanOps, name, _float_scan(up, getattr(up.ScanOps, name), combine))


def _float_scan(up: ModuleType, original: Callable[..., Any], combine: Callable[..., Any]) -> Callable[..., Any]:
    def scan(self: Any, input: Any) -> Any:
        if input.dtype not in (up.tl.float32, up.tl.float16):
            return original(self, input)
        lanes = _doubled(np.moveaxis(input.handle.data.copy(), self.axis, 0), combine)
        return [self.to_tensor(np.ascontiguousarray(np.moveaxis(lanes, 0, self.axis)), input.dtype)]

    return scan


def _doubled(lanes: NDArray[Any], combine: Callable[..., Any]) -> NDArray[Any]:
    """A scan along the first axis by doubling, as lanes of a warp do: roundings grow with the logarithm."""
    shift = 1
    while shift < lanes.shape[0]:
        lanes[shift:] = combine(lanes[:-shift], lanes[shift:])
        shift *= 2
    return lanes


def reductions_are_faulty(up: ModuleType) -> bool:
    """Whether a function of one's own is called for each of 16 elements: a GPU combines pairs, then pairs of these."""
    calls = []

    class Larger:
        @staticmethod
        def fn(a: Any, b: Any) -> Any:
            calls.append(a)
            return b

    value = up.tl.tensor(
        up.TensorHandle(np.ones(16, dtype=np.float32), up.tl.float32), up.tl.block_type(up.tl.float32, [16])
    )
    up.ReduceOps(0, Larger, False).generic_reduce((value,))
    return len(calls) > 4


def mend_reductions(up: ModuleType) -> None:
    def generic_reduce(self: Any, input: Any) -> Any:
        tensors, axis = self.unravel(input, self.axis)
        rank = input[0].handle.data.ndim
        lanes = [np.moveaxis(tensor.handle.data, axis, 0) for tensor in tensors]
        while len(lanes[0]) > 1:
            pairs = [self.to_tensor(x[i::2], t.dtype) for i in (0, 1) for x, t in zip(lanes, tensors)]
            found = self.combine_fn.fn(*pairs)
            found = found if isinstance(found, tuple) else (found,)
            lanes = [_spread(up, y, x[::2]) for y, x in zip(found, lanes)]
        results = [np.moveaxis(x, 0, axis) if self.keep_dims else x[0] for x in lanes]
        if self.keep_dims and self.axis is None:
            results = [x.reshape((1,) * rank) for x in results]
        return [self.to_tensor(x, t.dtype) for x, t in zip(results, tensors)]

    up.ReduceOps.generic_reduce = generic_reduce


def _spread(up: ModuleType, value: Any, like: NDArray[Any]) -> NDArray[Any]:
    """What a function made of two halves, in their shape: it may be a constant."""
    data = value.handle.data if isinstance(value, up.tl.tensor) else value
    return np.broadcast_to(np.asarray(data, dtype=like.dtype), like.shape)


def integer_sums_are_faulty(up: ModuleType) -> bool:
    try:
        up.ReduceOps(0, None, False).to_tensor(np.int64(2**32), up.tl.int32)
    except OverflowError:
        return True
    return False


def mend_integer_sums(up: ModuleType) -> None:
    original = up.ReduceScanOpInterface.to_tensor

    def to_tensor(self: Any, ret: Any, dtype: Any) -> Any:
        if not getattr(ret, "shape", ()):
            ret = np.array([ret]).astype(up._get_np_dtype(dtype))[0]
        return original(self, ret, dtype)

    up.ReduceScanOpInterface.to_tensor = to_tensor


def nan_rules_are_faulty(up: ModuleType) -> bool:
    """maxnum(NaN, 1) and clamp(NaN, 0, 1) without propagation are numbers on a GPU."""
    nan, zero, one = (up.TensorHandle(np.array([v], dtype=np.float32), up.tl.float32) for v in (np.nan, 0.0, 1.0))
    builder = up.interpreter_builder
    clamped = builder.create_clampf(nan, zero, one, up._ir.PROPAGATE_NAN.NONE)
    return bool(np.isnan(builder.create_maxnumf(nan, one).data[0]) or np.isnan(clamped.data[0]))


def mend_nan_rules(up: ModuleType) -> None:
    builder, clip = up.InterpreterBuilder, up.InterpreterBuilder.create_clampf

    def create_clampf(self: Any, arg: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        if propagate_nan != up._ir.PROPAGATE_NAN.NONE:
            return clip(self, arg, low, high, propagate_nan)
        return self.binary_op(self.binary_op(arg, low, np.fmax), high, np.fmin)

    builder.create_clampf = create_clampf
    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)


def mend_all_nan(up: ModuleType) -> None:
    """Reductions that skip NaN without numpy's warning on a row that holds nothing else."""
    original = up.ReduceOps.min_max
    quiet = {np.nanmax: np.fmax.reduce, np.nanmin: np.fmin.reduce}

    def min_max(self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        return original(self, input, quiet.get(val_reduce_op, val_reduce_op), idx_reduce_op)

    up.ReduceOps.min_max = min_max
