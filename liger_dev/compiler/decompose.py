"""An exported program in, the same program in operations that have rows out: only what has none is decomposed.

torch's decompositions compute in float32 and cast around that. Those casts are no roundings that the reference asked
for, so they are taken out again; casts that the reference wrote stay.
"""

from collections.abc import Collection
from typing import Any

import torch

from liger_dev.compiler.inlining import inline_blocks

_CASTS = ("aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default")
_ROUNDS = 4  # a decomposition may use operations that have to be decomposed again


def decompose(program: Any, rows: Collection[str]) -> Any:
    """Functionalises in-place operations and decomposes those whose names are not in `rows`, where torch can. If that
    ends in operations without rows, nothing is decomposed: a refusal names what the reference calls."""
    inline_blocks(program)
    table = torch.export.default_decompositions()
    if any(target._schema.is_mutable for target in _unknown(program, rows)):
        program = program.run_decompositions({})
    start, without_row = program, _unknown(program, rows)
    for _ in range(_ROUNDS):
        chosen = {target: table[target] for target in _unknown(program, rows) if target in table}
        if not chosen:
            break
        program = program.run_decompositions(chosen)
        _drop_casts(program.graph, {str(target) for target in chosen})
    return start if _unknown(program, rows) - without_row else program


def _unknown(program: Any, rows: Collection[str]) -> set[Any]:
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    return {t for t in targets if isinstance(t, torch._ops.OpOverload) and str(t) not in rows}


def _drop_casts(graph: torch.fx.Graph, decomposed: set[str]) -> None:
    """Removes float casts inside decompositions; what they computed in float32 counts as the type that they began in."""
    for node in list(graph.nodes):
        # By name: the operation that a node's meta data hold is a copy.
        if str(node.meta.get("original_aten")) not in decomposed or not _is_floating(node):
            continue
        sources = [arg for arg in node.all_input_nodes if _is_floating(arg)]
        if str(node.target) in _CASTS and sources:
            node.replace_all_uses_with(sources[0])
            graph.erase_node(node)
        elif sources and node.meta["val"].dtype == torch.float32:
            types = {arg.meta["val"].dtype for arg in sources}
            if len(types) == 1:
                node.meta["val"] = node.meta["val"].to(*types)


def _is_floating(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()
