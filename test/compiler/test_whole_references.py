"""References whose kernels once went wrong as a whole: what the emitted op computes on small inputs is eager's."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
HEAD = "import math\n\nimport torch\nimport torch.nn.functional as F\n\n"
CASES = {
    # The wrapper counts groups of rows too, beside the argument.
    "counted_groups": """
SHAPES = {"x": ("B", "T", "H"), "scale": ("B", 1, "H")}


def counted_groups(x, scale, n_groups: float = 2.0):
    return torch.tanh(x * n_groups) * x.square().mean(-1, keepdim=True) * (1 + scale)
""",
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
    # The rest of each row is as long as the size that N would be traced with.
    "first_columns": """
SHAPES = {"x": ("B", "N", "T", "D"), "cos": ("T", 16), "sin": ("T", 16)}


def first_columns(x, cos, sin):
    turning, rest = x[..., :16], x[..., 16:]
    first, second = turning.chunk(2, -1)
    turned = turning * cos + torch.cat((-second, first), -1) * sin
    return torch.cat((turned, rest), dim=-1)
""",
    # The width comes from a tensor that is wider than the first sizes that are tried.
    "first_of_table": """
SHAPES = {"x": ("B", "N", "T", "D"), "cos": ("T", "R"), "sin": ("T", "R")}


def first_of_table(x, cos, sin):
    width = cos.shape[-1]
    turning, rest = x[..., :width], x[..., width:]
    turned = turning * cos + torch.cat((-turning[..., width // 2 :], turning[..., : width // 2]), -1) * sin
    return torch.cat((turned, rest), dim=-1)
""",
    # Pieces of fixed length that end at different places.
    "different_pieces": """
SHAPES = {"x": ("B", 12), "z": ("B", 12)}


def different_pieces(x, z):
    a = torch.cat([x[:, :4] * 2, torch.tanh(x[:, 4:])], -1)
    b = torch.cat([torch.sigmoid(z[:, :6]), z[:, 6:] + 1], -1)
    return a * b + x
""",
    # Each number of a table is used for two neighbours.
    "repeated_neighbours": """
SHAPES = {"x": ("B", "T", "N", "D"), "cos": ("T", "D/2"), "sin": ("T", "D/2")}


def repeated_neighbours(x, cos, sin):
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    sin, cos = (torch.repeat_interleave(table[None, :, None, :], 2, 3) for table in (sin, cos))
    return x * cos + turned * sin
""",
    # A range over half of an axis.
    "own_frequencies": """
SHAPES = {"x": ("B", "T", "N", "D"), "position": ("B", "T")}
DTYPES = {"position": "int"}
RANGES = {"position": "T"}


def own_frequencies(x, position, base: float = 10000.0):
    d = x.shape[-1]
    frequency = base ** (-torch.arange(0, d, 2, dtype=torch.float32, device=x.device) / d)
    angle = (position[..., None].float() * frequency)[:, :, None]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
""",
    # The running sum of what comes before; its first element is read for its shape alone.
    "sums_before": """
SHAPES = {"x": ("T", "V")}


def sums_before(x):
    sums = torch.cumsum(x, dim=-1)
    return torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], dim=-1) / (1 + sums[:, -1:].square())
""",
    # Positions in the whole tensor, in a kernel of rows.
    "dropped_residual": """
SHAPES = {"x": ("B", "T", "H"), "residual": ("B", "T", "H"), "weight": ("H",), "seed": (1,)}
DTYPES = {"seed": "int"}


def dropped_residual(x, residual, weight, seed, p: float = 0.1, eps: float = 1e-6):
    position = torch.arange(x.numel(), device=x.device).view_as(x)
    bits = (position ^ (position >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    bits = (bits ^ seed ^ (bits >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    keep = (bits >> 8).float() * 2.0**-24 >= p
    h = residual + x * keep / (1 - p)
    return h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + eps).to(h.dtype) * weight, h
""",
    # Sums over the rows of a sample, in pieces of rows: by column, and of all its elements.
    "modulated_tanh": """
SHAPES = {"x": ("B", "T", "H"), "scale": ("B", 1, "H"), "gate": ("B",), "bias": ("H",)}


def modulated_tanh(x, scale, gate, bias):
    return torch.tanh(x + bias) * (1 + scale) * torch.sigmoid(gate)[:, None, None]
""",
    # Sums over the rows of a sample, in whole rows; those over two of its axes are another kernel's.
    "modulated_heads": """
SHAPES = {"x": ("B", "S", "T", "H"), "scale": ("B", "S", 1, "H"), "gate": ("B", "S", 1, 1), "shift": ("B", 1, 1, "H")}


def modulated_heads(x, scale, gate, shift):
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return normed * torch.tanh(scale) * (1 + gate) + shift
""",
    # The gradient at the label is stored after the rest of its row.
    "labelled_loss": """
SHAPES = {"x": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}


def labelled_loss(x, target, smoothing: float = 0.1):
    log_probs = torch.log_softmax(x, -1)
    picked = log_probs.gather(1, target[:, None])[:, 0]
    return -((1 - smoothing) * picked + smoothing * log_probs.mean(-1)).mean()
""",
    # The gradient of `scale` is the same along S, which no other value of its kernel has.
    "mean_scale": """
SHAPES = {"x": ("B", "T", "H"), "scale": ("B", "S", "H")}


def mean_scale(x, scale):
    return (x - x.mean(-1, keepdim=True)) * scale.mean(1, keepdim=True)
""",
    # Infinite logits, and the activation of an infinite number.
    "infinite_logits": """
SHAPES = {"x": ("B", "H"), "target": ("B", "H")}


def infinite_logits(x, target):
    far = torch.where(x > 1, float("inf"), torch.where(x < -1, float("-inf"), x))
    return F.binary_cross_entropy_with_logits(x, target) + torch.where(x > 1, 0.0, F.hardswish(far)).sum()
""",
    # What a reference calls `y` is not its result.
    "squeezed": """
SHAPES = {"x": ("B", "C", "H", "W"), "g": ("B", "C")}


def squeezed(x, g):
    y = x.flatten(2).mean(-1)
    return x * torch.sigmoid(y * g)[..., None, None]
""",
    # A sum in two passes beside an element of each row; nothing that varies along columns outlives its pass.
    "margin_logits": """
SHAPES = {"cosine": ("N", "C"), "label": ("N",)}
DTYPES = {"label": "int"}
RANGES = {"label": "C"}


def margin_logits(cosine, label, s: float = 30.0, m: float = 0.35):
    one_hot = torch.zeros_like(cosine).scatter(1, label[:, None], 1)
    return F.cross_entropy(s * (cosine - one_hot * m), label)
""",
    "weighted_sum": """
SHAPES = {"x": ("N", "C"), "y": ("N",), "weight": ("C",)}
PARAMETERS = {}


def weighted_sum(x, y: torch.LongTensor, weight):
    return F.cross_entropy(x, y, weight=weight, reduction="sum")
""",
    # The mean over two pieces of the same length divides by a sum of sizes.
    "joined_mean": """
SHAPES = {"a": ("B",), "b": ("B",), "c": ("B",)}


def joined_mean(a, b, c):
    level = c.mean().clamp(min=0).detach()
    return torch.cat((torch.sigmoid(a - level), torch.sigmoid(level - b)), 0).mean()
""",
    # A kernel for a single number that needs the sizes of what was summed.
    "spread_of_logs": """
SHAPES = {"x": ("N", "D"), "target": ("N", "D")}


def spread_of_logs(x, target, lam: float = 0.5):
    d = torch.log(x.abs() + 1e-3) - torch.log(target.abs() + 1e-3)
    return torch.sqrt((d**2).mean() - lam * d.mean() ** 2 + 1e-6)
""",
    # A sum over rows whose kernel must not read what is stored for another gradient alone.
    "embedded_norm": """
SHAPES = {"ids": ("B", "T"), "table": ("V", "D"), "position": ("T", "D"), "weight": ("D",)}


def embedded_norm(ids: torch.LongTensor, table, position, weight):
    h = table[ids] + position[None]
    return F.layer_norm(h, h.shape[-1:], weight)
""",
    # Locals with the names of gradients, and of what wrappers count.
    "own_names": """
SHAPES = {"x": ("B", "D"), "w": ("D",)}


def own_names(x, w):
    dx = x - x.mean(-1, keepdim=True)
    n_rows = dx.square().sum(-1, keepdim=True)
    dy = dx * w
    return dy * torch.rsqrt(n_rows + 1)
""",
    # What a block without gradients gives is detached.
    "no_grad_block": """
SHAPES = {"x": ("B", "D"), "w": ("D",)}


def no_grad_block(x, w):
    with torch.no_grad():
        scale = x.abs().amax(-1, keepdim=True)
        inverse = w / (scale + 1)
    return x * inverse * w + scale
""",
    # The number of classes is a size beside the one-hot vectors, too.
    "smoothed_one_hot": """
SHAPES = {"logits": ("N", "C"), "target": ("N",)}


def smoothed_one_hot(logits, target: torch.LongTensor, smoothing: float = 0.1):
    classes = logits.size(-1)
    wanted = F.one_hot(target, classes) * (1 - smoothing) + smoothing / classes
    return -(wanted * logits.log_softmax(-1)).sum(-1).mean()
""",
    # Groups that begin in the middle of the dimensions that a view merges.
    "merged_groups": """
SHAPES = {"x": ("N", "C", "H", "W"), "weight": ("C",)}


def merged_groups(x, weight, groups: int = 4, eps: float = 1e-5):
    y = x.reshape(x.shape[0], groups, -1)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return y.reshape(x.shape) * weight[:, None, None]
""",
    # A rounding in a kernel that an upstream gradient is not always given to.
    "rounded_logits": """
SHAPES = {"logits": ("N", "C"), "target": ("N",)}


def rounded_logits(logits, target: torch.LongTensor, scale: float = 1.3):
    scaled = (logits.float() * scale).to(logits.dtype)
    return F.cross_entropy(scaled.float().tanh(), target)
""",
    # One-hot vectors as numbers.
    "poly_loss_by_one_hot": """
SHAPES = {"x": ("N", "C"), "y": ("N",)}


def poly_loss_by_one_hot(x, y: torch.LongTensor, epsilon: float = 1.0):
    likelihood = (F.one_hot(y, num_classes=x.size(1)) * F.softmax(x, dim=-1)).sum(-1)
    return (F.cross_entropy(x, y, reduction="none") + epsilon * (1 - likelihood)).mean()
""",
    # A product over rows in memory, whose gradient is not the product by the element.
    "products": """
SHAPES = {"x": ("B", "T", "H")}


def products(x):
    return torch.prod(torch.relu(x + 1), dim=1)
""",
    # One gradient, in places that are not the same: parts of inputs, other orders of axes, rows of tables.
    "shared_gradients": """
SHAPES = {"x": ("B", "T", "D"), "y": ("B", "T", "D/2"), "z": ("T", "B", "D/2"), "b": ("D",), "c": ("D/2",)}


def shared_gradients(x, y, z, b, c):
    half = y.shape[-1]
    return torch.tanh(x[..., :half] + y + z.transpose(0, 1) + b[:half] + b[half:] + c)
""",
    "shared_rows": """
SHAPES = {"word": ("B", "T"), "kind": ("B", "T"), "words": ("V", "H"), "kinds": ("K", "H"), "x": ("B", "T", "H")}
DTYPES = {"word": "int", "kind": "int"}
RANGES = {"word": "V", "kind": "K"}


def shared_rows(word, kind, words, kinds, x):
    return words[word] + kinds[kind] + x
""",
    # The cast is to the dtype of a tensor that has none of its own.
    "cast_like_a_sum": """
SHAPES = {"x": ("B", "H"), "residual": ("B", "H")}


def cast_like_a_sum(x, residual):
    x_2 = x + residual
    return x_2.float().square().type_as(x_2)
""",
    # Settings that keep different tensors, with a comment that one of them has alone.
    "noisy_choice": """
SHAPES = {"logits": ("B", "K"), "noise": ("B", "K")}


def noisy_choice(logits, noise, tau: float = 1.0, hard: bool = True):
    soft = ((logits + torch.tanh(noise)) / tau).softmax(-1)
    if not hard:
        return soft
    index = soft.max(-1, keepdim=True)[1]
    return torch.zeros_like(logits).scatter_(-1, index, 1.0) - soft.detach() + soft
""",
    # Whole numbers of another type than a position's.
    "small_numbers": """
SHAPES = {"x": ("N", "D")}


def small_numbers(x):
    scale = x.abs().amax(-1, keepdim=True).float() / 127
    small = torch.round(x.float() / scale.clamp(min=1e-6)).clamp(-127, 127).to(torch.int8)
    return small, scale, x.argmax(-1).int(), (x > 0).to(torch.uint8)
""",
    # With one token none is left, and the mean over none is no number; the logits' gradient is 0 all the same.
    "next_tokens": """
SHAPES = {"logits": ("B", "T", "V"), "labels": ("B", "T"), "weights": ("B", "T")}
DTYPES = {"labels": "int"}
RANGES = {"labels": "V"}


def next_tokens(logits, labels, weights):
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), reduction="none")
    w = weights[:, 1:].reshape(-1)
    return (loss * w).sum() / w.sum()
""",
    # Writes into parts: halves and every other element of new memory, columns, ends and the middle of what is there.
    "written_halves": """
SHAPES = {"x": ("B", "T", "D"), "cos": ("T", "D/2"), "sin": ("T", "D/2")}


def written_halves(x, cos, sin):
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    out[..., :half] = x[..., :half] * cos - x[..., half:] * sin
    out[..., half:] = x[..., half:] * cos + x[..., :half] * sin
    return out
""",
    "written_lanes": """
SHAPES = {"x": ("B", "T", "D"), "angle": ("T", "D/2")}


def written_lanes(x, angle):
    out = torch.zeros_like(x)
    out[..., ::2] = x[..., ::2] * angle.cos() - x[..., 1::2] * angle.sin()
    out[..., 1::2] = x[..., 1::2] * angle.cos() + x[..., ::2] * angle.sin()
    return out
""",
    "written_columns": """
SHAPES = {"boxes": ("N", 4)}


def written_columns(boxes):
    out = boxes.new_zeros(boxes.shape)
    out[:, 0] = (boxes[:, 0] + boxes[:, 2]) / 2
    out[:, 1] = (boxes[:, 1] + boxes[:, 3]) / 2
    out[:, 2] = boxes[:, 2] - boxes[:, 0]
    out[:, 3] = boxes[:, 3] - boxes[:, 1]
    return out
""",
    "written_middle": """
SHAPES = {"x": ("B", "T", "D"), "y": ("B", "T", "D")}


def written_middle(x, y):
    out = x * 2
    out[:, 1:-1] = (x[:, 2:] - y[:, :-2]) * 0.5
    out[:, -1] = y[:, 0].tanh()
    out[..., :2] = 0
    out[..., 0] *= 3
    last = torch.roll(y, 1, 1)
    last[:, 0] = 0
    return out, last.exp()
""",
    # Optional inputs: a residual that is then returned as it came, a weight that one formula has and the other not.
    "optional_residual": """
SHAPES = {"x": ("B", "H"), "weight": ("H",), "residual": ("B", "H")}


def optional_residual(x, weight, residual: torch.Tensor | None = None):
    if residual is not None:
        x = x + residual
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6).to(x.dtype) * weight, x
""",
    "optional_positives": """
SHAPES = {"x": ("B", "C"), "target": ("B", "C"), "positive": ("C",)}


def optional_positives(x, target, positive: torch.Tensor | None = None):
    return F.binary_cross_entropy_with_logits(x, target, pos_weight=positive)
""",
    # Without it the mean is another function: the op always takes it.
    "optional_mask": """
SHAPES = {"x": ("B", "T"), "mask": ("B", "T"), "bias": ("T",)}


def optional_mask(x, mask: torch.Tensor | None = None, bias: torch.Tensor | None = None):
    loss = (x if bias is None else x + bias).square()
    return loss.mean() if mask is None else (loss * mask).sum() / mask.sum().clamp(min=1)
""",
    # A logarithm of an integer: it stays what it is by default.
    "own_period": """
SHAPES = {"x": ("B", "D"), "t": ("B",)}


def own_period(x, t, period: int = 10000):
    half = x.shape[-1] // 2
    frequency = torch.exp(-math.log(period) * torch.arange(0, half, dtype=torch.float32) / half)
    angle = t[:, None].float() * frequency[None]
    return x + torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype)
""",
    # A number of heads that is no power of two, nor a prime times two.
    "twelve_heads": """
SHAPES = {"x": ("B", "T", "D")}


def twelve_heads(x):
    heads = x.view(*x.shape[:-1], 12, -1)
    return (heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + 1e-6)).flatten(-2)
""",
    # A compiled helper.
    "compiled_parts": """
SHAPES = {"bias": ("H",), "x": ("B", "H")}


@torch.jit.script
def _tanh(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.tanh(x * scale)


@torch.compile(
    dynamic=True,
)
def compiled_parts(bias: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x * _tanh(x + bias, 0.5)
""",
    "positions": """
SHAPES = {"x": ("B", "T", "H")}


def positions(x):
    return torch.argmax(x, dim=1), torch.argmin(x, dim=-1)
""",
    "replaced_elements": """
SHAPES = {"x": ("N", "C"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "C"}


def replaced_elements(x, target, smoothing: float = 0.1):
    wanted = torch.zeros_like(x).fill_(smoothing / (x.size(1) - 1))
    wanted.scatter_(1, target.data.unsqueeze(1), 1.0 - smoothing)
    return -(wanted * x.log_softmax(1)).sum(1).mean()
""",
    "given_statistics": """
SHAPES = {"x": ("N", "C", "L"), "mean": ("C",), "var": ("C",), "weight": ("C",)}


def given_statistics(x, mean, var, weight):
    y = F.batch_norm(x, mean.detach(), var.square().detach(), weight, None, training=False, eps=1e-3)
    return y + F.batch_norm(x, None, None, weight, training=True)
""",
    # A zero beside the row takes part in the maximum.
    "zero_beside_the_row": """
SHAPES = {"x": ("B", "T", "V")}


def zero_beside_the_row(x):
    zero = torch.zeros_like(x[..., :1])
    return torch.cat((x, zero), dim=-1).softmax(-1)[..., :-1]
""",
    "fixed_pieces": """
SHAPES = {"x": ("B", "T", "H"), "table": (4, "H"), "t": ("B", 4, "H")}


def fixed_pieces(x, table, t):
    shift, scale, gate, _ = (table[None] + t).chunk(4, dim=1)
    return x * (1 + scale) + shift, gate.squeeze(1)
""",
    # Where no label is valid the loss is no number, and its gradient 0.
    "ignored_labels": """
SHAPES = {"logits": ("N", "V"), "labels": ("N",), "weight": ("V",)}
DTYPES = {"labels": "int"}
RANGES = {"labels": "V"}


def ignored_labels(logits, labels, weight, ignore_index: int = 0):
    return F.cross_entropy(logits, labels, weight=weight, ignore_index=ignore_index, label_smoothing=0.1)
""",
    # What the labels are padded with is an argument.
    "next_labels": """
SHAPES = {"logits": ("B", "T", "V"), "labels": ("B", "T")}
DTYPES = {"labels": "int"}
RANGES = {"labels": "V"}


def next_labels(logits, labels, ignore_index: int = -100):
    following = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].contiguous()
    return F.cross_entropy(logits.float().view(-1, logits.size(-1)), following.view(-1), ignore_index=ignore_index)
""",
    # Borders that are a size and a number.
    "all_but_one": """
SHAPES = {"x": ("B", "T", "H")}


def all_but_one(x):
    rest = x.narrow(1, 0, x.size(1) - 1)
    return torch.cumsum(torch.cat((torch.zeros_like(x[:, :1]), rest), 1), 1) * x + x[:, x.shape[1] - 1 :]
""",
    "written_mask": """
SHAPES = {"table": ("B", "T", "V"), "labels": ("B", "T"), "x": ("B", "T")}
DTYPES = {"labels": "int"}
RANGES = {"labels": "V"}


def written_mask(table, labels, x, pad: int = 1):
    labels = labels.clone()
    kept = labels != pad
    labels[labels == pad] = 0
    return table.gather(-1, labels[..., None]).squeeze(-1) * kept * x
""",
    # More is read off the largest elements than a threshold.
    "two_largest": """
SHAPES = {"x": ("N", "E")}


def two_largest(x):
    first, second = x.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first / (first + second), second * 2
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
