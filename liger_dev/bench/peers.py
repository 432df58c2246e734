"""A catalogue operation's name in, liger-kernel's own op with the reference's arguments out: the strongest baseline."""

import importlib

from collections.abc import Callable
from typing import Any

# What a reference calls its arguments, and what liger-kernel's public functions make of them. Constants that a function
# of liger-kernel does not default to are those of the catalogue. Its own defaults are kept where both agree, also
# `in_place=True`, with which a backward overwrites the gradient that it was given.
_CALLS: dict[str, Callable[..., Any]] = {
    "cross_entropy": lambda peer, logits, target: peer.liger_cross_entropy(logits, target),
    "dyt": lambda peer, x, alpha, gamma, beta: peer.liger_dyt(x, alpha, gamma, beta),
    "fused_add_rms_norm": lambda peer, x, residual, weight, eps=1e-6: peer.liger_fused_add_rms_norm(
        x, residual, weight, eps
    ),
    "geglu": lambda peer, gate, up: peer.liger_geglu(gate, up),
    "gemma_rms_norm": lambda peer, x, weight, eps=1e-6: peer.liger_rms_norm(x, weight, eps, 1.0, "gemma"),
    "layer_norm": lambda peer, x, weight, bias, eps=1e-5: peer.liger_layer_norm(x, weight, bias, eps),
    "modulated_rms_norm": lambda peer, x, weight, scale, eps=1e-6: peer.liger_modulated_rms_norm(
        x, weight, scale, None, eps, casting_mode="gemma"
    ),
    "relu_squared": lambda peer, x: peer.liger_relu_squared(x),
    "rms_norm": lambda peer, x, weight, eps=1e-6, offset=0.0: peer.liger_rms_norm(x, weight, eps, offset),
    "softmax": lambda peer, x: peer.liger_softmax(x),
    "swiglu": lambda peer, gate, up: peer.liger_swiglu(gate, up),
}


def has_peer(name: str) -> bool:
    """Whether liger-kernel has an op that computes what the catalogue's reference of that name computes."""
    return name in _CALLS


def liger_kernel_op(name: str) -> Callable[..., Any] | None:
    """liger-kernel's op with the arguments of the reference `name`; None where liger-kernel is not installed."""
    try:
        peer = importlib.import_module("liger_kernel.transformers.functional")
    except ImportError:
        return None
    call = _CALLS[name]

    def liger_kernel(*inputs: Any) -> Any:
        return call(peer, *inputs)

    return liger_kernel
