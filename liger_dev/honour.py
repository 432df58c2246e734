"""The derived profile and the reviewed one in, the compiler's options out: each edit is honoured or refused."""

import re

from collections.abc import Callable
from typing import Any

from liger_dev.axes import named
from liger_dev.errors import ProfileRefused
from liger_dev.profile import KernelProfile

# Fields that templates read from the reviewed profile itself.
BY_TEMPLATES = frozenset(
    {
        "function_class_name",
        "module_class_name",
        "functional_name",
        "closest_existing_kernel",
        "grid_description",
        "benchmark_variable",
        "benchmark_x_label",
        "benchmark_x_values_suggestion",
        "benchmark_providers",
        "benchmark_fixed_config",
        "assumptions",
        "provenance",
    }
)

_DERIVED = "it is derived from the reference: edit the reference, or restore the field"
REFUSED = {
    "operation_name": "files of all folders carry it: run `liger-dev new NAME --from kernels/reference/…` for another name",
    "tier": _DERIVED,
    "tier_description": "it follows from the tier",
    "forward_inputs": _DERIVED,
    "forward_outputs": _DERIVED,
    "forward_computation": _DERIVED,
    "gradient_formulas": _DERIVED,
    "precision_sensitive_ops": "kernels compute everything in float32; no operation can be taken out of that",
    "needs_sm_parallelism": "it follows from the gradients: a sum over rows needs one partial sum a program, others need none",
    "tolerances": "they are derived from the error that eager PyTorch makes",
}

_PERSISTENT = re.compile(r"\(min\((cdiv\(n_rows, BLOCK_ROWS\)|n_rows), (?:(\d+|per_sm) \* )?sm_count\),\)")


def options(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    """The compiler options that the edits ask for; empty when the profile is as derived.

    Raises:
        ProfileRefused: an edit that can't be honoured; the field, the reason and what would do are named.
    """
    chosen: dict[str, Any] = {}
    for field in KernelProfile.model_fields:
        old, new = getattr(derived, field), getattr(edited, field)
        if old == new:
            continue
        if field in REFUSED:
            raise ProfileRefused(f"profile field '{field}' can't be edited: {REFUSED[field]}", field, "restore it")
        if field in BY_TEMPLATES:
            continue
        chosen.update(_BY_COMPILER[field](derived, edited))
    _check_benchmark(edited)
    return chosen


def _saved(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    """`backward_saved_tensors` rules; a name moved into or out of `backward_recompute` alone moves the other way."""
    saved, recompute = edited.backward_saved_tensors, set(edited.backward_recompute)
    if saved == derived.backward_saved_tensors:
        dropped = [n for n in derived.backward_recompute if n not in recompute]
        saved = [n for n in saved if n not in recompute] + dropped
    both = recompute & set(saved)
    if both:
        raise ProfileRefused(
            f"{', '.join(sorted(both))} is both saved and recomputed", "backward_recompute", "name it in one of the two"
        )
    return {"saved": saved}


def _grid(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    one_row = []
    for stage, text in edited.grid_dimensions.items():
        usual = derived.grid_dimensions[stage]
        strided = _PERSISTENT.fullmatch(usual)
        match = _PERSISTENT.fullmatch(text)
        programs = match[2] or "1" if match else ""
        if strided and match and programs != "0":
            chosen["programs_per_sm"] = 0 if programs == "per_sm" else int(programs)
            one_row += [stage] if match[1] == "n_rows" else []
        elif text == "(n_rows,)" and usual == "(cdiv(n_rows, BLOCK_ROWS),)":
            one_row.append(stage)
        elif text != usual:
            allowed = [usual] + (["(min(…, K * sm_count),) with any whole K"] if strided else [])
            allowed += ["(n_rows,)"] if usual == "(cdiv(n_rows, BLOCK_ROWS),)" else []
            raise ProfileRefused(
                f"there is no schedule with the {stage} grid {text}",
                "grid_dimensions",
                f"choose {' or '.join(allowed)}",
            )
    missing = set(derived.grid_dimensions) - set(edited.grid_dimensions)
    if missing:
        raise ProfileRefused(
            f"grid_dimensions lacks {', '.join(sorted(missing))}", "grid_dimensions", "give both stages"
        )
    return {**chosen, "one_row": one_row}


def _block(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    text = edited.block_size_source
    number = int(text) if text.isdigit() else 0
    if not (16 <= number <= 65536 and number & (number - 1) == 0):
        raise ProfileRefused(
            f"block_size_source {text!r} is neither {derived.block_size_source!r} nor a power of two from 16 to 65536",
            "block_size_source",
            f"choose {derived.block_size_source} or a power of two",
        )
    return {"block_size" if derived.block_size_source.isdigit() else "block_cols": number}


def _init_params(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    """Defaults may change (templates print them); names and types belong to the reference."""
    before = [(p.name, p.type, p.choices) for p in derived.module_init_params]
    after = [(p.name, p.type, p.choices) for p in edited.module_init_params]
    if before != after:
        raise ProfileRefused(
            "module_init_params: names, types and order come from the reference; only defaults can be edited",
            "module_init_params",
            "edit the reference's signature",
        )
    for old, new in zip(derived.module_init_params, edited.module_init_params):
        kinds: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
        fits = new.default is None or (
            isinstance(new.default, kinds[old.type])
            and (old.type == "bool" or new.default is not True and new.default is not False)
        )
        if not fits:
            raise ProfileRefused(
                f"module_init_params: the default of {old.name} must be {old.type}", "module_init_params", "mend it"
            )
    return {}


def _learnable(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    """How a parameter is initialised may change; names and shapes belong to the reference."""
    before = [(p.name, p.shape, p.optional) for p in derived.learnable_params]
    after = [(p.name, p.shape, p.optional) for p in edited.learnable_params]
    if before != after:
        raise ProfileRefused(
            "learnable_params: names and shapes come from the reference; only init can be edited",
            "learnable_params",
            "edit SHAPES and PARAMETERS in the reference",
        )
    return {}


def _check_benchmark(profile: KernelProfile) -> None:
    """A benchmark must know the size of every axis, and have a provider to measure that exists."""
    axes = set(named(profile.forward_inputs))
    if profile.benchmark_variable not in axes:
        raise ProfileRefused(
            f"benchmark_variable {profile.benchmark_variable} is no axis of an input",
            "benchmark_variable",
            f"choose among {', '.join(sorted(axes))}",
        )
    missing = axes - {profile.benchmark_variable} - set(profile.benchmark_fixed_config)
    if missing:
        raise ProfileRefused(
            f"benchmark_fixed_config gives no size to {', '.join(sorted(missing))}", "benchmark_fixed_config", "add it"
        )
    if "liger" not in profile.benchmark_providers:
        raise ProfileRefused("benchmark_providers leaves out liger, the kernel itself", "benchmark_providers", "add it")


def _tuning(derived: KernelProfile, edited: KernelProfile) -> dict[str, Any]:
    """Measured settings: ranges that don't overlap, and numbers that a launch can take."""
    ranges: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for record in edited.tuning:
        where = f"{record.kernel}, {record.arch}, {record.dtype}"
        for name, value in record.settings.items():
            powers = name not in ("NUM_STAGES", "per_sm")
            if value < 1 or powers and value & (value - 1):
                kind = "a power of two" if powers else "a whole number above 0"
                raise ProfileRefused(f"tuning: {name} of {where} is {value}, not {kind}", "tuning", "mend it")
        ranges.setdefault((record.kernel, record.arch, record.dtype), []).append((record.above, record.up_to))
    for (kernel, arch, dtype), pairs in ranges.items():
        ends = [end for pair in sorted(pairs) for end in pair]
        if ends != sorted(ends) or any(above == up_to for above, up_to in pairs):
            raise ProfileRefused(
                f"tuning: ranges of {kernel}, {arch}, {dtype} overlap or are empty", "tuning", "leave one of them"
            )
    return {"tuning": [record.model_dump(mode="json") for record in edited.tuning]}


_BY_COMPILER: dict[str, Callable[[KernelProfile, KernelProfile], dict[str, Any]]] = {
    "backward_saved_tensors": _saved,
    "backward_recompute": _saved,
    "grid_dimensions": _grid,
    "block_size_source": _block,
    "module_init_params": _init_params,
    "learnable_params": _learnable,
    "tuning": _tuning,
}
