"""Triton's interpreter in, the same one out that refuses to read or write outside of what a kernel was given.

On a GPU a mask that is one too wide reads and writes its neighbour's memory and often passes all tests.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np
import torch


class OutOfBounds(IndexError):
    """A kernel reached outside of the storages of its arguments."""


class _Watched:
    """The interpreter's memory accesses, each with its addresses checked first."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.ranges: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, ptrs: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check("load", ptrs, mask, np.dtype(dtype).itemsize)
        return self._real.load(ptrs, mask, other, dtype)

    def store(self, ptrs: Any, value: Any, mask: Any) -> Any:
        self._check("store", ptrs, mask, value.dtype.itemsize)
        return self._real.store(ptrs, value, mask)

    def atomic_rmw(self, op: Any, ptrs: Any, value: Any, mask: Any, sem: Any) -> Any:
        self._check("atomic", ptrs, mask, value.dtype.itemsize)
        return self._real.atomic_rmw(op, ptrs, value, mask, sem)

    def _check(self, access: str, ptrs: Any, mask: Any, size: int) -> None:
        addresses = ptrs[np.broadcast_to(np.asarray(mask).astype(bool), ptrs.shape)]
        if not self.ranges or not addresses.size:
            return
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, end in self.ranges:
            inside |= (addresses >= start) & (addresses + size <= end)
        if not inside.all():
            count = int(addresses.size - inside.sum())
            raise OutOfBounds(f"a {access} reaches {count} elements outside of the tensors that the kernel was given")


def watch(up: ModuleType) -> None:
    """Puts the checks into the module `triton.runtime.interpreter`, once a process."""
    module: Any = up
    if isinstance(module._interpreter, _Watched):
        return
    watched = _Watched(module._interpreter)
    module._interpreter = watched
    prepare = module.GridExecutor._init_args_hst

    def prepared(self: Any, args: Any, kwargs: Any) -> Any:
        ready = prepare(self, args, kwargs)
        # A copy on the host stands in for a tensor of a GPU: its addresses are those that the kernel sees.
        watched.ranges = list(_ranges([*ready[0], *ready[1].values()]))
        return ready

    module.GridExecutor._init_args_hst = prepared


def _ranges(values: Iterable[Any]) -> Iterable[tuple[int, int]]:
    for value in values:
        if isinstance(value, tuple):
            yield from _ranges(value)
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            yield from _ranges([value.base])
        elif isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        elif hasattr(value, "data_ptr") and callable(value.data_ptr):
            yield from _ranges([getattr(value, "base", None)])
