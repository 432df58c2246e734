"""libdevice for Triton's interpreter: takes its module, gives every function that has a row below a meaning on a CPU.

Calls go through the declarations of the CUDA backend, so that argument types are accepted, promoted and refused as on
a GPU; only the last step, the external symbol, is computed with torch in the argument's own precision.
"""

import functools
import importlib
import inspect

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

_Op = Callable[..., torch.Tensor]


def _round_half_away(x: torch.Tensor) -> torch.Tensor:
    whole = x.trunc()
    return torch.where((x - whole).abs() >= 0.5, whole + x.sign(), whole)


def _cbrt(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x.abs().double().pow(1 / 3), x.double()).to(x.dtype)


def _remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """IEEE remainder: the quotient rounds to nearest, ties to even."""
    return torch.from_numpy(np.asarray(np.vectorize(_ieee_remainder)(x.numpy(), y.numpy()))).to(x.dtype)


def _ieee_remainder(x: float, y: float) -> float:
    import math

    try:
        return math.remainder(x, y)
    except ValueError:
        return float("nan")


_FUNCTIONS: dict[str, _Op] = {
    "abs": torch.abs,
    "fabs": torch.abs,
    "llabs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "cbrt": _cbrt,
    "rcbrt": lambda x: 1 / _cbrt(x),
    "hypot": torch.hypot,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "exp10": lambda x: torch.pow(10.0, x),
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "pow": torch.pow,
    "powi": torch.pow,
    "ldexp": torch.ldexp,
    "scalbn": torch.ldexp,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinpi": lambda x: torch.sin(torch.pi * x),
    "cospi": lambda x: torch.cos(torch.pi * x),
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "erfcinv": lambda x: torch.erfinv((1 - x.double())).to(x.dtype),
    "erfcx": torch.special.erfcx,
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "lgamma": torch.lgamma,
    "tgamma": lambda x: torch.where(x < 0, torch.cos(torch.pi * torch.floor(x)), 1.0) * torch.lgamma(x).exp(),
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": _round_half_away,
    "llround": _round_half_away,
    "rint": torch.round,
    "llrint": torch.round,
    "nearbyint": torch.round,
    "fmod": torch.fmod,
    "remainder": _remainder,
    "fdim": lambda x, y: torch.where(x > y, x - y, torch.where(x <= y, 0.0, torch.nan)).to(x.dtype),
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(z.dtype),
    "saturate": lambda x: torch.nan_to_num(x, nan=0.0).clamp(0, 1),
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "signbit": torch.signbit,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "finite": torch.isfinite,
    "isfinite": torch.isfinite,
    "fast_sin": torch.sin,
    "fast_cos": torch.cos,
    "fast_tan": torch.tan,
    "fast_exp": torch.exp,
    "fast_exp10": lambda x: torch.pow(10.0, x),
    "fast_log": torch.log,
    "fast_log2": torch.log2,
    "fast_log10": torch.log10,
    "fast_pow": torch.pow,
    "fast_tanh": torch.tanh,
    "fast_fdivide": torch.div,
    **{f"{precision}{name}_rn": op for precision in "fd" for name, op in (
        ("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div), ("sqrt", torch.sqrt),
        ("rsqrt", torch.rsqrt), ("rcp", torch.reciprocal),
    )},
}  # fmt: skip


def implementation(symbol: str) -> _Op:
    """The function that a symbol such as `__nv_tanhf` names. Raises NotImplementedError if it has no row here."""
    name = symbol.removeprefix("__nv_").removeprefix("__ocml_").removesuffix("_f32").removesuffix("_f64")
    for candidate in (name, name[:-1] if name[-1:] in ("f", "d") else name):
        if candidate in _FUNCTIONS:
            return _FUNCTIONS[candidate]
    raise NotImplementedError(
        f"libdevice's {symbol} has no implementation in the interpreter; run this kernel on a GPU"
    )


def is_faulty(up: ModuleType) -> bool:
    """The stubs of `triton.language.extra.libdevice` have an empty body: in the interpreter they return None."""
    try:
        return importlib.import_module("triton.language.extra.libdevice").tanh(1.0) is None
    except Exception as error:  # noqa: BLE001 - any upstream change that is no stub shows here
        raise AssertionError("triton.language.extra.libdevice is no longer made of stubs") from error


def mend(up: ModuleType) -> None:
    def create_extern_elementwise(
        self: Any, lib_name: str, lib_path: str, symbol: str, args: list[Any], ret_type: Any, is_pure: bool
    ) -> Any:
        # Copies: torch refuses broadcast views of numpy, which are read-only.
        tensors = [torch.from_numpy(np.array(arg.data)) for arg in args]
        result = implementation(symbol)(*tensors).numpy()
        return up.TensorHandle(result.astype(up._get_np_dtype(ret_type)), ret_type.scalar)

    up.InterpreterBuilder.create_extern_elementwise = create_extern_elementwise
    declared = importlib.import_module("triton.language.extra.cuda.libdevice")
    stubs = importlib.import_module("triton.language.extra.libdevice")
    for name, function in inspect.getmembers(declared, up.tl.core.is_builtin):
        call = functools.wraps(function)(_bound(up, function))
        setattr(declared, name, call)
        if hasattr(stubs, name):
            setattr(stubs, name, call)


def _bound(up: ModuleType, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        # A launch of the compiler in the same process passes its own semantic.
        kwargs.setdefault("_semantic", up.interpreter_semantic)
        return function(*args, **kwargs)

    return call
