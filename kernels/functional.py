"""Functional forms of the kernels: one function an operation."""

from kernels.ops.rms_norm import LigerRmsNormFunction


def liger_rms_norm(x, weight, eps=1e-6, offset=0.0):
    """RMS normalisation over the last dimension, as in Llama: normalised in float32, cast back, then scaled.

    Args:
        x: (..., H), float32, bfloat16 or float16.
        weight: (H,), float32, bfloat16 or float16.

    Returns:
        y: (..., H), in the dtype that x and weight promote to.
    """
    return LigerRmsNormFunction.apply(x, weight, eps, offset)
