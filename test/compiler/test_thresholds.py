"""Numbers read off sorted rows: recognised by what they are, however they are written; anything else is refused."""

import pytest

from compiler_cases import op_graph

from liger_dev.compiler.layout import WHOLE_ROW
from liger_dev.errors import LigerDevError

SORTED = "ordered = torch.sort(x, dim=-1, descending=True).values\nrank = torch.arange(1, x.shape[-1] + 1)\n"


def thresholds(body):
    """The operations that a graph finds thresholds with; making it compares outputs and gradients with autograd's."""
    made = op_graph("x: torch.Tensor", body, x=("B", "H"))
    values = made.walk([made.outputs[0].value])
    assert "sort" not in {v.op for v in values}
    return [(v.op, dict(v.attrs).get("k", dict(v.attrs).get("total"))) for v in values if v.op in WHOLE_ROW]


@pytest.mark.parametrize(
    "body, found",
    [
        (
            "kept = 1 + rank * ordered > ordered.cumsum(-1)\ntotal = torch.where(kept, ordered, 0.0).sum(-1, keepdim=True)\n"
            "threshold = (total - 1) / kept.sum(-1, keepdim=True)\ny = torch.relu(x - threshold)\nreturn y",
            ("simplex_threshold", 1.0),
        ),
        (
            "sums = ordered.cumsum(-1) - 2.5\nsize = (rank * ordered > sums).sum(-1, keepdim=True)\n"
            "threshold = sums.gather(-1, size - 1) / size\ny = torch.clamp(x - threshold, min=0)\nreturn y",
            ("simplex_threshold", 2.5),
        ),
        ("y = torch.where(x >= ordered[:, 3:4], x, 0.0)\nreturn y", ("kth_largest", 4)),
        ("y = torch.relu(x - ordered[:, 1:2])\nreturn y", ("kth_largest", 2)),
        ("y = x * (x > ordered[:, -2:-1])\nreturn y", ("kth_largest", 2)),
        ("y = x * (x >= torch.topk(x, 3).values[:, -1:])\nreturn y", ("kth_largest", 3)),
        ("y = x * (x >= torch.topk(x, 2).values.amin(-1, keepdim=True))\nreturn y", ("kth_largest", 2)),
        ("y = x * (x <= torch.kthvalue(x, 2, -1, True)[0])\nreturn y", ("kth_largest", 2)),
        ("y = x * (x <= torch.sort(x).values[:, :1])\nreturn y", ("kth_largest", 1)),
    ],
)
def test_thresholds_are_recognised(body, found):
    assert thresholds(SORTED + body if "ordered" in body else body) == [found]


@pytest.mark.parametrize(
    "body, reason",
    [
        ("return ordered * x", "a sorted row is used for more than a threshold"),
        ("return x - ordered[:, x.shape[-1] // 2, None]", "y at other sizes differs by"),
        ("return x.topk(3)[1] * x[:, :3]", "the indices of aten.topk.default are used"),
        ("return torch.cat((x, x), -1).sort(-1)[0][:, :1] * x", "a sorted concatenation"),
    ],
)
def test_other_uses_of_a_sorted_row_are_refused(body, reason):
    with pytest.raises(LigerDevError) as caught:
        thresholds(SORTED + body if "ordered" in body else body)
    assert reason in caught.value.what
