from kernels.modules.rms_norm import LigerRmsNorm  # noqa: F401
