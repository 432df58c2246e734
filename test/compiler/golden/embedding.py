"""Rows of a table by index: y = weight[index]; a row's gradient is the sum over the places that took it.

    y = weight[index]
    dweight[index] += dy

Launch: a program takes BLOCK_ROWS rows of BLOCK_COLS columns; in backward the first row of an index adds up the
gradients of all rows of that index.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import PIECE_COLS
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_index
from kernels.ops.utils import check_integer
from kernels.ops.utils import check_rank
from kernels.ops.utils import device_guard
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import scatter_settings


@triton.jit
def _embedding_forward_kernel(
    weight_ptr,
    index_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols

    index = tl.load(index_ptr + rows, mask=row_mask, other=0)
    y = tl.load(weight_ptr + index.to(tl.int64) * n_cols + cols, mask=mask, other=0.0).to(tl.float32)

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _embedding_dweight_kernel(
    dy_ptr,
    index_ptr,
    dweight_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    SEARCH_ROWS: tl.constexpr = 64 * BLOCK_ROWS
    row = tl.program_id(0)
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    col_mask = cols < n_cols
    own = tl.load(index_ptr + row)

    # The first row of an index adds up all its rows in their order: no atomics, the same bits each time.
    earlier = 0
    for start in range(0, row, SEARCH_ROWS):
        others = start + tl.arange(0, SEARCH_ROWS)
        same = (others < row) & (tl.load(index_ptr + others, mask=others < row, other=0) == own)
        earlier += tl.sum(same.to(tl.int32))
    if earlier == 0:
        dweight = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(row, n_rows, SEARCH_ROWS):
            others = start + tl.arange(0, SEARCH_ROWS)
            same = (others < n_rows) & (tl.load(index_ptr + others, mask=others < n_rows, other=0) == own)
            if tl.sum(same.to(tl.int32)) > 0:
                for first in range(start, tl.minimum(start + SEARCH_ROWS, n_rows), BLOCK_ROWS):
                    rows = (first + tl.arange(0, BLOCK_ROWS).to(tl.int64))[:, None]
                    index = tl.load(index_ptr + rows, mask=rows < n_rows, other=0)
                    row_mask = (rows < n_rows) & (index == own)
                    mask = row_mask & col_mask
                    offsets = rows * n_cols + cols

                    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

                    dweight += dy
        total = tl.sum(dweight, axis=0, keep_dims=True)
        tl.store(dweight_ptr + own.to(tl.int64) * n_cols + cols, total, mask=col_mask)


def embedding_forward(weight, index):
    """Returns y, index."""
    check_rank("weight", weight, 2)
    check_floating(weight=weight)
    check_integer(index=index)
    check_index("index", index, weight.shape[-2])
    weight = weight.contiguous()
    index = index.contiguous()
    n_rows, n_cols = index.numel(), weight.shape[-1]
    y = torch.empty((*index.shape, weight.shape[-1]), dtype=weight.dtype, device=weight.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS))
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(weight.device):
        _embedding_forward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            weight, index, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    return y, index


def embedding_backward(dy, index, weight_dtype, size_V):
    """Returns dweight."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dweight = torch.zeros((size_V, dy.shape[-1]), dtype=weight_dtype, device=dy.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = scatter_settings(n_cols)
    with device_guard(dy.device):
        _embedding_dweight_kernel[(n_rows, cdiv(n_cols, BLOCK_COLS))](
            dy, index, dweight, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    return dweight


class LigerEmbeddingFunction(torch.autograd.Function):
    """y = embedding(weight, index)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        weight: (V, H).
        index: (B, T), integers.

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, weight, index):
        y, index = embedding_forward(weight, index)
        ctx.save_for_backward(index)
        ctx.weight_dtype = weight.dtype
        ctx.size_V = weight.shape[-2]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        dweight = embedding_backward(dy, index, ctx.weight_dtype, ctx.size_V)
        return dweight, None
