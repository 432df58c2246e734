"""A Plan in; the Plan whose forward makes the gradients too, where the only output is one total: a loss."""

from collections.abc import Iterable
from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import footprint
from liger_dev.compiler.partition import Fused
from liger_dev.compiler.partition import Plan
from liger_dev.compiler.staging import stage

# What the wrapper can compute of its inputs before the launch.
_BEFORE = {
    "input",
    "const",
    "param",
    "size",
    "sum",
    "float",
    "detach",
    "clamp_min",
    "add",
    "sub",
    "mul",
    "div",
    "neg",
} | {*("where", "eq", "ne", "lt", "le", "gt", "ge", "and", "or")}


def fuse(graph: Graph, plan: Plan) -> Plan:
    """The gradient of a total is the upstream gradient times what it is for 1, which needs no second look at the rows.

    Left as it is where a gradient is a sum over rows, or needs a total that is known only after forward's kernel.
    """
    if len(graph.outputs) != 1 or graph.outputs[0].value not in plan.host or graph.outputs[0].dims or not plan.cols:
        return plan
    gradients = [value for value in graph.gradients.values() if value.op != "const"]
    needed = graph.walk(gradients, plan.host)
    upstream = next((v for v in needed if v.op == "input" and v.attr("name") == f"d{graph.outputs[0].name}"), None)
    totals = tuple(v for v in needed if v in plan.host)
    inputs = _inputs(graph, gradients)
    plain = len(set(gradients)) == len(gradients) and not any(cut for _, cut in graph.gradients)
    if not plain or upstream is None or len(inputs) < len(graph.inputs):
        return plan
    if any(upstream in graph.walk([v.args[0]]) for v in needed if v.op == "xlogy"):
        return plan  # it is 0 for an upstream gradient of 0, also where for 1 it is NaN
    if (
        plan.kept
        or graph.zero_gradients
        or not _whole(graph, needed, plan)
        or not all(_before(graph, total, plan) for total in totals)
    ):
        return plan
    rows = [v.args[0] for v in plan.staging.totals if v not in totals]
    together = stage(graph, [*rows, *gradients], totals, frozenset())
    return replace(plan, staging=together, saved=inputs, recomputed=(), fused=Fused(upstream, totals))


def _inputs(graph: Graph, gradients: Iterable[Value]) -> tuple[Value, ...]:
    """One value of each tensor argument, in order."""
    found: dict[str, Value] = {}
    for value in graph.walk([*(o.value for o in graph.outputs), *gradients]):
        if value.op == "input":
            found.setdefault(value.attr("name"), value)
    return tuple(found[item.name] for item in graph.inputs if item.name in found)


def _whole(graph: Graph, needed: list[Value], plan: Plan) -> bool:
    """Whether one kernel goes over all rows: no sums over rows but the totals, and no value beyond a row's own axes."""
    sums = [v for v in needed if v.op in REDUCTIONS and v not in plan.host]
    if any(frozenset(v.attr("over")) != plan.cols for v in sums) or any(v.op == "cumsum" for v in needed):
        return False
    rows = [v.args[0] for v in graph.walk([graph.outputs[0].value]) if v.op == "sum" and v in plan.host]
    if any(v in plan.host for v in graph.walk(rows)):
        return False  # rows that depend on totals
    axes = max((footprint(graph, row) for row in rows), key=len)
    return plan.cols <= axes and all(v.axes <= axes for v in (*needed, *rows))


def _before(graph: Graph, total: Value, plan: Plan) -> bool:
    values = graph.walk([total])
    optional = {item.name for item in graph.inputs if item.optional}
    return all(v.op in _BEFORE and not v.axes & plan.cols for v in values) and not any(
        v.op == "input" and v.attr("name") in optional for v in values
    )
