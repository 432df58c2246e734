"""A differentiated graph and its reference in, agreement in float64 out: the trace and the gradients are checked before
anything is emitted from them."""

import math

from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from torch.overrides import TorchFunctionMode

from liger_dev.axes import extent
from liger_dev.axes import named
from liger_dev.compiler.demands import divisors
from liger_dev.compiler.demands import least_sizes
from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.evaluate import laid_out
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import read_axes
from liger_dev.compiler.slices import output_slices
from liger_dev.errors import Unsupported
from liger_dev.records import Reference
from liger_dev.records import Tensor

_TOLERANCE = 1e-9


class InFloat64(TorchFunctionMode):
    """Runs a reference in float64 throughout: its casts to float32 become casts to float64, and so do its constants."""

    def __enter__(self) -> "InFloat64":
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self._default)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {key: _wide(value) for key, value in (kwargs or {}).items()}
        if func is torch.Tensor.float:
            return args[0].double()
        return func(*(_wide(arg) for arg in args), **kwargs)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def verify(graph: Graph, reference: Reference, fn: Callable[..., Any]) -> None:
    """Compares outputs and gradients of the graph with autograd's on random inputs, and notes which inputs autograd
    reaches: at the scalars' defaults, and with each number negated and each flag turned, where the reference takes that
    and the graph is not for one value alone. Numbers that the reference takes for something else when they are negative,
    but not when they are zero, are noted in the graph.

    Raises:
        Unsupported: they differ (a scalar steers control flow, say), or every gradient is zero.
    """
    usual = _usual(reference)
    _verify_at(graph, reference, fn, usual, "")
    _verify_at_other_sizes(graph, reference, fn, usual)
    for scalar in reference.scalars:
        value = usual[scalar.name]
        if isinstance(value, bool | float) and not scalar.choices:
            other = not value if isinstance(value, bool) else -value - 0.5
            try:
                _verify_at(graph, reference, fn, {**usual, scalar.name: other}, f" at {scalar.name}={other}")
            except (ValueError, RuntimeError):
                pass  # the reference itself refuses that value
            except Unsupported:
                if isinstance(value, bool) or value < 0:
                    raise
                for other in (value / 2 + 0.1, 0.0):
                    _verify_at(graph, reference, fn, {**usual, scalar.name: other}, f" at {scalar.name}={other}")
                graph.at_least_zero.append(scalar.name)


def _usual(reference: Reference) -> dict[str, Any]:
    """The scalars' defaults; some number for those that have none."""
    return {s.name: 0.7182818 if s.default is None and s.type == "float" else s.default for s in reference.scalars}


# Sizes in no relation to those of the trace, nor to one another.
_OTHER_SIZES = (5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)


def _verify_at_other_sizes(graph: Graph, reference: Reference, fn: Callable[..., Any], scalars: dict[str, Any]) -> None:
    """A trace may have taken a size for a number, or for another size that it is only equal to there."""
    for resized in _resized(graph, reference, scalars):
        generator = torch.Generator().manual_seed(21)
        tensors = {t.name: _random(resized, t, generator) for t in reference.tensors}
        try:
            with torch.no_grad(), InFloat64():
                fn(**tensors, **scalars)
        except (ValueError, RuntimeError, IndexError, AssertionError, ZeroDivisionError):
            continue  # the reference itself refuses them
        try:
            _verify_at(resized, reference, fn, scalars, " at other sizes")
        except (RuntimeError, ValueError) as error:
            raise Unsupported(
                f"the traced graph does not fit other sizes than {_sizes_text(graph, reference)}", reference.name
            ) from error
        return


def _resized(graph: Graph, reference: Reference, scalars: dict[str, Any]) -> Iterator[Graph]:
    """The graph with the reference's axes at other sizes: unrelated ones, as far as parts allow, or all twice as long."""
    axes = [axis for axis in named(reference.tensors) if axis in graph.extents]
    parts, least = divisors(graph, reference), least_sizes(graph)
    for numbers in (_OTHER_SIZES, sorted(_OTHER_SIZES), sorted(_OTHER_SIZES, reverse=True)):
        sizes = {}
        for axis, number in zip(axes, numbers):
            part = parts.get(axis, 1)
            sizes[axis] = part * max(number, -(-(least.get(axis, 0) + 3) // part))
        yield _at_sizes(graph, reference, scalars, sizes)
    yield _at_sizes(graph, reference, scalars, {axis: 2 * graph.extents[axis] for axis in axes})


def _at_sizes(graph: Graph, reference: Reference, scalars: dict[str, Any], sizes: dict[str, int]) -> Graph:
    shapes = {t.name: SimpleNamespace(shape=tuple(extent(a, sizes) for a in t.shape)) for t in reference.tensors}
    known = {axis: n for axis, n in graph.extents.items() if axis in graph.sizes}
    extents = {axis: eval(graph.sizes[axis], {"max": max, "__builtins__": {}}, {**shapes, **scalars}) for axis in known}
    return replace(graph, extents={**graph.extents, **extents})


def _sizes_text(graph: Graph, reference: Reference) -> str:
    return ", ".join(f"{axis}={graph.extents[axis]}" for axis in named(reference.tensors) if axis in graph.extents)


def counts(graph: Graph, reference: Reference, fn: Callable[..., Any]) -> dict[str, bool]:
    """The integer arguments that are taken for the size of an axis (a number of groups), and whether they are: the graph
    agrees with the reference at another number too."""
    usual = _usual(reference)
    static = {s.name for s in reference.scalars if s.choices}
    proven = {}
    for axis, name in graph.sizes.items():
        if name in static:
            proven[name] = False
        elif name in usual:
            other = graph.extents[axis] + 1
            varied = replace(graph, extents={**graph.extents, axis: other})
            try:
                _verify_at(varied, reference, fn, {**usual, name: other}, f" at {name}={other}")
                proven[name] = True
            except (ValueError, RuntimeError, Unsupported):
                proven[name] = False
    return proven


def _verify_at(
    graph: Graph, reference: Reference, fn: Callable[..., Any], scalars: dict[str, Any], setting: str
) -> None:
    generator = torch.Generator().manual_seed(20)
    sizes = {axis: extent for axis, extent in graph.extents.items() if axis in graph.sizes}
    tensors = {t.name: _random(graph, t, generator) for t in reference.tensors}
    with InFloat64():
        results = fn(**tensors, **scalars)
    outputs = list(results) if isinstance(results, tuple | list) else [results]
    upstream = [
        torch.randn(out.shape, generator=generator, dtype=torch.float64) if out.requires_grad else None
        for out in outputs
    ]
    names = list(dict.fromkeys(name for name, _ in graph.gradients))
    differentiable = [(out, d) for out, d in zip(outputs, upstream) if d is not None]
    if not differentiable and any(out.is_floating_point() for out in outputs):
        raise Unsupported("no output of the reference has a gradient", reference.name)
    found = (
        torch.autograd.grad(
            [out for out, _ in differentiable],
            [tensors[name] for name in names],
            [d for _, d in differentiable],
            allow_unused=True,
        )
        if differentiable
        else (None,) * len(names)
    )
    graph.reached.update(name for name, g in zip(names, found) if g is not None)
    gradients = {name: torch.zeros_like(tensors[name]) if g is None else g for name, g in zip(names, found)}
    known = {**tensors, **{f"d{o.name}": d for o, d in zip(graph.outputs, upstream) if d is not None}}
    expected = {f"{o.name}": out.detach() for o, out in zip(graph.outputs, outputs)}
    roots = [(o.name, cut, value) for o in graph.outputs for cut, value in output_slices(o)]
    roots += [(f"d{name}", cut, value) for (name, cut), value in graph.gradients.items()]
    expected |= {f"d{name}": g for name, g in gradients.items()}
    values = [value for _, _, value in roots]
    leaves = {v: _leaf(graph, v, known, sizes) for v in graph.walk(values) if v.op == "input"}
    for (name, cut, value), got in zip(roots, evaluate(graph, values, leaves, scalars, sizes)):
        if any(piece.at for _, piece in cut):
            got, cut = _scattered(graph, name, got, cut, tensors, sizes), tuple(s for s in cut if not s[1].at)
        want = laid_out(expected[name], graph.dims_of(name), cut, sizes)
        _compare(reference, graph, name + setting, value, got, want)
    if not setting and differentiable and all(float(g.abs().max()) < _TOLERANCE for g in gradients.values()):
        raise Unsupported(
            "every gradient of the reference is zero", reference.name, "a kernel needs something to learn from"
        )


def _compare(
    reference: Reference, graph: Graph, name: str, value: Value, got: torch.Tensor, want: torch.Tensor
) -> None:
    if want.dtype == torch.bool:
        got, want = got.double(), want.double()
    got = got.expand_as(want)
    same = (got == want) | (got.isnan() & want.isnan())
    error = float(torch.where(same, 0.0, (got - want).abs()).max())
    scale = max(1.0, float(torch.where(want.isfinite(), want.abs(), 0.0).max()))
    if not error <= _TOLERANCE * scale:
        sizes = "; in it the size of " + ", ".join(graph.fixed) + " is a number" if graph.fixed else ""
        raise Unsupported(
            f"the traced graph does not compute what the reference does: {name} differs by {error:.2g}{sizes}",
            f"{reference.name}, {graph.lines.get(value, name)}",
            "use sizes in plain arithmetic alone: math.log(x.shape[-1]) is a number, and so is int(x.shape[-1])"
            if graph.fixed
            else "look for arguments that steer control flow; give each of their values a reference of its own",
        )


def _leaf(graph: Graph, value: Value, known: dict[str, torch.Tensor], sizes: dict[str, int]) -> torch.Tensor:
    name = value.attr("name")
    return laid_out(known[name].detach(), graph.dims_of(name), value.attr("slices"), sizes, known)


def _scattered(
    graph: Graph, name: str, rows: torch.Tensor, cut: Slices, tensors: dict[str, torch.Tensor], sizes: dict[str, int]
) -> torch.Tensor:
    """The gradient of a table from those of the rows that were looked up in it."""
    dims, order = graph.dims_of(name), list(sizes)
    position, piece = Slice.counted(cut)
    rest = tuple(axis for axis in read_axes(dims, cut) if axis not in piece.axes)
    wanted = [order.index(axis) for axis in (*piece.axes, *rest)]
    full = rows.expand([n if axis in (*piece.axes, *rest) else 1 for axis, n in sizes.items()])
    flat = full.permute([*wanted, *(i for i in range(len(order)) if i not in wanted)])
    index = tensors[piece.at].reshape(-1)
    table = torch.zeros(sizes[dims[position][0]], *(sizes[axis] for axis in rest), dtype=torch.float64)
    kept = (index != piece.skip).double().reshape(-1, *[1] * len(rest))
    table.index_add_(0, index, flat.reshape(len(index), *table.shape[1:]) * kept)
    return laid_out(table, (dims[position], *((axis,) for axis in rest)), (), sizes)


def _random(graph: Graph, tensor: Tensor, generator: torch.Generator) -> torch.Tensor:
    dims = [math.prod(graph.extents[axis] for axis in dim) for dim in graph.dims_of(tensor.name)]
    if tensor.dtype == "bool":
        return torch.rand(dims, generator=generator) < 0.5
    if tensor.dtype == "int":
        # Numbers of no known range may be classes, of which there are two at least, or lengths.
        high = graph.extents.get(tensor.range, 3 if min(graph.extents.values()) > 2 else 2)
        return torch.randint(0, high, dims, generator=generator)
    return torch.randn(dims, generator=generator, dtype=torch.float64).requires_grad_()
