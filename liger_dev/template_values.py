"""A reference and a reviewed profile go in; everything that templates print comes out, as names and finished lines."""

import re
import textwrap

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from liger_dev.case_values import DTYPES
from liger_dev.case_values import FREE
from liger_dev.case_values import SizeDemands
from liger_dev.case_values import case_values
from liger_dev.literals import literal
from liger_dev.profile import KernelProfile
from liger_dev.profile import LearnableParam
from liger_dev.profile import TensorField
from liger_dev.ranks import accepts_any_rank
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor

_WIDTH = 120
_WHOLE = re.compile(r"u?int\d*|bool")
_RESETS = {"ones": "nn.init.ones_({0})", "zeros": "nn.init.zeros_({0})", "normal": "nn.init.normal_({0})"}


def values(
    reference: Reference,
    profile: KernelProfile,
    sizes: SizeDemands = FREE,
    counted_axes: Iterable[str] = (),
    picked: Iterable[Mapping[str, Any]] = (),
    dtypes: Sequence[str] = DTYPES,
) -> dict[str, Any]:
    """All values that the templates of module, functional entry, test and benchmark script need.

    Names and shapes of arguments are the reference's, names of classes and module arguments the profile's. `sizes`
    says which sizes the op takes, `counted_axes` are those that a tensor must have as they are, `picked` the inputs
    that pick elements along an axis, `dtypes` those that eager PyTorch runs the reference with.
    """
    fields = profile.model_dump(mode="json")
    names = [tensor.name for tensor in reference.tensors]
    arguments = [*names, *(scalar.name for scalar in reference.scalars)]
    batch = batch_axes(reference)
    any_rank = bool(batch) and accepts_any_rank(reference) and not set(batch) & set(counted_axes)
    return {
        **fields,
        "profile": profile,
        "reference": reference,
        "differentiable": any(not _WHOLE.fullmatch(output.dtype) for output in profile.forward_outputs),
        "summary": sentence(reference.summary or profile.forward_computation),
        "computation": sentence(profile.forward_computation),
        "tensors": [_tensor(tensor, profile) for tensor in reference.tensors],
        "tensor_names": names,
        "scalars": [_scalar(scalar) for scalar in reference.scalars],
        "signature": signature(reference),
        "apply_arguments": ", ".join(arguments),
        "functional_doc": _functional_doc(reference, profile, batch if any_rank else ()),
        **_module(reference, profile, batch if any_rank else ()),
        "refuses_rank": bool(batch) and not any_rank,
        **case_values(reference, profile, batch, any_rank, sizes, picked, dtypes),
    }


def sentence(text: str) -> str:
    """A text with one full stop at its end."""
    return text.strip().rstrip(".") + "."


def signature(reference: Reference) -> str:
    """The parameters of the functional form: tensors, then scalars, with the reference's defaults."""
    tensors = [f"{tensor.name}=None" if tensor.optional else tensor.name for tensor in reference.tensors]
    return ", ".join([*tensors, *(_with_default(scalar.name, scalar.default) for scalar in reference.scalars)])


def batch_axes(reference: Reference) -> tuple[str | int, ...]:
    """The leading axes that tensors either all begin with or don't have: an op treats them as one axis of rows.
    Those of a table, whose rows an index counts, are none, nor is one whose size is a number."""
    counted = {tensor.range for tensor in reference.tensors}
    tables = [tensor for tensor in reference.tensors if len(tensor.shape) > 1 and tensor.shape[0] in counted]
    first = next((tensor for tensor in reference.tensors if tensor not in tables), reference.tensors[0])
    shape = first.shape
    for length in range(len(shape) if tables else len(shape) - 1, 0, -1):
        lead = shape[:length]
        if not all(isinstance(axis, str) for axis in lead):
            continue
        if all(_begins_with(tensor.shape, lead) or not set(lead) & set(tensor.shape) for tensor in reference.tensors):
            return lead
    return ()


def _begins_with(shape: tuple[str | int, ...], lead: tuple[str | int, ...]) -> bool:
    return shape[: len(lead)] == lead and not set(shape[len(lead) :]) & set(lead)


def shape_text(shape: tuple[str | int, ...], batch: tuple[str | int, ...] = ()) -> str:
    """A shape as documentation prints it; batch axes that may be any number become `...`."""
    if batch and shape[: len(batch)] == batch:
        shape = ("...", *shape[len(batch) :])
    inner = ", ".join(str(axis) for axis in shape)
    return f"({inner},)" if len(shape) == 1 and shape[0] != "..." else f"({inner})"


def _with_default(name: str, default: Any) -> str:
    return name if default is None else f"{name}={literal(default)}"


def _scalar(scalar: Scalar) -> dict[str, Any]:
    return {"name": scalar.name, "type": scalar.type, "default": literal(scalar.default)}


def _tensor(tensor: Tensor, profile: KernelProfile) -> dict[str, Any]:
    learnable = any(param.name == tensor.name for param in profile.learnable_params)
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "optional": tensor.optional,
        "learnable": learnable,
    }


def _functional_doc(reference: Reference, profile: KernelProfile, batch: tuple[str | int, ...]) -> list[str]:
    """The docstring's lines, each with its indentation; the first follows the opening quotes."""
    outputs = [_output_text(output, batch) for output in profile.forward_outputs]
    return [
        *_wrapped(sentence(reference.summary or profile.forward_computation)),
        "",
        "    Args:",
        *(f"        {_argument_text(tensor, batch)}" for tensor in reference.tensors),
        "",
        "    Returns:",
        *(f"        {text}" for text in outputs),
    ]


def _argument_text(tensor: Tensor, batch: tuple[str | int, ...]) -> str:
    dtypes = {"float": "float32, bfloat16 or float16", "int": "int32 or int64"}.get(tensor.dtype, tensor.dtype)
    absent = " None leaves it out." if tensor.optional else ""
    return f"{tensor.name}: {shape_text(tensor.shape, batch)}, {dtypes}.{absent}"


def _output_text(output: TensorField, batch: tuple[str | int, ...]) -> str:
    promoted = re.fullmatch(r"promote\((.*)\)", output.dtype)
    if output.dtype == "float":
        dtype = ""
    elif promoted:
        dtype = ", in the dtype that " + " and ".join(re.split(r",\s*", promoted[1])) + " promote to"
    elif re.fullmatch(r"(float|bfloat|int|uint)\d+|bool", output.dtype):
        dtype = f", {output.dtype}"
    else:
        dtype = f", in the dtype of {output.dtype}"
    return f"{output.name}: {shape_text(tuple(output.shape), batch)}{dtype}."


def _module(reference: Reference, profile: KernelProfile, batch: tuple[str | int, ...]) -> dict[str, Any]:
    learnable = {param.name: param for param in profile.learnable_params}
    parameters = [_parameter(param, profile) for param in profile.learnable_params]
    stored = [param.name for param in profile.module_init_params]
    flags = [p["flag"] for p in parameters if p["flag"] and p["flag"] not in stored]
    inits = [_with_default(param.name, param.default) for param in profile.module_init_params]
    inputs = [tensor for tensor in reference.tensors if tensor.name not in learnable]
    free = [scalar for scalar in reference.scalars if scalar.name not in stored]
    owned = {*learnable, *stored}
    arguments = [*(tensor.name for tensor in reference.tensors), *(scalar.name for scalar in reference.scalars)]
    shown = [f"{name}={{self.{name}}}" for name in stored]
    return {
        "parameters": parameters,
        "module_stored": stored,
        "module_signature": ", ".join([*inits, *(f"{flag}=True" for flag in flags)]),
        "module_forward_signature": ", ".join(
            [
                *(f"{tensor.name}=None" if tensor.optional else tensor.name for tensor in inputs),
                *(_with_default(scalar.name, scalar.default) for scalar in free),
            ]
        ),
        "module_apply_arguments": ", ".join(f"self.{name}" if name in owned else name for name in arguments),
        "module_repr": ", ".join(shown),
        "module_doc": _module_doc(reference, profile, inputs, batch),
    }


def _parameter(param: LearnableParam, profile: KernelProfile) -> dict[str, Any]:
    size = ", ".join(str(axis) for axis in param.shape)
    target = f"self.{param.name}"
    value = re.fullmatch(r"full\((.*)\)", param.init)
    reset = f"nn.init.constant_({target}, {value[1]})" if value else _RESETS[param.init].format(target)
    optional = param.optional or any(field.name == param.name and field.optional for field in profile.forward_inputs)
    return {
        "name": param.name,
        "shape": list(param.shape),
        "size": size,
        "reset": reset,
        "init": param.init,
        "flag": f"with_{param.name}" if optional else "",
    }


def _module_doc(
    reference: Reference, profile: KernelProfile, inputs: list[Tensor], batch: tuple[str | int, ...]
) -> list[str]:
    lines = _wrapped(sentence(profile.forward_computation))
    shapes = [f"{tensor.name} {shape_text(tensor.shape, batch)}" for tensor in inputs]
    results = [f"{output.name} {shape_text(tuple(output.shape), batch)}" for output in profile.forward_outputs]
    owned = {param.name for param in profile.learnable_params}
    parameters = [f"{t.name} {shape_text(t.shape)}" for t in reference.tensors if t.name in owned]
    ending = f" Parameters: {', '.join(parameters)}." if parameters else ""
    shape_lines = _wrapped(f"Shapes: {', '.join(shapes)} -> {', '.join(results)}.{ending}")
    return [*lines, "", f"    {shape_lines[0]}", *shape_lines[1:]]


def _wrapped(text: str) -> list[str]:
    """Docstring lines: the first bare, the rest indented by four."""
    lines = textwrap.wrap(text, _WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return [lines[0], *(f"    {line}" for line in lines[1:])]
