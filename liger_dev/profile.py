"""The kernel profile: the contract between analyzer, reviewer and generator, as a checked YAML file."""

from typing import Any
from typing import Literal

import yaml

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import ValidationError

from liger_dev.errors import BadInput

_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"

TIER_DESCRIPTIONS = {1: "element-wise", 2: "reduction", 3: "fused/complex"}
PROVIDERS = ("liger", "torch", "torch_compile", "liger_kernel")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorField(_Strict):
    """A tensor: axis names a dimension, and a dtype (`float` stands for float32, bfloat16 and float16)."""

    name: str = Field(pattern=_IDENTIFIER)
    shape: list[str | int]
    dtype: str
    optional: bool = False


class InitParam(_Strict):
    """An argument of the module's `__init__`; `default: null` means that it has none. `choices` are the values that it
    may take where each has kernels of its own."""

    name: str = Field(pattern=_IDENTIFIER)
    type: Literal["int", "float", "bool", "str"]
    default: bool | int | float | str | None = None
    choices: list[bool | int | float | str] = []


class LearnableParam(_Strict):
    """A parameter of the module; `shape` in terms of init arguments, `init` ones, zeros, normal or full(VALUE)."""

    name: str = Field(pattern=_IDENTIFIER)
    shape: list[str | int]
    init: str = Field(pattern=r"^(ones|zeros|normal|full\(-?[0-9.]+(e-?[0-9]+)?\))$")
    optional: bool = False


class Timing(_Strict):
    """Milliseconds of the pass that a kernel is in, at one number of columns (elements, where rows don't matter)."""

    size: int = Field(ge=1)
    ms: float = Field(gt=0)
    default_ms: float = Field(gt=0)


class Tuned(_Strict):
    """Settings of one kernel that were measured to be faster than the default ones, and where.

    They hold for rows of more than `above` and up to `up_to` columns. `body` is the digest of the kernel's text.
    """

    kernel: str = Field(pattern=_IDENTIFIER)
    body: str = Field(pattern=r"^[0-9a-f]{8}$")
    arch: str = Field(pattern=r"^(sm_\d+|gfx[0-9a-f]+|cpu)$")
    dtype: Literal["float32", "bfloat16", "float16"]
    above: int = Field(ge=0)
    up_to: int = Field(ge=1)
    settings: dict[str, int]
    gpu: str
    date: str
    versions: dict[str, str]
    timings: list[Timing]


class KernelProfile(_Strict):
    """Every field that a reviewer may read and edit; the generator honours an edit or refuses it with a reason."""

    operation_name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    function_class_name: str = Field(pattern=r"^Liger[A-Za-z0-9]+Function$")
    module_class_name: str = Field(pattern=r"^Liger[A-Za-z0-9]+$")
    functional_name: str = Field(pattern=r"^liger_[a-z0-9_]+$")

    tier: Literal[1, 2, 3]
    tier_description: str
    closest_existing_kernel: str

    forward_inputs: list[TensorField]
    forward_outputs: list[TensorField]
    forward_computation: str
    precision_sensitive_ops: list[str]

    backward_saved_tensors: list[str]
    backward_recompute: list[str]
    gradient_formulas: dict[str, str]

    grid_dimensions: dict[Literal["forward", "backward"], str]
    grid_description: str
    block_size_source: str
    needs_sm_parallelism: bool

    module_init_params: list[InitParam]
    learnable_params: list[LearnableParam]

    benchmark_variable: str
    benchmark_x_label: str
    benchmark_x_values_suggestion: list[int] = Field(min_length=1)
    benchmark_providers: list[Literal["liger", "torch", "torch_compile", "liger_kernel"]] = Field(min_length=1)
    benchmark_fixed_config: dict[str, int | float | str]

    assumptions: list[str] = []
    provenance: dict[str, str] = {}
    tuning: list[Tuned] = []
    tolerances: dict[str, Any] = {}


def parse_profile(text: str, where: str) -> KernelProfile:
    """The profile in a YAML text. Raises BadInput that names the field when it does not fit the schema."""
    try:
        data = yaml.safe_load(text)
        return KernelProfile.model_validate(data)
    except yaml.YAMLError as error:
        raise BadInput(f"the profile is not valid YAML: {error}", where, "mend the file and run again") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInput(
            f"profile field '{field}': {first['msg']}",
            where,
            "mend the field; `liger-dev show --schema` prints what it takes",
        ) from None


def print_profile(profile: KernelProfile) -> str:
    """The profile as YAML, fields in the schema's order, defaults that say nothing left out."""
    data = profile.model_dump(mode="json")
    for name in ("assumptions", "provenance", "tuning", "tolerances"):
        if not data[name]:
            del data[name]
    for row in (*data["forward_inputs"], *data["forward_outputs"], *data["learnable_params"]):
        if not row["optional"]:
            del row["optional"]
    for row in data["module_init_params"]:
        if not row["choices"]:
            del row["choices"]
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Block style for fields, flow style for lists of plain values: `shape: [B, T, H]`."""


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    plain = all(isinstance(item, str | int | float) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=plain)


_Dumper.add_representer(list, _list)
