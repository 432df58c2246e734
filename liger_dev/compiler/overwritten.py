"""A traced graph in, the same one without what is only written over out."""

import torch

_COPY = torch.ops.aten.copy.default
_FILLS = (torch.ops.aten.fill.Scalar, torch.ops.aten.fill.Tensor)


def forget_overwritten(graph: torch.fx.Graph) -> None:
    """Writes no longer read what they write over, so that what was made for that alone is gone."""
    writes = [node for node in graph.nodes if node.target in (_COPY, *_FILLS)]
    for node in writes:
        node.target, node.args = _COPY, (node.args[1], node.args[1])
    if writes:
        graph.eliminate_dead_code()
