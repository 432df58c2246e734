"""Rows of casts: to the inputs' dtype a rounding, to float32 nothing, to a dtype of its own a rounding to that one."""

from typing import Any

import torch

from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import rounded
from liger_dev.compiler.lowering import truth

_FIXED = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
_WIDE = (torch.float32, torch.float64)


def _cast(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    t, dtype = state.term(x), state.node.meta["val"].dtype
    if dtype == torch.bool:
        return Term(truth(state.graph, t.value), t.dims)
    if not dtype.is_floating_point:
        return Term(t.value if t.value.dtype == "int" else state.graph.make("int", t.value), t.dims)
    named = str(dtype).removeprefix("torch.") in state.source.fixed_dtypes(state.node)
    if dtype == torch.float64 and named:
        raise state.refuse("a cast to torch.float64", "kernels compute in float32: cast to that")
    if dtype in _WIDE:
        return Term(as_float(state.graph, t.value), t.dims)
    if named or dtype != torch.bfloat16:
        return _fixed(state, t, dtype)
    if t.value.dtype == "float" and t.value.op != "fixed" and x.meta["val"].dtype == torch.bfloat16:
        return t
    owner = state.locals.get(state.source.cast_like(state.node))
    like = owner.dtype_of if owner and owner.dtype_of else frozenset({_main_input(state, t)})
    value = as_float(state.graph, t.value)
    return Term(value if t.value.dtype == "bool" else rounded(state, value, like), t.dims, like)


def _main_input(state: Lowering, t: Term) -> str:
    """The input whose dtype a cast is to, where no name tells: the one of most dimensions that the value is made of."""
    used = {value.attr("name") for value in state.graph.walk([t.value]) if value.op == "input"}
    floats = [tensor for tensor in state.reference.tensors if tensor.dtype == "float"]
    return max([f for f in floats if f.name in used] or floats[:1], key=lambda tensor: len(tensor.shape)).name


def _fixed(state: Lowering, t: Term, dtype: torch.dtype) -> Term:
    """A rounding to a dtype that the reference names. Its result may be cast further only: what it promotes to would
    depend on the inputs' dtype."""
    if dtype not in _FIXED:
        raise state.refuse(f"a cast to {dtype}")
    users = [str(user.target) for user in state.node.users]
    if any(target not in CASTS and not target.startswith("aten._assert") for target in users):
        raise state.refuse(f"a cast to {dtype} whose result is not cast back", "cast to x.dtype, or back with .float()")
    value = state.graph.make("fixed", as_float(state.graph, t.value), to=str(dtype).removeprefix("torch."))
    return Term(value, t.dims)


CASTS: dict[str, Row] = {
    f"aten.{name}": _cast for name in ("to.dtype", "to.device", "_to_copy.default", "type_as.default")
}
