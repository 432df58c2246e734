"""A reference that the compiler can't express and an agent's facts in, its profile out; what can be derived is derived.

Names, inputs, outputs, module arguments and the benchmark follow from the reference. The gradient formulas are the
agent's, and have been compared with autograd. How the kernel is launched is what the agent plans.
"""

from typing import Any
from typing import Literal

from pydantic import Field

from liger_dev.agents.tools import Arguments
from liger_dev.profile import TIER_DESCRIPTIONS
from liger_dev.profile import KernelProfile
from liger_dev.records import Reference
from liger_dev.records import Tensor

# The key in a profile's provenance that says why the compiler has no part in the kernel.
BY_AGENT = "compiler"
_AXIS_ARGUMENTS = {"H": "hidden_size", "I": "intermediate_size", "V": "vocab_size", "D": "head_dim"}
_ROWS = {"B": 4, "T": 2048}
_OTHERS = 1024


class Formula(Arguments):
    """A gradient as a Python expression."""

    tensor: str
    expression: str = Field(description="e.g. dy * torch.sigmoid(x)")


class KernelFacts(Arguments):
    """What a profile says of a kernel that no compiler plans."""

    tier: Literal[1, 2, 3] = Field(description="1 no reduction, 2 row reductions, 3 several passes or fused")
    forward_computation: str = Field(description="one line of mathematics, e.g. y = x * sigmoid(x)")
    precision_sensitive_ops: list[str] = Field(description="e.g. exp, rsqrt, sum: computed in float32")
    backward_saved_tensors: list[str]
    backward_recompute: list[str]
    gradient_formulas: list[Formula] = Field(description="one for each floating-point tensor argument")
    grid_forward: str = Field(description="e.g. (n_rows,)")
    grid_backward: str
    grid_description: str
    block_size_source: str = Field(description="e.g. next_power_of_2(n_cols), or a number")
    needs_sm_parallelism: bool = Field(description="whether backward keeps a partial sum a multiprocessor")

    def formulas(self) -> dict[str, str]:
        return {formula.tensor: formula.expression for formula in self.gradient_formulas}


def is_by_agent(profile: KernelProfile) -> bool:
    """Whether the kernel of this profile is an agent's, since the compiler can't express the reference."""
    return BY_AGENT in profile.provenance


def draft_profile(
    reference: Reference, facts: KernelFacts, outputs: list[dict[str, Any]], provenance: dict[str, str]
) -> KernelProfile:
    """The profile; `outputs` are what `output_facts` has found."""
    name = reference.name
    pascal = "".join(part.capitalize() for part in name.split("_"))
    return KernelProfile.model_validate(
        {
            "operation_name": name,
            "function_class_name": f"Liger{pascal}Function",
            "module_class_name": f"Liger{pascal}",
            "functional_name": f"liger_{name}",
            "tier": facts.tier,
            "tier_description": TIER_DESCRIPTIONS[facts.tier],
            "closest_existing_kernel": "none",
            "forward_inputs": [_tensor(tensor) for tensor in reference.tensors],
            "forward_outputs": outputs,
            "forward_computation": facts.forward_computation,
            "precision_sensitive_ops": facts.precision_sensitive_ops,
            "backward_saved_tensors": facts.backward_saved_tensors,
            "backward_recompute": facts.backward_recompute,
            "gradient_formulas": {key: f"d{key} = {text}" for key, text in facts.formulas().items()},
            "grid_dimensions": {"forward": facts.grid_forward, "backward": facts.grid_backward},
            "grid_description": facts.grid_description,
            "block_size_source": facts.block_size_source,
            "needs_sm_parallelism": facts.needs_sm_parallelism,
            **_module(reference),
            **_benchmark(reference),
            "assumptions": list(reference.assumptions),
            "provenance": provenance,
        }
    )


def redrafted(reference: Reference, profile: KernelProfile, outputs: list[dict[str, Any]]) -> KernelProfile:
    """The profile of an edited reference: what follows from it anew, what the agent planned as it was."""
    fields = {
        "forward_inputs": [_tensor(tensor) for tensor in reference.tensors],
        "forward_outputs": outputs,
        "assumptions": list(dict.fromkeys((*profile.assumptions, *reference.assumptions))),
        **_module(reference),
    }
    return KernelProfile.model_validate({**profile.model_dump(mode="json"), **fields})


def formulas_of(profile: KernelProfile) -> dict[str, str]:
    """The gradient formulas as expressions again."""
    return {key: text.removeprefix(f"d{key} = ") for key, text in profile.gradient_formulas.items()}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype, "optional": tensor.optional}


def _argument(axis: str | int) -> str | int:
    return _AXIS_ARGUMENTS.get(axis, f"{axis.lower()}_size") if isinstance(axis, str) else axis


def _module(reference: Reference) -> dict[str, Any]:
    learnable = [tensor for tensor in reference.tensors if tensor.init]
    sizes = dict.fromkeys(_argument(axis) for tensor in learnable for axis in tensor.shape if isinstance(axis, str))
    return {
        "module_init_params": [
            *({"name": size, "type": "int", "default": None} for size in sizes),
            *({"name": s.name, "type": s.type, "default": s.default} for s in reference.scalars),
        ],
        "learnable_params": [
            {"name": t.name, "shape": [_argument(a) for a in t.shape], "init": t.init, "optional": t.optional}
            for t in learnable
        ],
    }


def _benchmark(reference: Reference) -> dict[str, Any]:
    axes = dict.fromkeys(axis for tensor in reference.tensors for axis in tensor.shape if isinstance(axis, str))
    largest = max(reference.tensors, key=lambda tensor: len(tensor.shape))
    variable = [axis for axis in largest.shape if isinstance(axis, str)][-1]
    label = str(_argument(variable)).replace("_", " ")
    return {
        "benchmark_variable": variable,
        "benchmark_x_label": label,
        "benchmark_x_values_suggestion": [1024, 2048, 4096, 8192],
        "benchmark_providers": ["liger", "torch", "torch_compile"],
        "benchmark_fixed_config": {
            **{axis: _ROWS.get(axis, _OTHERS) for axis in axes if axis != variable},
            "dtype": "bfloat16",
        },
    }
