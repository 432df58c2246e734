"""GEGLU with the exact GELU: y = gelu(gate) * up, where gelu(gate) = gate / 2 * (1 + erf(gate / sqrt(2))).

    y = activated * up, where activated = 0.5 * gate * (1 + erf), erf = erf(gate * 0.707107)
    dgate = 0.5 * dactivated * (0.797885 * gate * exp(-(0.5 * (gate * gate))) + (1 + erf)), where dactivated = dy *
        up
    dup = dy * activated

Launch: one program for 1024 elements, wherever rows begin.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import check_floating
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard

BLOCK_SIZE = 1024


@triton.jit
def _geglu_erf_forward_kernel(
    gate_ptr,
    up_ptr,
    y_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    erf = tl.erf(gate * 0.707106781186548)
    activated = 0.5 * gate * (1.0 + erf)
    y = activated * up

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _geglu_erf_backward_kernel(
    dy_ptr,
    gate_ptr,
    up_ptr,
    dgate_ptr,
    dup_ptr,
    n_elements,
    NEEDS_DGATE: tl.constexpr,
    NEEDS_DUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    erf = tl.erf(gate * 0.707106781186548)
    one_plus_erf = 1.0 + erf
    activated = 0.5 * gate * one_plus_erf
    dup = dy * activated
    dactivated = dy * up
    product = 0.797884560802865 * gate * tl.exp(-(0.5 * (gate * gate)))
    dgate = 0.5 * dactivated * (product + one_plus_erf)

    if NEEDS_DUP:
        tl.store(dup_ptr + offsets, dup, mask=mask)
    if NEEDS_DGATE:
        tl.store(dgate_ptr + offsets, dgate, mask=mask)


def geglu_erf_forward(gate, up):
    """Returns y, gate, up."""
    check_floating(gate=gate, up=up)
    check_shape("up", up, gate.shape)
    gate = gate.contiguous()
    up = up.contiguous()
    n_elements = gate.numel()
    y = torch.empty_like(gate, dtype=torch.promote_types(gate.dtype, up.dtype))
    with device_guard(gate.device):
        _geglu_erf_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
            gate, up, y, n_elements, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return y, gate, up


def geglu_erf_backward(dy, gate, up, needs_dgate=True, needs_dup=True):
    """Returns dgate, dup."""
    dy = dy.contiguous()
    n_elements = dy.numel()
    dgate = torch.empty_like(gate) if needs_dgate else None
    dup = torch.empty_like(up) if needs_dup else None
    with device_guard(dy.device):
        _geglu_erf_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
            dy,
            gate,
            up,
            dgate,
            dup,
            n_elements,
            NEEDS_DGATE=needs_dgate,
            NEEDS_DUP=needs_dup,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=4,
        )
    return dgate, dup


class LigerGegluErfFunction(torch.autograd.Function):
    """y = geglu_erf(gate, up)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        gate: (B, T, H).
        up: (B, T, H).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, gate, up):
        y, gate, up = geglu_erf_forward(gate, up)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = geglu_erf_backward(
            dy, gate, up, needs_dgate=ctx.needs_input_grad[0], needs_dup=ctx.needs_input_grad[1]
        )
        return dgate, dup
