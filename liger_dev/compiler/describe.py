"""A graph and its plan in, the profile's facts out: each field that a reviewer reads is derived here."""

from collections.abc import Sequence
from typing import Any

from liger_dev.axes import multiples
from liger_dev.axes import named
from liger_dev.axes import whole_of
from liger_dev.compiler.formulas import formula
from liger_dev.compiler.formulas import gradient_roots
from liger_dev.compiler.host import Host
from liger_dev.compiler.ir import Output
from liger_dev.compiler.layout import along
from liger_dev.compiler.ops import OPS
from liger_dev.profile import TIER_DESCRIPTIONS
from liger_dev.records import Tensor

# What an axis is called as an argument of a module, and in a benchmark: name, label, sizes.
_AXES: dict[str, tuple[str, str, list[int]]] = {
    "H": ("hidden_size", "hidden size", [1024, 2048, 4096, 8192, 16384]),
    "I": ("intermediate_size", "intermediate size", [4096, 8192, 11008, 14336, 28672]),
    "V": ("vocab_size", "vocabulary size", [4096, 8192, 16384, 32768, 65536]),
    "D": ("head_dim", "head dimension", [64, 128, 256]),
}
_ROWS = {"B": 4, "T": 2048}


def pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def describe(host: Host, dtypes: Sequence[str]) -> dict[str, Any]:
    """All fields of `KernelProfile` but provenance and closest kernel, which are known to the analyzer only. `dtypes` are
    those that eager PyTorch runs the reference with."""
    reference, graph = host.reference, host.graph
    name, forward_values = reference.name, graph.walk(output.value for output in graph.outputs)
    values = graph.walk([*(o.value for o in graph.outputs), *graph.gradients.values()])
    tier = 3 if host.plan.host or host.plan.kept else 2 if any(along(value) for value in values) else 1
    operations = {v.op for v in values if OPS[v.op].precise}
    suffix = "" if any(output.value.axes for output in graph.outputs) else "Loss"
    gradients: dict[str, list[str]] = {}
    for (key, _), (label, value) in zip(graph.gradients, gradient_roots(graph)):
        gradients.setdefault(key, []).append(formula(graph, label, value))
    return {
        "operation_name": name,
        "function_class_name": f"Liger{pascal(name)}Function",
        "module_class_name": f"Liger{pascal(name).removesuffix(suffix) if suffix else pascal(name)}{suffix}",
        "functional_name": f"liger_{name}",
        "tier": tier,
        "tier_description": TIER_DESCRIPTIONS[tier],
        "closest_existing_kernel": "none",
        "forward_inputs": [_tensor(tensor) for tensor in reference.tensors],
        "forward_outputs": [_output(output) for output in graph.outputs],
        "forward_computation": "; ".join(formula(graph, o.name, o.value) for o in graph.outputs),
        "precision_sensitive_ops": sorted(operations),
        "backward_saved_tensors": host.saved,
        "backward_recompute": list(dict.fromkeys(graph.names[v] for v in host.plan.recomputed if v in forward_values)),
        "gradient_formulas": {key: "; ".join(texts) for key, texts in gradients.items()},
        **_launch(host),
        **_module(host),
        **_benchmark(host, "bfloat16" if "bfloat16" in dtypes else dtypes[-1]),
        "assumptions": list(reference.assumptions),
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype, "optional": tensor.optional}


def _output(output: Output) -> dict[str, Any]:
    dtypes = output.dtype_of
    dtype = f"promote({', '.join(dtypes)})" if len(dtypes) > 1 else f"same as {dtypes[0]}" if dtypes else "float32"
    if output.value.dtype != "float":
        dtype = output.whole if output.whole != "int64" else output.value.dtype
    shape: list[str | int] = [" * ".join(dim) if dim else 1 for dim in output.dims]
    return {"name": output.name, "shape": shape, "dtype": dtype}


def _launch(host: Host) -> dict[str, Any]:
    options = host.options
    backward = [spec for launch in host.backward for spec in ([launch.single] if launch.single else launch.looped)]
    if host.main.layout.flat and all(spec.layout.flat for spec in backward):
        grid = "(cdiv(n_elements, BLOCK_SIZE),)"
        return {
            "grid_dimensions": {"forward": grid, "backward": grid},
            "grid_description": f"one program for {options.block_size} elements, wherever rows begin",
            "block_size_source": str(options.block_size),
            "needs_sm_parallelism": False,
        }
    sums = [acc.name for spec in backward for acc in spec.accumulators]
    plain = {
        stage: "(n_rows,)" if stage in options.one_row else "(cdiv(n_rows, BLOCK_ROWS),)"
        for stage in ("forward", "backward")
    }
    blocks = "n_rows" if "backward" in options.one_row else "cdiv(n_rows, BLOCK_ROWS)"
    strided = f"(min({blocks}, {options.programs_per_sm or 'per_sm'} * sm_count),)"
    whole = (
        "a program takes BLOCK_ROWS rows, block of columns by block"
        if host.forward[0].single is None
        else "a program holds BLOCK_ROWS whole rows"
    )
    if host.main.pieces:
        whole = "a program takes BLOCK_ROWS rows of BLOCK_COLS columns"
    for stage, pieces in (("forward", host.main.pieces), ("backward", any(spec.pieces for spec in backward))):
        if pieces:
            plain[stage] = "(cdiv(n_rows, BLOCK_ROWS), cdiv(n_cols, BLOCK_COLS))"
            strided = "(min(cdiv(n_rows, BLOCK_ROWS), per_sm * sm_count / pieces), pieces = cdiv(n_cols, BLOCK_COLS))"
    grouped = [spec for spec in backward if spec.layout.groups]
    over = f"the rows of each {' and '.join(grouped[0].layout.groups)} in turn" if grouped else "rows"
    if grouped:
        share = ", cdiv(n_cols, BLOCK_COLS)" if any(spec.pieces for spec in backward) else ""
        strided = f"(min(n_groups, per_sm * sm_count), n_splits{share})"
    if any(spec.scatter is not None for spec in backward):
        whole += "; in backward the first row of an index adds up the gradients of all rows of that index"
    return {
        "grid_dimensions": {"forward": plain["forward"], "backward": strided if sums else plain["backward"]},
        "grid_description": whole
        + (f"; in backward it strides over {over} and keeps its part of {_listed(sums)}" if sums else ""),
        "block_size_source": str(options.block_cols or "next_power_of_2(n_cols)"),
        "needs_sm_parallelism": bool(sums),
    }


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _axis_argument(axis: str | int) -> str | int:
    return _AXES.get(axis, (f"{axis.lower()}_size", "", []))[0] if isinstance(axis, str) else axis


def _module(host: Host) -> dict[str, Any]:
    learnable = [t for t in host.reference.tensors if t.init]
    sizes = dict.fromkeys(_axis_argument(a) for t in learnable for a in t.shape if isinstance(a, str))
    return {
        "module_init_params": [
            *({"name": name, "type": "int", "default": None} for name in sizes),
            *(
                {"name": s.name, "type": s.type, "default": s.default, "choices": list(s.choices)}
                for s in host.reference.scalars
            ),
        ],
        "learnable_params": [
            {
                "name": t.name,
                "shape": [_axis_argument(a) for a in t.shape],
                "init": t.init,
                "optional": t.optional,
            }
            for t in learnable
        ],
    }


def _benchmark(host: Host, dtype: str) -> dict[str, Any]:
    axes = named(host.reference.tensors)
    largest = max(host.reference.tensors, key=lambda t: len([a for a in t.shape if isinstance(a, str)]))
    last = [a for a in largest.shape if isinstance(a, str)][-1]
    variable = str(whole_of(last))
    _, label, usual = _AXES.get(variable, ("", f"size of {variable}", [1024, 2048, 4096, 8192, 16384]))
    multiple = multiples(host.reference.tensors).get(variable, 1)
    sizes = [-(-size // multiple) * multiple for size in usual]
    others = [axis for axis in axes if axis != variable]
    fallback = max(1, round((2**25 / 4096) ** (1 / max(1, len(others)))))
    return {
        "benchmark_variable": variable,
        "benchmark_x_label": label,
        "benchmark_x_values_suggestion": sizes,
        "benchmark_providers": ["liger", "torch", "torch_compile"],
        "benchmark_fixed_config": {**{axis: _ROWS.get(axis, fallback) for axis in others}, "dtype": dtype},
    }
