"""The compiler: a PyTorch reference in, the text of a Triton op with its backward out. No model, no disk, no network."""

import re
import tempfile

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from liger_dev.choices import Setting
from liger_dev.compiler.absorb import absorb_sums
from liger_dev.compiler.autodiff import differentiate
from liger_dev.compiler.autodiff import leaf_names
from liger_dev.compiler.autodiff import name_gradients
from liger_dev.compiler.backward import backward_launches
from liger_dev.compiler.describe import describe
from liger_dev.compiler.emit import emit_kernel
from liger_dev.compiler.expand import expand
from liger_dev.compiler.fused import fuse
from liger_dev.compiler.host import Host
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.lower import ROWS
from liger_dev.compiler.lower import lower
from liger_dev.compiler.lowering import Indivisible
from liger_dev.compiler.operation import operation_values
from liger_dev.compiler.optional import NoNeutral
from liger_dev.compiler.optional import find_neutrals
from liger_dev.compiler.options import Options
from liger_dev.compiler.partition import partition
from liger_dev.compiler.reserved import refuse_taken
from liger_dev.compiler.schedule import forward_launches
from liger_dev.compiler.simplify import simplify
from liger_dev.compiler.taken import dtypes_taken
from liger_dev.compiler.taken import least_taken
from liger_dev.compiler.taken import settle_dtypes
from liger_dev.compiler.thresholds import StillSorted
from liger_dev.compiler.thresholds import find_thresholds
from liger_dev.compiler.trace import axis_sizes
from liger_dev.compiler.trace import load_function
from liger_dev.compiler.trace import trace
from liger_dev.compiler.variants import Make
from liger_dev.compiler.variants import named_outputs
from liger_dev.compiler.variants import share_kernels
from liger_dev.compiler.variants import variants
from liger_dev.compiler.verify import counts
from liger_dev.compiler.verify import verify
from liger_dev.compiler.wide import widened
from liger_dev.errors import Unsupported
from liger_dev.records import Reference


@dataclass(frozen=True)
class CompiledOp:
    """`profile`: the facts for the kernel profile. `op`: the values that the op file's template lays out. `reference`: as
    it was given, with those choices of its arguments that can be compiled; `notes` say why others can't be."""

    profile: dict[str, Any]
    op: dict[str, Any]
    reference: Reference
    notes: tuple[str, ...] = ()


def compile_op(reference: Reference, options: dict[str, Any]) -> CompiledOp:
    """Compiles a reference.

    Raises:
        Unsupported: an operation, a layout or a gradient is not expressible; node, source line and reason are named.
        ProfileRefused: an option can't be honoured.
    """
    refuse_taken(reference)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder).resolve()
        fn, path, chosen = load_function(reference, source), source / f"{reference.name}.py", Options.from_json(options)
        fused = chosen.saved is None and all(len(scalar.choices) < 2 for scalar in reference.scalars)

        def make(own: Reference, names: tuple[str, ...]) -> Host:
            return scheduled(own, _differentiated(own, fn, path, names), chosen, fused)

        narrowed, hosts, notes = _with_optional(reference, make)
        shared = share_kernels(hosts)
        dtypes = dtypes_taken(fn, narrowed, shared[0][1].graph.extents)
    return CompiledOp(describe(shared[0][1], dtypes), operation_values(shared, dtypes), narrowed, tuple(notes))


def _with_optional(reference: Reference, make: Make) -> tuple[Reference, list[tuple[Setting, Host]], list[str]]:
    """The variants of a reference; an optional input that no number stands for is one that the op always takes."""
    try:
        return variants(reference, make)
    except NoNeutral as refusal:
        tensors = [replace(t, optional=t.optional and t.name != refusal.where) for t in reference.tensors]
        needed = replace(reference, tensors=tuple(sorted(tensors, key=lambda tensor: tensor.optional)))
        narrowed, hosts, notes = _with_optional(needed, make)
        return narrowed, hosts, [f"{refusal.where}=None is refused: {refusal.what}", *notes]


def _differentiated(reference: Reference, fn: Callable[..., Any], source: Path, names: tuple[str, ...]) -> Graph:
    """The graph for any integers; else, where the reference does with them what the compiler can't follow (`math.log(period)`),
    for their defaults alone."""
    try:
        return differentiated(reference, fn, source, names)
    except NoNeutral:
        raise
    except Unsupported:
        if not any(scalar.type == "int" and not scalar.choices for scalar in reference.scalars):
            raise
        try:
            return differentiated(reference, fn, source, names, numbers=True)
        except Unsupported:
            pass
        raise


def differentiated(
    reference: Reference, fn: Callable[..., Any], source: Path, names: tuple[str, ...] = (), numbers: bool = False
) -> Graph:
    """The graph of outputs (called `names`, if there are any) and gradients, simplified and checked against the reference.
    Integer arguments are `numbers`, those of their defaults, or any."""
    graph = Graph()

    def lowered(
        absent: frozenset[str] = frozenset(), parts: Mapping[str, int] = MappingProxyType({}), searching: bool = False
    ) -> list[Output]:
        fresh = not graph.inputs
        try:
            traced = trace(fn, reference, source, absent, ROWS, parts, numbers)
            return find_thresholds(graph, lower(graph, traced, reference, searching))
        except Indivisible as refusal:
            if refusal.axis not in axis_sizes(reference) or parts:
                raise Unsupported(refusal.what, refusal.where, refusal.todo) from refusal
            parts = {refusal.axis: refusal.parts}
        except StillSorted as refusal:
            if searching:
                raise Unsupported(refusal.what, refusal.where, refusal.todo) from refusal
            searching = True
        if fresh:
            graph.inputs.clear()
            graph.names.clear()
        return lowered(absent, parts, searching)

    graph.outputs[:] = lowered()
    settle_dtypes(fn, reference, graph)
    named_outputs(graph, names)
    leaf_names(graph)
    find_neutrals(graph, lambda name: lowered(frozenset({name})))
    differentiate(graph, [tensor.name for tensor in reference.tensors if tensor.dtype == "float"])
    simplify(graph)
    absorb_sums(graph)
    verify(graph, reference, fn)
    _settle_counts(graph, reference, fn)
    expand(graph)
    name_gradients(graph)
    graph.least.update(least_taken(fn, reference, graph))
    graph.check()
    return graph


def _settle_counts(graph: Graph, reference: Reference, fn: Callable[..., Any]) -> None:
    """Sizes that merely have an argument's value become that number; the argument is then refused at other values."""
    for name, proven in counts(graph, reference, fn).items():
        if not proven:
            number = next(str(s.default) for s in reference.scalars if s.name == name)
            for axis, size in graph.sizes.items():
                graph.sizes[axis] = re.sub(rf"\b{name}\b", number, size)


def scheduled(reference: Reference, graph: Graph, options: Options, fused: bool = True) -> Host:
    """Plan, kernels and their text; `fused`: forward may make the gradients of a loss."""
    plan = partition(graph, options.saved)
    plan = fuse(graph, plan) if fused else plan
    forward = forward_launches(graph, plan, reference.name)
    if not plan.fused and not options.block_cols:
        forward = [widened(graph, launch) for launch in forward]
    backward = [] if plan.fused else backward_launches(graph, plan, reference.name)
    specs = [
        spec
        for launches in (forward, backward)
        for pick in ((lambda launch: (launch.single,) if launch.single else ()), lambda launch: launch.looped)
        for launch in launches
        for spec in pick(launch)
    ]
    texts = {spec.name: emit_kernel(graph, spec) for spec in specs}
    return Host(reference, graph, plan, options, tuple(forward), tuple(backward), texts)
