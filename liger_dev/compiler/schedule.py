"""A Plan in, the specifications of the kernels out: what each loads, stores and accumulates."""

from dataclasses import dataclass

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.naming import suggest
from liger_dev.compiler.naming import unique
from liger_dev.compiler.partition import Layout
from liger_dev.compiler.partition import Plan


@dataclass(frozen=True)
class Store:
    """A value that a kernel writes to `NAME_ptr`, only if the constexpr `guard` holds (empty: always)."""

    name: str
    value: Value
    guard: str = ""


@dataclass(frozen=True)
class Accumulator:
    """A sum over rows: each program keeps its part in float32 and writes it to `NAME_partial_ptr`."""

    name: str
    value: Value
    guard: str = ""


@dataclass(frozen=True)
class KernelSpec:
    """One kernel. `loads` maps values to the names of their pointers; a persistent kernel strides over rows."""

    name: str
    layout: Layout
    loads: dict[Value, str]
    stores: tuple[Store, ...]
    accumulators: tuple[Accumulator, ...]
    optional: dict[Value, float]

    @property
    def persistent(self) -> bool:
        return bool(self.accumulators)


def name_saved(graph: Graph, plan: Plan) -> dict[Value, str]:
    """A name for each saved value, also for those that the reference left unnamed (the names are kept)."""
    for value in plan.saved:
        if value not in graph.names:
            graph.names[value] = unique(suggest(value, graph.names), set(graph.names.values()))
    return {value: graph.names[value] for value in plan.saved}


def forward_kernel(graph: Graph, plan: Plan, operation: str) -> KernelSpec:
    """Loads inputs; stores outputs and what backward wants beside them."""
    saved = name_saved(graph, plan)
    outputs = {output.value for output in graph.outputs}
    extra = [Store(name, value) for value, name in saved.items() if value.op != "input" and value not in outputs]
    stores = [*(Store(output.name, output.value) for output in graph.outputs), *extra]
    loads = {item.value: item.name for item in graph.inputs}
    return KernelSpec(f"_{operation}_forward_kernel", plan.layout, loads, tuple(stores), (), _optional(graph))


def backward_kernel(graph: Graph, plan: Plan, operation: str) -> KernelSpec:
    """Loads upstream gradients and what was saved; stores gradients, one guard each when there are several."""
    saved = name_saved(graph, plan)
    names = _output_names(graph)
    needed = {graph.names[v]: v for v in graph.walk(graph.gradients.values(), plan.saved) if _is_upstream(graph, v)}
    upstream = {needed[name]: name for o in graph.outputs if (name := f"d{o.name}") in needed}
    loads = {**upstream, **{value: names.get(value, name) for value, name in saved.items()}}
    distinct = dict.fromkeys(graph.gradients.values())
    stores: list[Store] = []
    accumulators: list[Accumulator] = []
    for value in distinct:
        owners = [name for name, gradient in graph.gradients.items() if gradient is value]
        guard = f"NEEDS_D{owners[0].upper()}" if len(distinct) > 1 else ""
        if value.op == "sum" and set(value.attr("over")) & set(plan.layout.rows):
            accumulators.append(Accumulator(f"d{owners[0]}", value, guard))
        else:
            stores.append(Store(f"d{owners[0]}", value, guard))
    return KernelSpec(
        f"_{operation}_backward_kernel", plan.layout, loads, tuple(stores), tuple(accumulators), _optional(graph)
    )


def _is_upstream(graph: Graph, value: Value) -> bool:
    return value.op == "input" and value not in {item.value for item in graph.inputs}


def _output_names(graph: Graph) -> dict[Value, str]:
    return {output.value: output.name for output in graph.outputs}


def _optional(graph: Graph) -> dict[Value, float]:
    return {item.value: item.neutral for item in graph.inputs if item.optional and item.neutral is not None}
