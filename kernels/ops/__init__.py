from kernels.ops.rms_norm import LigerRmsNormFunction  # noqa: F401
from kernels.ops.rms_norm import rms_norm_backward  # noqa: F401
from kernels.ops.rms_norm import rms_norm_forward  # noqa: F401
