"""Functional forms of the kernels: one function an operation."""

from kernels.ops.cross_entropy import LigerCrossEntropyFunction
from kernels.ops.dyt import LigerDytFunction
from kernels.ops.fused_add_rms_norm import LigerFusedAddRmsNormFunction
from kernels.ops.geglu import LigerGegluFunction
from kernels.ops.geglu_erf import LigerGegluErfFunction
from kernels.ops.gemma_rms_norm import LigerGemmaRmsNormFunction
from kernels.ops.l2_norm import LigerL2NormFunction
from kernels.ops.layer_norm import LigerLayerNormFunction
from kernels.ops.log_softmax import LigerLogSoftmaxFunction
from kernels.ops.modulated_rms_norm import LigerModulatedRmsNormFunction
from kernels.ops.relu_squared import LigerReluSquaredFunction
from kernels.ops.rms_norm import LigerRmsNormFunction
from kernels.ops.softmax import LigerSoftmaxFunction
from kernels.ops.swiglu import LigerSwigluFunction


def liger_rms_norm(x, weight, eps=1e-6, offset=0.0):
    """RMS normalisation over the last dimension, as in Llama: normalised in float32, cast back, then scaled.

    Args:
        x: (..., H), float32, bfloat16 or float16.
        weight: (H,), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that x and weight promote to.
    """
    return LigerRmsNormFunction.apply(x, weight, eps, offset)


def liger_layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Layer normalisation over the last dimension: y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.

    Args:
        x: (..., H), float32, bfloat16 or float16.
        weight: (H,), float32, bfloat16 or float16. None leaves it out.
        bias: (H,), float32, bfloat16 or float16. None leaves it out.

    Returns:
        y: (..., H), in the dtype of same as x.
    """
    return LigerLayerNormFunction.apply(x, weight, bias, eps)


def liger_fused_add_rms_norm(x, residual, weight, eps=1e-6):
    """Residual addition, then RMS normalisation: summed = x + residual, y = weight * summed / rms(summed).

    Args:
        x: (..., H), float32, bfloat16 or float16.
        residual: (..., H), float32, bfloat16 or float16.
        weight: (H,), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that x and residual and weight promote to.
        summed: (..., H), in the dtype that x and residual promote to.
    """
    return LigerFusedAddRmsNormFunction.apply(x, residual, weight, eps)


def liger_swiglu(gate, up):
    """SwiGLU, the gated activation of Llama: y = silu(gate) * up, where silu(gate) = gate * sigmoid(gate).

    Args:
        gate: (..., H), float32, bfloat16 or float16.
        up: (..., H), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that gate and up promote to.
    """
    return LigerSwigluFunction.apply(gate, up)


def liger_geglu(gate, up):
    """GEGLU with the tanh form of GELU: y = gelu_tanh(gate) * up.

    Args:
        gate: (..., H), float32, bfloat16 or float16.
        up: (..., H), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that gate and up promote to.
    """
    return LigerGegluFunction.apply(gate, up)


def liger_geglu_erf(gate, up):
    """GEGLU with the exact GELU: y = gelu(gate) * up, where gelu(gate) = gate / 2 * (1 + erf(gate / sqrt(2))).

    Args:
        gate: (..., H), float32, bfloat16 or float16.
        up: (..., H), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that gate and up promote to.
    """
    return LigerGegluErfFunction.apply(gate, up)


def liger_relu_squared(x):
    """Squared ReLU: y = max(x, 0)^2.

    Args:
        x: (..., H), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype of same as x.
    """
    return LigerReluSquaredFunction.apply(x)


def liger_dyt(x, alpha, gamma, beta):
    """Dynamic tanh, which stands in for a normalisation: y = gamma * tanh(alpha * x) + beta.

    Args:
        x: (..., H), float32, bfloat16 or float16.
        alpha: (1,), float32, bfloat16 or float16.
        gamma: (H,), float32, bfloat16 or float16.
        beta: (H,), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that x and alpha and gamma and beta promote to.
    """
    return LigerDytFunction.apply(x, alpha, gamma, beta)


def liger_softmax(x):
    """Softmax over the last dimension: y = exp(x - max(x)) / sum(exp(x - max(x))).

    Args:
        x: (..., V), float32, bfloat16 or float16.

    Returns:
        y: (..., V), in the dtype of same as x.
    """
    return LigerSoftmaxFunction.apply(x)


def liger_log_softmax(x):
    """Logarithm of softmax over the last dimension: y = x - max(x) - log(sum(exp(x - max(x)))).

    Args:
        x: (..., V), float32, bfloat16 or float16.

    Returns:
        y: (..., V), in the dtype of same as x.
    """
    return LigerLogSoftmaxFunction.apply(x)


def liger_l2_norm(x, eps=1e-6):
    """Division by the Euclidean norm over the last dimension: y = x / sqrt(sum(x^2) + eps).

    Args:
        x: (..., H), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype of same as x.
    """
    return LigerL2NormFunction.apply(x, eps)


def liger_gemma_rms_norm(x, weight, eps=1e-6):
    """RMS normalisation as in Gemma, y = (1 + weight) * x / rms(x): everything in float32, cast back at the end.

    Args:
        x: (..., H), float32, bfloat16 or float16.
        weight: (H,), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype of same as x.
    """
    return LigerGemmaRmsNormFunction.apply(x, weight, eps)


def liger_cross_entropy(logits, target, ignore_index=-100):
    """Cross entropy over the vocabulary: loss = mean over kept rows of logsumexp(logits) - logits[target].

    Args:
        logits: (N, V), float32, bfloat16 or float16.
        target: (N,), int32 or int64.

    Returns:
        loss: (), float32.
    """
    return LigerCrossEntropyFunction.apply(logits, target, ignore_index)


def liger_modulated_rms_norm(x, weight, scale, eps=1e-6):
    """RMS normalisation that a condition modulates: y = weight * x / rms(x) * (1 + scale), one scale a sample.

    Args:
        x: (..., T, H), float32, bfloat16 or float16.
        weight: (H,), float32, bfloat16 or float16.
        scale: (..., 1, H), float32, bfloat16 or float16.

    Returns:
        y: (..., T, H), in the dtype of same as x.
    """
    return LigerModulatedRmsNormFunction.apply(x, weight, scale, eps)
