"""liger-dev: a PyTorch operation in, a validated Triton kernel out."""

__version__ = "0.1.0"
