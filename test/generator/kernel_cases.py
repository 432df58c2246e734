"""Catalogue references with the profiles that an analyzer gives them: what the generator's tests render."""

import ast

from pathlib import Path

from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "liger_dev" / "catalog"

_INIT_SIZE = {"name": "hidden_size", "type": "int", "default": None}
_EPS = {"name": "eps", "type": "float", "default": 1e-6}


def _field(name, *shape, dtype="float", optional=False):
    return {"name": name, "shape": list(shape), "dtype": dtype, "optional": optional}


def _learnable(name, init, *shape, optional=False):
    return {"name": name, "shape": list(shape or ("hidden_size",)), "init": init, "optional": optional}


# Name: pascal-cased name, inputs, outputs, computation, module arguments, learnable parameters.
_CASES = {
    "softmax": (
        "Softmax",
        [_field("x", "B", "T", "V")],
        [_field("y", "B", "T", "V")],
        "y = exp(x - max(x)) / sum(exp(x - max(x)))",
        [],
        [],
    ),
    "swiglu": (
        "Swiglu",
        [_field("gate", "B", "T", "H"), _field("up", "B", "T", "H")],
        [_field("y", "B", "T", "H", dtype="promote(gate, up)")],
        "y = gate * sigmoid(gate) * up",
        [],
        [],
    ),
    "layer_norm": (
        "LayerNorm",
        [_field("x", "B", "T", "H"), _field("weight", "H", optional=True), _field("bias", "H", optional=True)],
        [_field("y", "B", "T", "H", dtype="x")],
        "y = x_hat * weight + bias, where x_hat = (x - mean) * rstd, rstd = rsqrt(sum((x - mean)^2) / H + eps), "
        "mean = sum(x) / H",
        [_INIT_SIZE, {**_EPS, "default": 1e-5}],
        [_learnable("weight", "ones", optional=True), _learnable("bias", "zeros", optional=True)],
    ),
    "fused_add_rms_norm": (
        "FusedAddRmsNorm",
        [_field("x", "B", "T", "H"), _field("residual", "B", "T", "H"), _field("weight", "H")],
        [_field("y", "B", "T", "H", dtype="promote(x, weight)"), _field("summed", "B", "T", "H", dtype="x")],
        "summed = x + residual; y = weight * summed * rsqrt(sum(summed * summed) / H + eps)",
        [_INIT_SIZE, _EPS],
        [_learnable("weight", "ones")],
    ),
    "dyt": (
        "Dyt",
        [_field("x", "B", "T", "H"), _field("alpha", 1), _field("gamma", "H"), _field("beta", "H")],
        [_field("y", "B", "T", "H", dtype="promote(x, alpha, gamma, beta)")],
        "y = gamma * tanh(alpha * x) + beta",
        [_INIT_SIZE],
        [_learnable("alpha", "full(0.5)", 1), _learnable("gamma", "ones"), _learnable("beta", "zeros")],
    ),
}
NAMES = ("rms_norm", *_CASES)


def load(name: str) -> tuple[Reference, KernelProfile]:
    """The reference and the profile of a case."""
    if name == "rms_norm":
        text = (ROOT / "profiles" / "rms_norm.yaml").read_text()
        profile = parse_profile(text, "profiles/rms_norm.yaml")
        return reference_of((ROOT / "kernels" / "reference" / "rms_norm.py").read_text(), profile), profile
    profile = _profile(name)
    return reference_of((CATALOG / f"{name}.py").read_text(), profile), profile


def reference_of(text: str, profile: KernelProfile) -> Reference:
    """A reference file's record; its tensors are the profile's inputs, its scalars what else the function takes."""
    tree = ast.parse(text)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    owned = {param.name: param.init for param in profile.learnable_params}
    tensors = tuple(
        Tensor(field.name, tuple(field.shape), field.dtype, field.optional, owned.get(field.name, ""))
        for field in profile.forward_inputs
    )
    arguments = function.args.args
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + function.args.defaults
    scalars = tuple(
        Scalar(argument.arg, ast.unparse(argument.annotation), None if default is None else ast.literal_eval(default))
        for argument, default in zip(arguments, defaults, strict=True)
        if argument.arg not in {tensor.name for tensor in tensors}
    )
    summary = ast.get_docstring(tree).splitlines()[0]
    return Reference(function.name, text, tensors, scalars, "catalogue", summary)


def _profile(name: str) -> KernelProfile:
    pascal, inputs, outputs, computation, init, learnable = _CASES[name]
    return KernelProfile.model_validate(
        {
            "operation_name": name,
            "function_class_name": f"Liger{pascal}Function",
            "module_class_name": f"Liger{pascal}",
            "functional_name": f"liger_{name}",
            "tier": 2,
            "tier_description": "reduction",
            "closest_existing_kernel": "none",
            "forward_inputs": inputs,
            "forward_outputs": outputs,
            "forward_computation": computation,
            "precision_sensitive_ops": [],
            "backward_saved_tensors": [field["name"] for field in inputs],
            "backward_recompute": [],
            "gradient_formulas": {field["name"]: f"d{field['name']} = ..." for field in inputs},
            "grid_dimensions": {"forward": "(n_rows,)", "backward": "(n_rows,)"},
            "grid_description": "a row a program",
            "block_size_source": "next_power_of_2(n_cols)",
            "needs_sm_parallelism": bool(learnable),
            "module_init_params": init,
            "learnable_params": learnable,
            "benchmark_variable": inputs[0]["shape"][-1],
            "benchmark_x_label": "row length",
            "benchmark_x_values_suggestion": [1024, 2048],
            "benchmark_providers": ["liger", "torch"],
            "benchmark_fixed_config": {"B": 4, "T": 2048, "dtype": "bfloat16"},
        }
    )
