"""SwiGLU, the gated activation of Llama: y = silu(gate) * up, where silu(gate) = gate * sigmoid(gate).

    y = activated * up, where activated = gate * sigmoid(gate)
    dgate = dactivated * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate))), where dactivated = dy * up
    dup = dy * activated

Launch: one program for 1024 elements, wherever rows begin.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard

BLOCK_SIZE = 1024


@triton.jit
def _swiglu_forward_kernel(
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

    activated = gate * tl.sigmoid(gate)
    y = activated * up

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _swiglu_backward_kernel(
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

    sigmoid = tl.sigmoid(gate)
    activated = gate * sigmoid
    dup = dy * activated
    dactivated = dy * up
    dgate = dactivated * sigmoid * (1.0 + gate * (1.0 - sigmoid))

    if NEEDS_DUP:
        tl.store(dup_ptr + offsets, dup, mask=mask)
    if NEEDS_DGATE:
        tl.store(dgate_ptr + offsets, dgate, mask=mask)


def swiglu_forward(gate, up):
    """Returns y, gate, up."""
    check_floating(gate=gate, up=up)
    check_shape("up", up, gate.shape)
    gate = gate.contiguous()
    up = up.contiguous()
    n_elements = gate.numel()
    y = torch.empty_like(gate, dtype=torch.promote_types(gate.dtype, up.dtype))
    with device_guard(gate.device):
        _swiglu_forward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            gate, up, y, n_elements, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return y, gate, up


def swiglu_backward(dy, gate, up, needs_dgate=True, needs_dup=True):
    """Returns dgate, dup."""
    dy = dy.contiguous()
    n_elements = dy.numel()
    dgate = torch.empty_like(gate) if needs_dgate else None
    dup = torch.empty_like(up) if needs_dup else None
    with device_guard(dy.device):
        _swiglu_backward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
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


class LigerSwigluFunction(torch.autograd.Function):
    """y = swiglu(gate, up)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        gate: (B, T, H).
        up: (B, T, H).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, gate, up):
        y, gate, up = swiglu_forward(gate, up)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = swiglu_backward(
            dy, gate, up, needs_dgate=ctx.needs_input_grad[0], needs_dup=ctx.needs_input_grad[1]
        )
        return dgate, dup
