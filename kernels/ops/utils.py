"""What every op shares: launch settings, device handling and the checks on its arguments."""

import contextlib
import functools

import torch
import triton
import triton.language as tl

MAX_COLS = 65536
# Longer rows are taken block by block, by ops that have a kernel for that.
LONG_ROW = 16384
# Wider rows do not stay in registers beside sums over rows: a persistent kernel loads them again after its reductions.
WIDE_ROW = 8192
_TILE = 4096
_NO_CHANGE = contextlib.nullcontext()


def row_shape(x: torch.Tensor) -> tuple[int, int]:
    """The number of rows, over all dimensions but the last, and of columns. Raises ValueError without a dimension."""
    if x.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows")
    return x.shape[:-1].numel(), x.shape[-1]


# Called at each launch, where triton.cdiv takes 2.4 µs and triton.next_power_of_2 3 µs (beside an H200).
def cdiv(n: int, size: int) -> int:
    """How many blocks of `size` hold `n` elements."""
    return -(-n // size)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`; 1 for 0."""
    return 1 << max(n - 1, 0).bit_length()


def row_settings(n_cols: int, max_rows: int = 16, block_cols: int = 0) -> tuple[int, int, int]:
    """Rows and columns of the tile that one program holds, and its warps.

    A tile has all columns of a row, and so many rows that it holds about 4096 elements, 16 for each thread: short rows
    are latency-bound one at a time, and more than 32 elements a thread spill registers.

    Args:
        block_cols: a power of two to use instead of the next one above `n_cols`.

    Raises:
        ValueError: a row is too long to be held by one program.
    """
    block_cols = whole_row(n_cols, block_cols)
    block_rows = max(1, min(max_rows, _TILE // block_cols))
    num_warps = max(1, min(16, block_rows * block_cols // 512))
    return block_rows, block_cols, num_warps


def persistent_settings(
    n_cols: int, loaded: int, sums: int = 1, max_rows: int = 16, block_cols: int = 0
) -> tuple[int, int, int, int, int]:
    """Rows and columns of one step of a persistent program, the steps in flight, its warps, its programs a multiprocessor.

    Loads of later steps are in flight in at most 64 KB of shared memory. Measured on an H200, 8192 rows of bfloat16:
    RMSNorm backward takes 0.015 ms at 1024 columns, 0.052 at 4096, 0.099 at 8192 and 0.219 at 16384 (0.279 with 8
    warps), LayerNorm's, which has two sums, 0.016, 0.053, 0.102 and 0.303 (0.342 with 16 warps).

    Args:
        loaded: bytes that a step loads for each of its elements.
        sums: how many sums over rows a program keeps for each column, in float32.

    Raises:
        ValueError: a row is too long to be held by one program.
    """
    block_cols = whole_row(n_cols, block_cols)
    block_rows = max(1, min(max_rows, 2048 // block_cols))
    tile = block_rows * block_cols
    if tile > WIDE_ROW:
        return block_rows, block_cols, 1, 16 if sums < 2 else 8, 1
    stages = min(4 if tile <= 2048 else 3, 1 + 65536 // (tile * loaded))
    return block_rows, block_cols, stages, max(1, min(8, tile // 512)), WIDE_ROW // max(tile, 2048)


def whole_row(n_cols: int, block_cols: int = 0) -> int:
    """Columns of a tile that holds whole rows. Raises ValueError for a row that is too long."""
    limit = block_cols or MAX_COLS
    if n_cols > limit:
        raise ValueError(f"rows of {n_cols} elements exceed the {limit} that one program can hold")
    return block_cols or next_power_of_2(n_cols)


def loop_settings(n_cols: int, max_rows: int = 16) -> tuple[int, int, int]:
    """Rows, columns of one block, and warps of a kernel that takes a row block by block: several short rows at once."""
    block_cols = min(8192, next_power_of_2(n_cols))
    return max(1, min(max_rows, 2048 // block_cols)), block_cols, max(1, min(8, block_cols // 256))


def column_settings(n_rows: int, n_cols: int) -> tuple[int, int, int]:
    """Rows, columns of one block, and warps of a kernel whose rows lie side by side in memory and are summed block by
    block: a program takes 64 neighbours, so that its loads are contiguous."""
    block_rows = min(64, next_power_of_2(n_rows))
    return block_rows, min(32, next_power_of_2(n_cols)), 4


def scatter_settings(n_cols: int) -> tuple[int, int, int]:
    """Rows that are looked at together, columns, and warps of a kernel that adds up the rows of each index."""
    return 32, min(128, next_power_of_2(n_cols)), 4


@functools.lru_cache(maxsize=None)
def sm_count(device: torch.device) -> int:
    """Multiprocessors of a device; 1 on a CPU, where Triton's interpreter runs programs one after another."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 1


def device_guard(device: torch.device) -> contextlib.AbstractContextManager:
    """Makes `device` current, if it is not, so that a launch goes where the tensors are."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return _NO_CHANGE
    return torch.cuda.device(device)


@triton.jit
def _scale_kernel(x_ptr, factor_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    factor = tl.load(factor_ptr).to(tl.float32)
    if factor != 1.0:  # as a rule it is: loss.backward()
        first = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
        for start in range(first, n_elements, tl.num_programs(0) * BLOCK_SIZE):
            offsets = start + tl.arange(0, BLOCK_SIZE)
            x = tl.load(x_ptr + offsets, mask=offsets < n_elements, other=0.0).to(tl.float32)
            tl.store(x_ptr + offsets, x * factor, mask=offsets < n_elements)


def scale_in_place(x: torch.Tensor | None, factor: torch.Tensor) -> None:
    """Multiplies a contiguous `x` by `factor`, one number on its device, which the host does not wait for."""
    if x is not None:
        n_programs = min(cdiv(x.numel(), 1024), 8 * sm_count(x.device))
        with device_guard(x.device):
            _scale_kernel[(n_programs,)](x, factor, x.numel(), BLOCK_SIZE=1024)


def scalable(*tensors: torch.Tensor | None) -> bool:
    """Whether forward may make gradients that backward scales. In float16 small ones would be lost before a large
    upstream gradient could save them; and torch.compile keeps what forward made, which must be given away only once."""
    halves = any(tensor is not None and tensor.dtype == torch.float16 for tensor in tensors)
    return not halves and not torch.compiler.is_compiling()


def check_floating(**tensors: torch.Tensor | None) -> None:
    """Raises TypeError unless every tensor is float32, bfloat16 or float16, ValueError unless all are on one device."""
    device = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"{name} must be float32, bfloat16 or float16, not {tensor.dtype}")
        if device is not None and tensor.device != device:
            raise ValueError(f"{name} is on {tensor.device}, the tensors before it on {device}")
        device = tensor.device


def check_integer(**tensors: torch.Tensor) -> None:
    """Raises TypeError unless every tensor holds integers."""
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            raise TypeError(f"{name} must hold integers, not {tensor.dtype}")


def check_index(name: str, index: torch.Tensor, size: int, kept: torch.Tensor | bool = True) -> None:
    """Raises IndexError unless every index that is `kept` is at least 0 and below `size`.

    It waits for the device; so nothing is checked while torch.compile traces or a CUDA graph is captured.
    """
    if torch.compiler.is_compiling() or (index.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    if (((index < 0) | (index >= size)) & kept).any():
        raise IndexError(f"{name} must hold indices of at least 0 and below {size}")


def check_bool(**tensors: torch.Tensor) -> None:
    """Raises TypeError unless every tensor is bool."""
    for name, tensor in tensors.items():
        if tensor.dtype != torch.bool:
            raise TypeError(f"{name} must be bool, not {tensor.dtype}")


def check_divisible(name: str, size: int, divisor: int) -> None:
    """Raises ValueError unless a size can be taken apart as the operation does."""
    if divisor < 1 or size % divisor:
        raise ValueError(f"{name} must be a multiple of {divisor}, not {size}")


def check_at_most(name: str, size: int, largest: int) -> None:
    """Raises ValueError unless a part fits into the whole that it is taken from."""
    if size > largest:
        raise ValueError(f"{name} must be at most {largest}, not {size}")


def check_least(name: str, size: int, least: int) -> None:
    """Raises ValueError unless a dimension has the elements that are read one by one."""
    if size < least:
        raise ValueError(f"{name} must be at least {least}, not {size}")


def check_rank(name: str, tensor: torch.Tensor, rank: int) -> None:
    """Raises ValueError unless a tensor has `rank` dimensions."""
    if tensor.dim() != rank:
        raise ValueError(f"{name} must have {rank} dimensions, not {tensor.dim()}")


def check_static(name: str, value: object, *compiled: object) -> None:
    """Raises ValueError unless an argument has a value that the kernels were generated for."""
    if value not in compiled:
        known = " or ".join(f"{one!r}" for one in compiled)
        raise ValueError(f"{name} is {known} in this kernel, not {value!r}: generate one for that value")


def check_shape(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless `tensor` has exactly `shape`: nothing is broadcast silently."""
    if tensor is not None and tensor.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, not {tuple(tensor.shape)}")


@triton.jit
def larger_or_nan(a, b):
    """The larger of two numbers, or NaN if one of them is: combines the elements of a row, whose tl.max drops NaNs."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
