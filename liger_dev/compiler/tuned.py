"""Kernels and the settings measured for them in, what an op file says of it out: tables, and the lines that look them up."""

import hashlib
import textwrap

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.options import Options
from liger_dev.compiler.schedule import KernelSpec


def knobs(options: Options, spec: KernelSpec, stage: str) -> tuple[str, ...]:
    """The settings that a launch's kernel leaves open, by the names that the wrapper gives them; none if one program
    computes numbers. What a reviewer fixed is no knob."""
    if not spec.layout.rows + spec.layout.cols:
        return ()
    if spec.layout.flat:
        return ("block_size", "num_warps")
    if spec.scatter is not None:
        return ("BLOCK_ROWS", "BLOCK_COLS", "num_warps")
    rows = () if stage in options.one_row or not spec.layout.rows else ("BLOCK_ROWS",)
    cols = ("BLOCK_COLS",) if spec.looped or spec.pieces else ()
    if spec.persistent:
        return (*rows, *cols, "NUM_STAGES", "num_warps", *(() if options.programs_per_sm else ("per_sm",)))
    return (*rows, *cols, "num_warps")


def body(text: KernelText) -> str:
    """The digest that tells a kernel from what it becomes when the reference, or the compiler, changes."""
    return hashlib.sha256("\n".join([text.name, *text.pointers, *text.lines]).encode()).hexdigest()[:8]


def is_looked_up(options: Options, text: KernelText, names: tuple[str, ...]) -> bool:
    """Whether a launch of this kernel asks its table."""
    return bool(names) and (options.tunable or bool(fitting(options.tuning, text, names)))


def fitting(records: Iterable[Mapping[str, Any]], text: KernelText, names: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """The records that were measured with this very kernel, and set what it leaves open."""
    return [
        r for r in records if r["kernel"] == text.name and r["body"] == body(text) and tuple(r["settings"]) == names
    ]


def lookup(text: KernelText, names: tuple[str, ...], tensor: str, default: tuple[str, ...] = ()) -> str:
    """The statement that takes a launch's settings from the kernel's table; `default` where they have no name yet."""
    size = "n_elements" if text.flat else "n_cols"
    usual = ", ".join(default or names)
    comma = "," if len(names) == 1 else ""
    return f"{', '.join(names)}{comma} = tuned({table_name(text)}, {tensor}, {size}, ({usual}{comma}))"


def table_name(text: KernelText) -> str:
    return f"{text.name.strip('_').removesuffix('_kernel').upper()}_TUNED"


def table(options: Options, text: KernelText, names: tuple[str, ...]) -> list[str]:
    """The lines of a kernel's table: tuples, since a module may hold nothing that a call could change.

    One that is only there to be asked for has the kernel's name in it, by which a tuner knows it.
    """
    if options.tunable:
        return [f'{table_name(text)} = ("{text.name}",)']
    records = sorted(fitting(options.tuning, text, names), key=lambda r: (r["arch"], r["dtype"], int(r["above"])))
    unit = "elements" if text.flat else "columns"
    about = (
        f"Settings of {text.name} that `liger-dev tune` has measured to be faster than the default ones: "
        f"architecture, dtype, {unit} above, up to, ({', '.join(names)})."
    )
    lines = [*_comment(about), f"{table_name(text)} = ("]
    last = ""
    for r in records:
        versions = ", ".join(f"{name} {version}" for name, version in r["versions"].items())
        where = f"{r['gpu']}, {r['date']}, {versions}:"
        times = "; ".join(f"{t['ms']:.4g} ms at {t['size']}, by default {t['default_ms']:.4g}" for t in r["timings"])
        comments = [*(_comment(where) if where != last else []), *_comment(times)]
        values = ", ".join(str(r["settings"][name]) for name in names) + ("," if len(names) == 1 else "")
        row = f'("{r["arch"]}", torch.{r["dtype"]}, {r["above"]}, {r["up_to"]}, ({values})),'
        lines += [f"    {line}" for line in (*comments, row)]
        last = where
    return [*lines, ")"]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 108, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
