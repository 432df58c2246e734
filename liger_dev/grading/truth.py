"""A reference and inputs in, its outcome in eager PyTorch and the truth in float64 out, with what float32 noise does to it."""

import math

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torch._decomp import get_decompositions
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

LOW = (torch.float32, torch.bfloat16, torch.float16)
NOISY_RUNS = 6
# Operations with a reduction inside: what rounding does in there, noise on the result does not show, where it cancels.
_COMPOSITES = get_decompositions(
    [
        torch.ops.aten._softmax,
        torch.ops.aten._softmax_backward_data,
        torch.ops.aten._log_softmax,
        torch.ops.aten._log_softmax_backward_data,
        torch.ops.aten.logsumexp,
        torch.ops.aten.native_layer_norm,
        torch.ops.aten.native_layer_norm_backward,
        torch.ops.aten.native_group_norm,
        torch.ops.aten.native_group_norm_backward,
    ]
)
_SUMS = (torch.ops.aten.sum, torch.ops.aten.mean)
# What picks a value rounds nothing, and backward looks for that very value again.
_PICKS = (torch.ops.aten.amax, torch.ops.aten.amin, torch.ops.aten.max, torch.ops.aten.min)

Tensors = dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class Outcome:
    """Outputs by position, gradients by the name of their input; None for a gradient that autograd does not give."""

    outputs: tuple[torch.Tensor, ...]
    gradients: Tensors


class _Double(TorchFunctionMode):
    """Every cast to a low precision, and every tensor made in one, is of float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            return args[0].double()
        kwargs = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*(_wide(value) for value in args), **kwargs)


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in LOW else value


class _Noise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What an operation computes in float64 is off by up to half a unit in the last place of float32.

    So are the parts of composite operations, and the terms of a sum: of n terms, each is in log2(n) partial sums that
    are rounded one by one, if halves are added up.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _COMPOSITES:
            with self:
                return _COMPOSITES[func](*args, **(kwargs or {}))
        if func.overloadpacket in _SUMS:
            sums = func(*args, **(kwargs or {})).numel()
            roundings = math.log2(max(2, args[0].numel() / max(1, sums)))
            args = (_perturbed(args[0], math.sqrt(roundings)), *args[1:])
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _PICKS or any(value.alias_info is not None for value in func._schema.returns):
            return result
        return tree_map_only(torch.Tensor, _perturbed, result)


def _perturbed(x: torch.Tensor, times: float = 1.0) -> torch.Tensor:
    if x.dtype != torch.float64:
        return x
    return x * (1 + times * torch.finfo(torch.float32).eps / 2 * (2 * torch.rand_like(x) - 1))


def in_float64(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference with all its arithmetic in float64, its explicit casts to less included."""

    def truth(*args: Any, **kwargs: Any) -> Any:
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _Double():
                return reference(*args, **kwargs)
        finally:
            torch.set_default_dtype(default)

    return truth


def double(x: torch.Tensor | None) -> torch.Tensor | None:
    return x.double() if x is not None and x.is_floating_point() else x


def outcome(
    function: Callable[..., Any],
    inputs: Tensors,
    scalars: Mapping[str, Any],
    upstream: Tensors,
    wanted: tuple[str, ...],
    alias: Any,
) -> Outcome:
    """Calls `function` by keyword and differentiates it with respect to the inputs named in `wanted`."""
    leaves = {name: None if x is None else x.detach().requires_grad_(name in wanted) for name, x in inputs.items()}
    if alias:
        leaves[alias[0]] = leaves[alias[1]]
    outputs = as_tuple(function(**leaves, **scalars))
    ends = [
        (y, upstream[str(i)]) for i, y in enumerate(outputs) if y.requires_grad and upstream.get(str(i)) is not None
    ]
    names = [name for name in wanted if leaves[name] is not None]
    if not names or not ends:
        return Outcome(outputs, dict.fromkeys(names))
    ys, dys = zip(*ends)
    found = torch.autograd.grad(ys, [leaves[name] for name in names], dys, allow_unused=True)  # type: ignore[arg-type]
    return Outcome(outputs, dict(zip(names, found)))


def as_tuple(outputs: Any) -> tuple[torch.Tensor, ...]:
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def noise(found: Callable[[], Outcome], truth: Outcome) -> dict[str, float]:
    """The largest error that noise of float32 makes, for each tensor of `flat`."""
    worst: dict[str, float] = {}
    wanted = flat(truth)
    for _ in range(NOISY_RUNS):
        with _Noise():  # type: ignore[no-untyped-call]
            noisy = flat(found())
        for name, x in noisy.items():
            true = wanted[name]
            if x is None or true is None or not true.is_floating_point():
                continue
            error = torch.where(torch.isfinite(true) & torch.isfinite(x), x - true, 0).abs()
            worst[name] = max(worst.get(name, 0.0), error.max().item() if error.numel() else 0.0)
    return worst


def flat(outcome: Outcome) -> Tensors:
    """All tensors of an outcome under the names that verdicts give them."""
    outputs = {f"output {index}": y.detach() for index, y in enumerate(outcome.outputs)}
    return {**outputs, **{f"gradient of {name}": dx for name, dx in outcome.gradients.items()}}
