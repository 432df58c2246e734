"""A differentiated graph and its reference in, agreement in float64 out: the trace and the gradients are checked before
anything is emitted from them."""

from collections.abc import Callable
from typing import Any

import torch

from torch.overrides import TorchFunctionMode

from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.evaluate import laid_out
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.trace import axis_sizes
from liger_dev.errors import Unsupported
from liger_dev.records import Reference

_TOLERANCE = 1e-9


class InFloat64(TorchFunctionMode):
    """Runs a reference in float64 throughout: its casts to float32 become casts to float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {key: _wide(value) for key, value in (kwargs or {}).items()}
        if func is torch.Tensor.float:
            return args[0].double()
        return func(*(_wide(arg) for arg in args), **kwargs)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def verify(graph: Graph, reference: Reference, fn: Callable[..., Any]) -> None:
    """Compares outputs and gradients of the graph with autograd's on random inputs: at the scalars' defaults, and with
    each number negated and each flag turned, where the reference takes that.

    Raises:
        Unsupported: they differ (a scalar steers control flow, say), or every gradient is zero.
    """
    usual = {s.name: 0.7182818 if s.default is None and s.type == "float" else s.default for s in reference.scalars}
    _verify_at(graph, reference, fn, usual, "")
    for scalar in reference.scalars:
        value = usual[scalar.name]
        if isinstance(value, bool | float):
            other = not value if isinstance(value, bool) else -value - 0.5
            try:
                _verify_at(graph, reference, fn, {**usual, scalar.name: other}, f" at {scalar.name}={other}")
            except (ValueError, RuntimeError):
                pass  # the reference itself refuses that value


def _verify_at(
    graph: Graph, reference: Reference, fn: Callable[..., Any], scalars: dict[str, Any], setting: str
) -> None:
    generator = torch.Generator().manual_seed(20)
    sizes = axis_sizes(reference)
    tensors = {t.name: _random(t.shape, t.dtype, sizes, generator) for t in reference.tensors}
    with InFloat64():
        results = fn(**tensors, **scalars)
    outputs = list(results) if isinstance(results, tuple | list) else [results]
    upstream = [torch.randn(out.shape, generator=generator, dtype=torch.float64) for out in outputs]
    wanted = [tensors[name] for name in graph.gradients]
    gradients = torch.autograd.grad(outputs, wanted, upstream, allow_unused=True)
    laid = {i.name: laid_out(tensors[i.name].detach(), i.dims, sizes) for i in graph.inputs}
    laid |= {f"d{o.name}": laid_out(d, o.dims, sizes) for o, d in zip(graph.outputs, upstream)}
    values = [*(o.value for o in graph.outputs), *graph.gradients.values()]
    found = evaluate(graph, values, laid, scalars, sizes)
    dims = [*(o.dims for o in graph.outputs), *(_dims(graph, name) for name in graph.gradients)]
    expected = [
        *(o.detach() for o in outputs),
        *(torch.zeros_like(w) if g is None else g for g, w in zip(gradients, wanted)),
    ]
    names = [*(o.name for o in graph.outputs), *(f"d{name}" for name in graph.gradients)]
    for name, value, got, want, axes in zip(names, values, found, expected, dims):
        _compare(reference, graph, name + setting, value, got, laid_out(want, axes, sizes))
    if not setting and all(float(g.abs().max()) < _TOLERANCE for g in gradients if g is not None):
        raise Unsupported(
            "every gradient of the reference is zero", reference.name, "a kernel needs something to learn from"
        )


def _compare(
    reference: Reference, graph: Graph, name: str, value: Value, got: torch.Tensor, want: torch.Tensor
) -> None:
    got = got.expand_as(want)
    same = (got == want) | (got.isnan() & want.isnan())
    error = float(torch.where(same, 0.0, (got - want).abs()).max())
    scale = max(1.0, float(torch.where(want.isfinite(), want.abs(), 0.0).max()))
    if not error <= _TOLERANCE * scale:
        raise Unsupported(
            f"the traced graph does not compute what the reference does: {name} differs by {error:.2g}",
            f"{reference.name}, {graph.lines.get(value, name)}",
            "look for arguments that steer control flow; give each of their values a reference of its own",
        )


def _dims(graph: Graph, name: str) -> tuple[str | None, ...]:
    return next(item.dims for item in graph.inputs if item.name == name)


def _random(
    shape: tuple[str | int, ...], dtype: str, sizes: dict[str, int], generator: torch.Generator
) -> torch.Tensor:
    dims = [sizes[axis] if isinstance(axis, str) else axis for axis in shape]
    if dtype == "bool":
        return torch.rand(dims, generator=generator) < 0.5
    if dtype == "int":
        return torch.randint(0, 2, dims, generator=generator)
    return torch.randn(dims, generator=generator, dtype=torch.float64).requires_grad_()
