"""References whose kernels once went wrong as a whole: what the emitted op computes on small inputs is eager's."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
HEAD = "import torch\nimport torch.nn.functional as F\n\n"
CASES = {
    # The gradient of `scale` is a sum over rows inside of a where.
    "clamped_scale": """
SHAPES = {"x": ("B", "T", "H", "D"), "scale": ("H",)}


def clamped_scale(x, scale):
    return F.normalize(x, dim=-1) * scale[:, None].exp().clamp(max=3.0)
""",
    # The gradient of `mix` is a sum over columns of sums over rows; both fixed sizes are one axis.
    "mixed_streams": """
SHAPES = {"x": ("B", 4, "D"), "mix": (4,)}


def mixed_streams(x, mix):
    return (x * mix.softmax(0)[:, None]).sum(1)
""",
    # Long rows: kernels for columns run between two kernels for rows.
    "scaled_tanh": """
SHAPES = {"x": ("B", "H"), "alpha": (1,), "weight": ("H",)}


def scaled_tanh(x, alpha, weight):
    return torch.tanh(alpha * x) * weight
""",
    # The number of groups is the size that B is traced with.
    "four_groups": """
SHAPES = {"x": ("B", "C", "L"), "weight": ("C",)}


def four_groups(x, weight, eps: float = 1e-5):
    groups = x.reshape(x.shape[0], 4, x.shape[1] // 4, x.shape[2])
    centered = groups - groups.mean((2, 3), keepdim=True)
    y = centered / (centered.square().mean((2, 3), keepdim=True) + eps).sqrt()
    return y.reshape(x.shape) * weight[:, None]
""",
    # Each cast is to the dtype of the helper's own argument.
    "two_norms": """
SHAPES = {"q": ("B", "N", "D"), "k": ("B", "G", "D"), "weight": ("D",)}


def normalised(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def two_norms(q, k, weight):
    return normalised(q, weight), normalised(k, weight)
""",
    # A slice of a softmax over a concatenation.
    "sink": """
SHAPES = {"scores": ("B", "H", "S"), "sinks": ("H",)}


def sink(scores, sinks):
    joined = torch.cat((scores, sinks[None, :, None].expand(scores.shape[0], -1, 1)), -1)
    shifted = joined - joined.max(-1, keepdim=True).values
    return shifted.softmax(-1)[..., :-1]
""",
    # Heads of two kinds share a weight, whose gradient is the sum of both.
    "shared_weight": """
SHAPES = {"q": ("B", "N", "D"), "k": ("B", "G", "D"), "weight": ("D",)}


def shared_weight(q, k, weight):
    return F.normalize(q, dim=-1) * weight, F.normalize(k, dim=-1) * weight
""",
    # What a loss is divided by is made of a size and an argument.
    "fixed_length": """
SHAPES = {"x": ("B", "T"), "mask": ("B", "T")}


def fixed_length(x, mask, length: int = 128):
    return -(x.exp() * mask).sum() / (x.shape[0] * length)
""",
    # torch has no gradient for the weight of positives.
    "weighted_bce": """
SHAPES = {"x": ("B", "C"), "target": ("B", "C"), "positive": ("C",)}


def weighted_bce(x, target, positive):
    return F.binary_cross_entropy_with_logits(x, target, pos_weight=positive)
""",
}
SCRIPT = """
import json, os, sys, tempfile
from pathlib import Path
os.environ["TRITON_INTERPRET"] = "1"
from liger_dev.compiler import compile_op
from liger_dev.errors import LigerDevError
from liger_dev.grading.trial import disagreement
from liger_dev.loading import load
from liger_dev.records import Source
said = {}
for name, text in json.loads(sys.argv[1]).items():
    for module in [module for module in sys.modules if module.split(".")[0] == "kernels"]:
        del sys.modules[module]
    try:
        reference = load(name, Source("function", text, name, name + ".py"), Path(tempfile.mkdtemp()))
        compiled = compile_op(reference, {})
    except LigerDevError as error:
        said[name] = error.what
        continue
    profile = {"closest_existing_kernel": "none", **compiled.profile}
    said[name] = disagreement(compiled.reference, profile, compiled.op, Path(tempfile.mkdtemp()))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    texts = json.dumps({name: HEAD + text for name, text in CASES.items()})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, texts], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_the_op_computes_what_the_reference_does(name, said):
    assert said[name] == ""
