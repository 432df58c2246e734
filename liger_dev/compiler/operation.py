"""Kernels and wrappers in, for each setting of static arguments, the values of the op file's template out."""

import ast
import re
import textwrap

from collections.abc import Sequence
from typing import Any

from liger_dev.choices import Setting
from liger_dev.choices import setting_text
from liger_dev.compiler.branches import merged
from liger_dev.compiler.demands import counted_axes
from liger_dev.compiler.demands import divisors
from liger_dev.compiler.demands import late_rank_checks
from liger_dev.compiler.demands import limits
from liger_dev.compiler.formulas import formulas
from liger_dev.compiler.host import Host
from liger_dev.compiler.host import function_values
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.picks import picked
from liger_dev.compiler.schedule import specs_of
from liger_dev.compiler.tuned import body
from liger_dev.compiler.tuned import is_looked_up
from liger_dev.compiler.tuned import knobs
from liger_dev.compiler.tuned import table
from liger_dev.compiler.wrappers import backward_lines
from liger_dev.compiler.wrappers import forward_lines
from liger_dev.literals import literal


def operation_values(hosts: Sequence[tuple[Setting, Host]], dtypes: Sequence[str]) -> dict[str, Any]:
    """Plain strings and lists, so that the template has only `if` and `for`. There is a host for each setting of static
    arguments, the defaults first. `dtypes` are those that eager PyTorch runs the reference with."""
    host = hosts[0][1]
    graph, reference = host.graph, host.reference
    kernels = {text.name: _kernel(host, text) for _, each in hosts for text in each.texts.values()}
    named = function_values([each for _, each in hosts])
    sizes: dict[str, str] = {}
    forward, _ = merged([(setting, forward_lines(each, named["results"])) for setting, each in hosts])
    backward, branched = merged([(setting, backward_lines(each, named["gradients"], sizes)) for setting, each in hosts])
    named["backward_scalars"] = [s for s in named["scalars"] if s in {*named["backward_scalars"], *branched}]
    counted = [axis for _, each in hosts for axis in counted_axes(each.graph, "\n".join([*forward, *backward]))]
    forward = [*late_rank_checks(graph, reference, counted), *forward]
    text = "\n".join([*forward, *backward])
    helpers = [name for name in _HELPERS if f"{name}(" in text or (name.isupper() and name in text)]
    helpers += [name for name in _KERNEL_HELPERS if any(name in line for k in kernels.values() for line in k["lines"])]
    needs = [f"{flag}=True" for flag, _ in named["needs"]]
    open_settings = _open_settings(hosts)
    values = {
        "summary": _summary(reference.text),
        "formulas": [line for text in _formulas(hosts) for line in _wrapped(text)],
        "uses_libdevice": any("libdevice." in line for kernel in kernels.values() for line in kernel["lines"]),
        "helpers": sorted(helpers),
        "block_size": host.options.block_size if "BLOCK_SIZE" in text else 0,
        "tables": [
            table(host.options, text, names)
            for text, names in open_settings.values()
            if is_looked_up(host.options, text, names)
        ],
        "tunable": {text.name: {"body": body(text), "knobs": names} for text, names in open_settings.values()},
        "kernels": list(kernels.values()),
        "forward_body": forward,
        "backward_body": backward,
        "forward_parameters": [*named["tensors"], *named["scalars"]],
        "forward_options": [f"{host.upstream[0]}=None", *(f"{flag}=False" for flag, _ in named["needs"])]
        if host.plan.fused
        else [],
        "backward_parameters": [
            *named["upstream"],
            *named["saved"],
            *(named["gradients"] if host.plan.fused else []),
            *named["backward_scalars"],
            *sizes.values(),
            *needs,
        ],
        "sizes": (read := [(name, graph.sizes.get(axis, axis)) for axis, name in sizes.items()]),
        "sizes_before": _of_dropped(read, named["results"], hosts),
        "counts": [s.name for s in reference.scalars if any(s.name in each.graph.sizes.values() for _, each in hosts)],
        "divisors": {axis: n for _, each in hosts for axis, n in divisors(each.graph, reference).items()},
        "limits": {part: whole for _, each in hosts for part, whole in limits(each.graph, reference).items()},
        "least": {axis: n for _, each in hosts for axis, n in each.graph.least.items()},
        "dtypes": list(dtypes),
        "counted_axes": list(dict.fromkeys(counted)),
        "picked": [
            {"name": one.name, "axis": one.axis, "kept": one.kept is not None, "mark": one.mark}
            for one in picked(graph)
        ],
        "argument_docs": [
            *(_argument(host, tensor.name) for tensor in reference.tensors),
            *(f"{s.name}: {_one_of(s.choices)}" for s in reference.scalars if len(s.choices) > 1),
        ],
        "return_docs": [f"{o.name}: {_returned(hosts, i)}" for i, o in enumerate(graph.outputs)],
        **named,
    }
    return {"op": values}


def _of_dropped(
    sizes: Sequence[tuple[str, str]], results: Sequence[str], hosts: Sequence[tuple[Setting, Host]]
) -> list[str]:
    """The sizes that are read off an input in whose place a setting's forward returns None."""
    inputs = {item.name for item in hosts[0][1].graph.inputs} & set(results)
    dropped = {name for name in inputs if any(name not in host.saved for _, host in hosts)}
    return [name for name, text in sizes if dropped & set(re.findall(r"\w+(?=\.)", text))]


def _open_settings(hosts: Sequence[tuple[Setting, Host]]) -> dict[str, tuple[KernelText, tuple[str, ...]]]:
    """The kernels whose launches leave settings open, with these settings' names."""
    found = {}
    for _, host in hosts:
        for stage, launches in (("forward", host.forward), ("backward", host.backward)):
            for spec in (spec for launch in launches for spec in specs_of(launch)):
                text, names = host.texts[spec.name], knobs(host.options, spec, stage)
                if names:
                    found[text.name] = text, names
    return found


def _formulas(hosts: Sequence[tuple[Setting, Host]]) -> list[str]:
    """Those of the defaults, then what differs with another setting."""
    usual = formulas(hosts[0][1].graph)
    lines, printed = list(usual), _definitions(usual)
    for setting, host in hosts[1:]:
        own = [line for line in formulas(host.graph, printed) if line not in {*usual, *printed}]
        changed = {name: value for name, value in setting.items() if value != hosts[0][0][name]}
        if own:
            lines += [f"{setting_text(changed)}:", *own]
    return lines


def _definitions(lines: Sequence[str]) -> set[str]:
    """The single definitions of formulas: the first, and those behind `where`."""
    return {part for line in lines for text in line.split(", where ", 1) for part in _parts(text)}


def _parts(text: str) -> list[str]:
    return re.split(r", (?=\w+ = )", text)


def _one_of(values: Sequence[Any]) -> str:
    *others, last = map(literal, values)
    return f"{', '.join(others)} or {last}"


def _returned(hosts: Sequence[tuple[Setting, Host]], index: int) -> str:
    """An output's shape, and with which settings it is another one."""
    shapes: dict[str, list[str]] = {}
    for setting, host in hosts:
        shapes.setdefault(_shape(host.graph.outputs[index].dims), []).append(setting_text(setting))
    usual, *others = shapes.items()
    return "; ".join([usual[0], *(f"{shape} with {' or with '.join(settings)}" for shape, settings in others)])


_KERNEL_HELPERS = ("branchless_tanh", "exp_or_zero", "larger_or_nan")
_HELPERS = (
    "LONG_HELD_ROW",
    "LONG_ROW",
    "PIECE_COLS",
    "WIDE_ROW",
    "cdiv",
    "check_at_most",
    "check_bool",
    "check_divisible",
    "check_floating",
    "check_index",
    "check_integer",
    "check_least",
    "check_rank",
    "check_shape",
    "check_static",
    "column_settings",
    "device_guard",
    "loop_settings",
    "next_power_of_2",
    "persistent_settings",
    "piece_settings",
    "row_settings",
    "row_shape",
    "scatter_settings",
    "scalable",
    "scale_in_place",
    "sm_count",
    "strided_settings",
    "sum_each",
    "sum_partials",
    "tuned",
    "wide_settings",
)


def _kernel(host: Host, kernel: KernelText) -> dict[str, Any]:
    columns = "n_cols: tl.constexpr" if kernel.wide else "n_cols"
    sizes = ["n_elements"] if kernel.flat else ["n_rows", columns] if kernel.blocks else []
    blocks = ["BLOCK_SIZE"] if kernel.flat else ["BLOCK_ROWS", "BLOCK_COLS"] if kernel.blocks else []
    blocks += ["NUM_STAGES"] if any("NUM_STAGES" in line for line in kernel.lines) else []
    blocks += ["RELOAD"] if kernel.reloads else []
    blocks += ["LATE"] if kernel.late else []
    scalars = [name for name in host.scalars if name in (*kernel.scalars, *kernel.statics)]
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
