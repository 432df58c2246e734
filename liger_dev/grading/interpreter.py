"""Mends for Triton's interpreter: `install()` applies those that the installed Triton needs and returns their names.

For tests and the grader alone. A mend is applied only if a probe of behaviour shows its fault, so that a Triton that
mended it itself is left alone. Call `install()` before kernels are imported: `from libdevice import tanh` binds early.
"""

import importlib
import os

from collections.abc import Callable
from collections.abc import Collection
from dataclasses import dataclass
from types import ModuleType

from liger_dev.grading import bounds
from liger_dev.grading import interpreter_float8 as float8
from liger_dev.grading import interpreter_language as language
from liger_dev.grading import interpreter_libdevice as libdevice
from liger_dev.grading import interpreter_numbers as numbers


@dataclass(frozen=True)
class Mend:
    """One fault of the interpreter. `seen_in` names the Triton versions in which the probe found it.

    `is_faulty` and `apply` take the module `triton.runtime.interpreter`.
    """

    name: str
    fault: str
    seen_in: str
    is_faulty: Callable[[ModuleType], bool]
    apply: Callable[[ModuleType], None]


def install(leave_out: Collection[str] = ()) -> tuple[str, ...]:
    """Applies the mends that are needed, once a process, and returns their names; () unless TRITON_INTERPRET is set.

    `leave_out` names mends to skip: a test uses it to show that a kernel fails without one.
    """
    if os.environ.get("TRITON_INTERPRET", "").lower() not in ("1", "true", "yes", "on", "y"):
        return ()
    up = importlib.import_module("triton.runtime.interpreter")
    if not hasattr(up, "_mended"):
        wanted = [mend for mend in MENDS if mend.name not in leave_out]
        needed = [mend for mend in wanted if mend.is_faulty(up)]
        for mend in needed:
            mend.apply(up)
        bounds.watch(up)
        up._mended = tuple(mend.name for mend in needed)  # type: ignore[attr-defined]
    names: tuple[str, ...] = up._mended
    return names


MENDS = (
    Mend(
        "scalar_index",
        "range(n) with a runtime n converts a one-element array to an int, which numpy 2.4 refuses (before: warns)",
        "3.6.0",
        language.index_is_faulty,
        language.mend_index,
    ),
    Mend(
        "bool_argument",
        "a Python bool argument is stored as int32 under a one-bit type and rejected",
        "3.6.0",
        language.bool_is_faulty,
        lambda up: language.mend_argument(up, bool, up.tl.int1),
    ),
    Mend(
        "float_argument",
        "a Python float argument stays a float64 Python number, while a launch on a GPU passes a float32 scalar",
        "3.6.0 to 3.9.0",
        lambda up: isinstance(up._implicit_cvt(1.5), float),
        lambda up: language.mend_argument(up, float, up.tl.float32),
    ),
    Mend(
        "loop_variable",
        "the variable of a for loop is a Python int: it has no .to() and never overflows int32",
        "3.6.0 to 3.9.0",
        language.loops_are_faulty,
        language.mend_loops,
    ),
    Mend(
        "python_operators",
        "and, or, not, min and max on blocks look at one truth value instead of every element",
        "3.6.0 to 3.9.0",
        language.operators_are_faulty,
        language.mend_operators,
    ),
    Mend(
        "nan_rules",
        "tl.maximum, tl.minimum and tl.clamp give NaN where a GPU gives the other operand",
        "3.6.0",
        numbers.nan_rules_are_faulty,
        numbers.mend_nan_rules,
    ),
    Mend(
        "fma",
        "tl.fma rounds twice",
        "3.6.0",
        numbers.fma_is_faulty,
        numbers.mend_fma,
    ),
    Mend(
        "bf16_conversion",
        "float32 to bfloat16 truncates, integers and float64 become wrong bits, constants are refused",
        "3.6.0 to 3.9.0",
        numbers.conversion_is_faulty,
        numbers.mend_conversion,
    ),
    Mend(
        "bf16_arithmetic",
        "arithmetic and comparisons on bfloat16 work on the bits as integers",
        "3.6.0 to 3.9.0",
        numbers.arithmetic_is_faulty,
        numbers.mend_arithmetic,
    ),
    Mend(
        "bf16_dot",
        "tl.dot multiplies the bits of bfloat16 operands as integers",
        "3.6.0 to 3.9.0",
        numbers.dot_is_faulty,
        numbers.mend_dot,
    ),
    Mend(
        "bf16_atomics",
        "tl.atomic_add and tl.atomic_xchg on bfloat16 are refused",
        "3.6.0 to 3.9.0",
        numbers.atomics_are_faulty,
        numbers.mend_atomics,
    ),
    Mend(
        "fp8_conversion",
        "float32 to an 8-bit float rounds ties away from zero, and loses numbers below the smallest normal one",
        "3.6.0",
        float8.is_faulty,
        float8.mend,
    ),
    Mend(
        "half_sums",
        "tl.sum adds the bits of bfloat16, and hides the rounding of float16 partial sums",
        "3.6.0 to 3.9.0",
        numbers.sums_are_faulty,
        numbers.mend_sums,
    ),
    Mend(
        "row_sums",
        "tl.sum over rows goes from row to row: their roundings add up, where a GPU combines pairs of rows",
        "3.6.0 to 3.9.0",
        numbers.row_sums_are_faulty,
        numbers.mend_row_sums,
    ),
    Mend(
        "float_scans",
        "tl.cumsum and tl.cumprod go from lane to lane: their roundings add up, where a GPU combines pairs of lanes",
        "3.6.0 to 3.9.0",
        numbers.scans_are_faulty,
        numbers.mend_scans,
    ),
    Mend(
        "own_reductions",
        "tl.reduce with a function of one's own goes from element to element: their roundings add up, where a GPU combines "
        "pairs, and a row of thousands takes a minute",
        "3.6.0 to 3.9.0",
        numbers.reductions_are_faulty,
        numbers.mend_reductions,
    ),
    Mend(
        "integer_sums",
        "a sum that leaves int32 raises, where a GPU wraps around",
        "3.6.0",
        numbers.integer_sums_are_faulty,
        numbers.mend_integer_sums,
    ),
    Mend(
        "float_warnings",
        "overflow, division by zero and invalid operands raise numpy warnings, which are errors in a strict test run",
        "3.6.0 to 3.9.0",
        language.warns,
        lambda up: language.around_launches(up, lambda: up.np.errstate(all="ignore")),
    ),
    Mend(
        "all_nan",
        "tl.max and tl.min of a row of NaN raise a numpy warning",
        "3.6.0 to 3.9.0",
        language.warns,
        numbers.mend_all_nan,
    ),
    Mend(
        "libdevice",
        "libdevice functions return None or raise",
        "3.6.0 to 3.9.0",
        libdevice.is_faulty,
        libdevice.mend,
    ),
    Mend(
        "list_grid",
        "a grid given as a list is refused",
        "3.6.0 to 3.9.0",
        language.list_grid_is_faulty,
        language.mend_list_grid,
    ),
    Mend(
        "language_leak",
        "a device function patches triton.language anew at each call and leaves it patched after the launch",
        "3.6.0 to 3.9.0",
        language.leaks,
        language.mend_leak,
    ),
)
