"""Every reference of the catalogue: it loads, runs in three dtypes, has right gradients, and agrees with torch's own."""

import zlib

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from liger_dev.compiler.trace import load_function
from liger_dev.compiler.verify import InFloat64
from liger_dev.loading import load
from liger_dev.records import Reference
from liger_dev.sources import catalog_names
from liger_dev.sources import catalog_source
from liger_dev.sources import closest_in_catalog

NAMES = [name for name, _ in catalog_names()]
SIZES = (2, 4, 6, 8, 10, 12)

# Their gradient is not their derivative, on purpose: a straight-through estimator, or a part without gradient.
DETACHED = {
    "distillation_loss",
    "dynamic_fine_tuning",
    "kto",
    "quantize_rows",
    "quantize_rows_fp8",
    "rope",
    "rope_sectioned",
    "rope_interleaved",
    "rope_partial",
    "rope_single",
    "straight_through_argmax",
    "ternary_weights",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Reference, Callable[..., Any]]]:
    """A catalogue name's reference and its function; each is loaded once."""
    folder: Path = tmp_path_factory.mktemp("references")
    known: dict[str, tuple[Reference, Callable[..., Any]]] = {}

    def get(name: str) -> tuple[Reference, Callable[..., Any]]:
        if name not in known:
            reference = load(name, catalog_source(name), folder)
            known[name] = reference, load_function(reference, folder)
        return known[name]

    return get


def inputs_of(reference: Reference, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    axes = dict.fromkeys(axis for tensor in reference.tensors for axis in tensor.shape if isinstance(axis, str))
    sizes = dict(zip(axes, SIZES))
    generator = torch.Generator().manual_seed(zlib.crc32(reference.name.encode()))
    tensors = {}
    for tensor in reference.tensors:
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.shape]
        if tensor.dtype == "float":
            value = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        else:
            value = torch.randint(sizes.get(tensor.range, 2), shape, generator=generator)
        tensors[tensor.name] = value.bool() if tensor.dtype == "bool" else value
    return tensors


def outputs_of(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_says_what_it_is(name: str, loaded: Any) -> None:
    reference, function = loaded(name)
    text = catalog_source(name).text
    assert function.__name__ == name
    assert "\nSource: " in text and reference.summary.endswith((".", ":")), "one sentence, and where it comes from"
    assert "=" in text.split('"""')[1] or name == "rms_norm", "its formula"
    assert len(reference.summary) <= 115
    assert reference.assumptions == (), "nothing is left to be guessed"
    assert closest_in_catalog(name) in {"", *NAMES} - {name}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_reference_runs_and_has_gradients(name: str, dtype: torch.dtype, loaded: Any) -> None:
    reference, function = loaded(name)
    inputs = inputs_of(reference, dtype)
    outputs = outputs_of(function(**inputs))
    assert all(bool(torch.isfinite(output).all()) for output in outputs)
    assert all(output.dtype in (dtype, torch.float32) for output in outputs)
    floats = [tensor for tensor in inputs.values() if tensor.is_floating_point()]
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    gradients = [tensor.grad for tensor in floats if tensor.grad is not None]
    assert gradients and all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert len(gradients) == len(floats) or name in DETACHED


@pytest.mark.parametrize("name", sorted(set(NAMES) - DETACHED))
def test_gradients_are_the_derivative(name: str, loaded: Any) -> None:
    reference, function = loaded(name)
    inputs = inputs_of(reference, torch.float64)

    def call(*tensors: torch.Tensor) -> Any:
        with InFloat64():
            return function(**dict(zip(inputs, tensors)))

    assert torch.autograd.gradcheck(call, tuple(inputs.values()), fast_mode=True)


def layered(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def channels_first(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.movedim(1, -1), x.shape[1:2], weight, bias, 1e-6).movedim(-1, 1)


def complex_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """With the same angle for both of a pair, a rotation is a multiplication of complex numbers."""
    turn = torch.complex(cos, sin)
    even, odd = x[..., ::2], x[..., 1::2]
    real = even * turn.real[..., ::2] - odd * turn.imag[..., ::2]
    imaginary = odd * turn.real[..., 1::2] + even * turn.imag[..., 1::2]
    return torch.stack((real, imaginary), -1).flatten(-2)


# What torch itself computes for the same arguments.
OWN: dict[str, Callable[..., Any]] = {
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "bias_gelu": lambda x, bias: F.gelu(x + bias, approximate="tanh"),
    "celu": lambda x: F.celu(x, 1.5),
    "channels_first_layer_norm": channels_first,
    "channels_first_rms_norm": lambda x, weight: F.rms_norm(x.movedim(1, -1), x.shape[1:2], weight, 1e-6).movedim(
        -1, 1
    ),
    "class_weighted_cross_entropy": lambda logits, target, class_weight: F.cross_entropy(
        logits, target, class_weight.detach()
    ),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=-1),
    "cross_entropy": F.cross_entropy,
    "elu": F.elu,
    "embedding": lambda weight, index: weight[index],
    "fused_add_layer_norm": lambda x, residual, weight, bias: (layered(x + residual, weight, bias), x + residual),
    "gaussian_nll_loss": lambda mean, log_variance, x: F.gaussian_nll_loss(mean, x, log_variance.exp()),
    "geglu_packed": lambda x: x.chunk(2, -1)[0] * F.gelu(x.chunk(2, -1)[1]),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gemma_rms_norm": lambda x, weight: F.rms_norm(x, x.shape[-1:], 1 + weight, 1e-6),
    "glu": lambda x, gate: F.glu(torch.cat((x, gate), -1)),
    "group_norm": lambda x, weight, bias: F.group_norm(x, 2, weight, bias),
    "group_norm_silu": lambda x, weight, bias: F.silu(F.group_norm(x, 2, weight, bias, 1e-6)),
    "hard_swish": F.hardswish,
    "hard_sigmoid": F.hardsigmoid,
    "hinge_loss": lambda prediction, target: F.relu(1 - prediction * target).mean(),
    "huber_loss": F.huber_loss,
    "instance_norm": lambda x, weight, bias: F.instance_norm(x, weight=weight, bias=bias),
    "kl_div": lambda log_probs, target_log_probs: F.kl_div(
        log_probs, target_log_probs, reduction="batchmean", log_target=True
    ),
    "l1_loss": F.l1_loss,
    "l1_norm": lambda x: F.normalize(x, p=1, dim=-1),
    "layer_norm": layered,
    "leaky_relu": F.leaky_relu,
    "log_sigmoid": lambda x: torch.sigmoid(x).log(),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsumexp": lambda x: x.exp().sum(-1).log(),
    "margin_ranking_loss": lambda first, second, order: F.margin_ranking_loss(first, second, order, 0.5),
    "max_norm": lambda x: F.normalize(x, p=float("inf"), dim=-1),
    "mish": F.mish,
    "mse_loss": F.mse_loss,
    "multi_margin_loss": F.multi_margin_loss,
    "nll_loss": F.nll_loss,
    "poisson_nll_loss": F.poisson_nll_loss,
    "prelu": F.prelu,
    "qk_norm": lambda q, k, q_weight, k_weight: (
        F.rms_norm(q, q.shape[-1:], q_weight, 1e-6),
        F.rms_norm(k, k.shape[-1:], k_weight, 1e-6),
    ),
    "relu6": F.relu6,
    "relu_squared": lambda x: F.relu(x).square(),
    "reverse_cumulative_sum": lambda x: x.sum(-1, keepdim=True) - x.cumsum(-1) + x,
    "reverse_kl_div": lambda student, teacher: F.kl_div(
        F.log_softmax(teacher, -1), F.log_softmax(student, -1), reduction="batchmean", log_target=True
    ),
    "rms_norm": lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, 1e-6),
    "rms_norm_no_weight": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
    "rms_norm_uncast": lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, 1e-6),
    "rope_interleaved": complex_pairs,
    "selected_log_prob": lambda logits, target: torch.distributions.Categorical(logits=logits).log_prob(target),
    "selu": lambda x: 1.0507009873554805 * F.elu(x, 1.6732632423543772),
    "silu": F.silu,
    "sink_softmax": lambda x, sink: torch.softmax(torch.cat((x, sink[:, None, None].expand(*x.shape[:-1], 1)), -1), -1)[
        ..., :-1
    ],
    "smooth_l1_loss": F.smooth_l1_loss,
    "smoothed_cross_entropy": lambda logits, target: F.cross_entropy(logits, target, label_smoothing=0.1),
    "soft_shrink": F.softshrink,
    "soft_sign": F.softsign,
    "soft_target_cross_entropy": F.cross_entropy,
    "softmax": lambda x: F.softmax(x, -1),
    "softmax_entropy": lambda x: torch.distributions.Categorical(logits=x).entropy(),
    "softmax_plus_one": lambda x: torch.softmax(F.pad(x, (0, 1)), -1)[..., :-1],
    "softmin": lambda x: F.softmin(x, -1),
    "softplus": F.softplus,
    "sparsemax": lambda x: nearest_distribution(x),
    "swiglu_packed": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "tanh_shrink": F.tanhshrink,
    "token_cross_entropy": lambda logits, target: F.cross_entropy(logits.movedim(-1, 1), target, reduction="none"),
    "triplet_margin_loss": F.triplet_margin_loss,
    "weighted_bce_with_logits": lambda logits, target, pos_weight: F.binary_cross_entropy_with_logits(
        logits, target, pos_weight=pos_weight
    ),
}


def nearest_distribution(x: torch.Tensor) -> torch.Tensor:
    """Bisection for the threshold at which max(x - threshold, 0) sums to 1."""
    low, high = x.amax(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    for _ in range(60):
        middle = (low + high) / 2
        above = F.relu(x - middle).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return F.relu(x - low)


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_reference_computes_what_torch_does(name: str, loaded: Any) -> None:
    reference, function = loaded(name)
    inputs = inputs_of(reference, torch.float64)
    with torch.no_grad():
        with InFloat64():
            found = outputs_of(function(**inputs))
        wanted = outputs_of(OWN[name](*inputs.values()))
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["cross_entropy", "smoothed_cross_entropy", "cross_entropy_z_loss"])
def test_ignored_rows_count_for_nothing(name: str, loaded: Any) -> None:
    _, function = loaded(name)
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(3))
    target = torch.tensor([1, -100, 6, -100, 0])
    torch.testing.assert_close(function(logits, target), function(logits[::2], target[::2]))
    assert float(function(logits, torch.full((5,), -100))) == 0.0


def test_there_are_references_of_every_family() -> None:
    families = {
        "norms": {"rms_norm", "gemma_rms_norm", "rms_norm_uncast", "layer_norm", "group_norm", "qk_norm", "poly_norm"},
        "gates": {"swiglu", "geglu", "reglu", "swiglu_packed", "swiglu_interleaved", "swiglu_clamped", "xielu"},
        "softmaxes": {"softmax", "masked_softmax", "causal_softmax", "sink_softmax", "sparsemax"},
        "rotations": {"rope", "rope_interleaved", "rope_partial", "rope_sectioned"},
        "vocabulary": {"cross_entropy", "focal_loss", "kl_div", "jsd", "tvd", "selected_log_prob"},
        "preference": {"dpo", "orpo", "cpo", "simpo", "kto", "grpo"},
        "others": {"embedding", "dropout", "seeded_dropout", "quantize_rows", "attn_res", "cumulative_sum"},
    }
    assert not set().union(*families.values()) - set(NAMES)
    assert len(NAMES) >= 70
