"""What picks elements by index, and which indices the wrappers refuse, from references' sources."""

import pytest

from compiler_cases import op_graph

from liger_dev.compiler.picks import index_checks
from liger_dev.compiler.shapes import Shapes

SIGNATURE = "x: torch.Tensor, target: torch.LongTensor, ignored: int = -100"
CHECK = 'check_index("target", target, x.shape[-1]'


@pytest.mark.parametrize(
    "body, wanted",
    [
        ("return x.gather(-1, target[:, None]).squeeze(-1)", [f"{CHECK})"]),
        ("return F.cross_entropy(x, target)", [f"{CHECK}, target != -100)"]),
        (
            "kept = target != ignored\nlabel = torch.where(kept, target, 0)\n"
            "return x.gather(-1, label[:, None]).squeeze(-1) * kept",
            [f"{CHECK}, target != ignored)"],
        ),
        (
            "kept = (target >= 0) & (target != ignored)\nlabel = torch.where(kept, target, 0)\n"
            "return x.gather(-1, label[:, None]).squeeze(-1) * kept",
            [f"{CHECK}, (target >= 0) & (target != ignored))"],
        ),
        # One pick leaves out what the other one does not.
        (
            "chosen = (F.one_hot(target, x.size(1)) * x.softmax(-1)).sum(-1)\n"
            'return F.cross_entropy(x, target, reduction="none") - chosen',
            [f"{CHECK})"],
        ),
        # Not what a tensor is picked by: any number will do.
        ("return torch.where(target[:, None] == 0, x, 0.0)", []),
        # In range whatever it is given.
        ("return x.gather(-1, target.clamp(0, 1)[:, None]).squeeze(-1)", []),
    ],
)
def test_indices_are_refused_outside_of_what_they_pick_from(body, wanted):
    graph = op_graph(SIGNATURE, body, x=("N", "V"), target=("N",))
    assert index_checks(graph, Shapes(graph, {item.name: item.dims for item in graph.inputs}), (), {}) == wanted
