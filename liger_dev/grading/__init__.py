"""Judging a kernel: a candidate runs in a child process, the verdict is made outside of it."""
