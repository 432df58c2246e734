"""Inside the candidate's child: which Triton kernels were launched in a phase, and which ATen operations ran beside them.

A candidate shares its process with this trace, so what it says is a hint and no proof: it convicts, but acquits only
together with the static reading, which refuses whatever could tamper with it.
"""

import contextlib
import importlib

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes

_ALLOCATIONS = frozenset(
    "empty empty_strided empty_like new_empty new_empty_strided zeros zeros_like new_zeros full full_like new_full ones "
    "ones_like new_ones scalar_tensor zero_ fill_".split()
)
_VIEWS = frozenset(
    "view _unsafe_view _reshape_alias reshape expand permute transpose t slice select squeeze unsqueeze as_strided alias "
    "detach unbind split split_with_sizes chunk narrow view_as lift_fresh unflatten flatten movedim".split()
)
_COPIES = frozenset(
    "clone copy_ _to_copy contiguous to resolve_conj resolve_neg _local_scalar_dense is_pinned promote_types result_type".split()
)
# Allowed on integers and truth values: what looks at an index before a kernel picks by it, or counts what is kept.
_LOOKS = frozenset(
    "eq ne lt le gt ge bitwise_and bitwise_or logical_and logical_or logical_not any all "
    "__and__ __or__ bitwise_not is_nonzero floor_divide mul".split()  # `index // size` is 0 inside, `* kept` elsewhere
)
# Allowed on what kernels wrote: the last step over one partial result a program.
_FINISHING = frozenset(("sum",))
_ON_SCALARS = frozenset("div mul add sub rsub neg reciprocal clamp_min clamp_max clamp".split())


@dataclass
class Trace:
    """What ran, as (phase, name) and (phase, name, programs); `operators` are those that are not PyTorch's own, each
    with the arguments of its first call."""

    phase: str = ""
    launches: list[tuple[str, str, int]] = field(default_factory=list)
    aten: list[tuple[str, str]] = field(default_factory=list)
    operators: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"launches": self.launches, "aten": sorted(set(self.aten))}


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every ATen operation that is neither an allocation, a view, a copy, a count nor the sum of partial results."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace
        self.partial: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        short = name.removeprefix("aten::")
        made = [result] if isinstance(result, torch.Tensor) else []
        if short in _ALLOCATIONS:
            self._keep(made)
        elif short == "copy_":
            self.partial.pop(args[0].untyped_storage()._cdata, None)
        elif short in _VIEWS:
            pass
        elif short in _COPIES:
            if self._is_partial(args):
                self._keep(made)
        elif short in _LOOKS and not any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args):
            self._keep(made)
        elif self._finishes(short, args) or short == "sum" and args[0].dtype == torch.bool:
            self._keep(made)  # a sum of truth values counts them
        else:
            self.trace.aten.append((self.trace.phase, name))
            if func.namespace not in ("aten", "prims", "prim"):
                self.trace.operators.setdefault(name, (func, args, kwargs or {}))
        return result

    def _keep(self, tensors: list[torch.Tensor]) -> None:
        # The storage is kept alive, so that its place is not given to another one.
        self.partial |= {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}

    def _finishes(self, name: str, args: Any) -> bool:
        if not self._is_partial(args):
            return False
        single = all(arg.numel() == 1 for arg in args if isinstance(arg, torch.Tensor))
        return name in _FINISHING or (name in _ON_SCALARS and single)

    def _is_partial(self, args: Any) -> bool:
        """Whether all tensors among the arguments are a kernel's to write, counts, or made of these."""
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        return bool(tensors) and all(tensor.untyped_storage()._cdata in self.partial for tensor in tensors)


@contextlib.contextmanager
def watched(trace: Trace, phase: str, aten: bool = True) -> Iterator[None]:
    """Notes what runs inside under the name of the phase."""
    trace.phase = phase
    with Watch(trace) if aten else contextlib.nullcontext():
        yield
    trace.phase = ""


def install(trace: Trace) -> None:
    """Puts the trace into the launch paths of the JIT and of the interpreter. Call it before the candidate is imported."""
    jit: Any = importlib.import_module("triton.runtime.jit").JITFunction
    interpreter: Any = importlib.import_module("triton.runtime.interpreter").GridExecutor
    run, execute = jit.run, interpreter.__call__

    def traced_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            note(self.fn, grid if isinstance(grid, tuple | list) else ())
        return run(self, *args, grid=grid, warmup=warmup, **kwargs)

    def traced_execute(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self.fn, self.grid if isinstance(self.grid, tuple | list) else ())
        # The interpreter uses torch itself: that is no operation of the candidate's.
        with _disable_current_modes():
            return execute(self, *args, **kwargs)

    def note(fn: Any, grid: Any) -> None:
        programs = 1
        for size in grid:
            programs *= int(size)
        trace.launches.append((trace.phase, fn.__name__, programs))

    jit.run, interpreter.__call__ = traced_run, traced_execute
