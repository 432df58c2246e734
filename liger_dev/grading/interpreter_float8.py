"""8-bit floats for Triton's interpreter: takes its module, mends the rounding of float32 to float8e4nv and float8e5.

A GPU rounds to the nearest number, ties to even, and takes what is too large as the largest finite number.
"""

from types import ModuleType
from typing import Any

import numpy as np
import torch

# The interpreter's name of a format: torch's, and its largest number.
_FORMATS = {"fp8e4nv": (torch.float8_e4m3fn, 448.0), "fp8e5": (torch.float8_e5m2, 57344.0)}


def is_faulty(up: ModuleType) -> bool:
    """A tie, which goes to the even neighbour, and a number below the smallest normal one."""
    source = up.TensorHandle(np.array([100.0, 0.00390625], dtype=np.float32), up.tl.float32)
    found = up.InterpreterBuilder().create_fp_to_fp(source, up.tl.float8e4nv, up._ir.ROUNDING_MODE.RTNE)
    return list(found.data.view(np.uint8)) != [0x6C, 0x02]


def mend(up: ModuleType) -> None:
    original = up.InterpreterBuilder.create_fp_to_fp

    def convert(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        name = dst_type.scalar.name
        nearest = rounding_mode in (None, up._ir.ROUNDING_MODE.RTNE)
        if name not in _FORMATS or src.dtype.scalar != up.tl.float32 or not nearest:
            return original(self, src, dst_type, rounding_mode)
        kind, largest = _FORMATS[name]
        values = torch.from_numpy(np.ascontiguousarray(src.data)).clamp(-largest, largest)
        return up.TensorHandle(values.to(kind).view(torch.uint8).numpy(), dst_type.scalar)

    up.InterpreterBuilder.create_fp_to_fp = convert
