"""An exported program in, the same program without `torch.no_grad()` blocks out: what they give is detached."""

import operator

from typing import Any

import torch


def inline_blocks(program: Any) -> None:
    """Puts the operations of each block in its place, in the program's own graph."""
    module = program.graph_module
    for node in list(module.graph.nodes):
        if getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled":
            _inline(module, node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _inline(module: torch.fx.GraphModule, block: torch.fx.Node) -> None:
    enabled, inner, *given = block.args
    graph = getattr(module, inner.target).graph  # type: ignore[union-attr, arg-type]
    copies: dict[torch.fx.Node, Any] = dict(zip((n for n in graph.nodes if n.op == "placeholder"), given))
    with module.graph.inserting_before(block):
        for node in graph.nodes:
            if node.op not in ("placeholder", "output"):
                copies[node] = module.graph.node_copy(node, copies.__getitem__)
        (results,) = next(node for node in graph.nodes if node.op == "output").args
        made = [copies[node] if enabled else _detached(module.graph, copies[node]) for node in results]
    for user in list(block.users):
        position = user.args[1]
        assert user.target is operator.getitem and isinstance(position, int), "a block gives a tuple"
        user.replace_all_uses_with(made[position])
        module.graph.erase_node(user)
    module.graph.erase_node(block)


def _detached(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    detached = graph.call_function(torch.ops.aten.detach.default, (node,))
    detached.meta.update(node.meta)
    return detached
