"""Kernels and wrappers in, the values of the op file's template out."""

import ast
import textwrap

from typing import Any

from liger_dev.compiler.demands import counted_axes
from liger_dev.compiler.demands import divisors
from liger_dev.compiler.demands import least_sizes
from liger_dev.compiler.demands import limits
from liger_dev.compiler.formulas import formulas
from liger_dev.compiler.host import Host
from liger_dev.compiler.host import function_values
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.statements import KernelText
from liger_dev.compiler.wrappers import backward_lines
from liger_dev.compiler.wrappers import forward_lines


def operation_values(host: Host) -> dict[str, Any]:
    """Plain strings and lists, so that the template has only `if` and `for`."""
    graph, reference = host.graph, host.reference
    kernels = [_kernel(host, text) for text in host.texts.values()]
    sizes: dict[str, str] = {}
    forward, backward = forward_lines(host), backward_lines(host, sizes)
    text = "\n".join([*forward, *backward])
    named = function_values(host)
    helpers = [name for name in _HELPERS if f"{name}(" in text or (name.isupper() and name in text)]
    needs = [f"{flag}=True" for flag, _ in named["needs"]]  # type: ignore[attr-defined]
    values = {
        "summary": _summary(reference.text),
        "formulas": [line for text in formulas(graph) for line in _wrapped(text)],
        "uses_libdevice": any("libdevice." in line for kernel in kernels for line in kernel["lines"]),
        "helpers": helpers,
        "block_size": host.options.block_size if "BLOCK_SIZE=BLOCK_SIZE" in text else 0,
        "kernels": kernels,
        "forward_body": forward,
        "backward_body": backward,
        "forward_parameters": [*named["tensors"], *named["scalars"]],  # type: ignore[misc]
        "backward_parameters": [
            *named["upstream"],
            *named["saved"],
            *named["backward_scalars"],
            *sizes.values(),
            *needs,
        ],  # type: ignore[misc]
        "sizes": [(name, graph.sizes[axis]) for axis, name in sizes.items()],
        "counts": [s.name for s in reference.scalars if s.name in graph.sizes.values()],
        "divisors": divisors(graph, reference),
        "limits": limits(graph, reference),
        "least": least_sizes(graph),
        "counted_axes": counted_axes(graph, text),
        "argument_docs": [_argument(host, tensor.name) for tensor in reference.tensors],
        "return_docs": [f"{o.name}: {_shape(o.dims)}" for o in graph.outputs],
        **named,
    }
    return {"op": values}


_HELPERS = (
    "LONG_ROW",
    "check_at_most",
    "check_bool",
    "check_divisible",
    "check_floating",
    "check_integer",
    "check_least",
    "check_rank",
    "check_shape",
    "check_static",
    "column_settings",
    "device_guard",
    "loop_settings",
    "loop_stages",
    "row_settings",
    "row_shape",
    "sm_count",
)


def _kernel(host: Host, kernel: KernelText) -> dict[str, Any]:
    flat = any("BLOCK_SIZE" in line for line in kernel.lines)
    sizes = ["n_elements"] if flat else ["n_rows", "n_cols"]
    blocks = ["BLOCK_SIZE"] if flat else ["BLOCK_ROWS", "BLOCK_COLS"]
    blocks += ["NUM_STAGES"] if any("NUM_STAGES" in line for line in kernel.lines) else []
    scalars = [name for name in host.scalars if name in kernel.scalars]
    constants = [f"{name}: tl.constexpr" for name in (*scalars, *kernel.flags, *blocks)]
    pointers = [f"{pointer}_ptr" for pointer in kernel.pointers]
    return {
        "name": kernel.name,
        "parameters": [*pointers, *sizes, *(f"n_{axis}" for axis in kernel.sizes), *constants],
        "lines": list(kernel.lines),
    }


def _wrapped(text: str) -> list[str]:
    """A formula in lines of a docstring, the definitions behind `where` indented below it."""
    return textwrap.wrap(text, 112, subsequent_indent="    ", break_long_words=False)


def _summary(text: str) -> str:
    doc = ast.get_docstring(ast.parse(text)) or ""
    return doc.strip().splitlines()[0] if doc.strip() else ""


def _shape(dims: Dims) -> str:
    inner = ", ".join(" * ".join(dim) or "1" for dim in dims)
    return f"({inner},)" if len(dims) == 1 else f"({inner})"


def _argument(host: Host, name: str) -> str:
    item = next(i for i in host.graph.inputs if i.name == name)
    kinds = {"int": ", integers", "bool": ", bool", "float": ""}
    text = f"{name}: {_shape(item.dims)}{kinds[item.value.dtype]}"
    if item.optional and item.neutral is not None:
        text += f" or None, which stands for {item.neutral:g}"
    return text
