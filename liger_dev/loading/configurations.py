"""A class whose `__init__` takes a configuration object in, that object out: built small, with the fields that are given."""

import importlib
import inspect
import os
import re
import sys

from typing import Any

import torch

from liger_dev.errors import BadInput
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import users_code

# Sizes are pairwise different where a model may have them so: equal ones would hide a wrong match of axes.
_SMALL_SIZES = {
    64: "hidden_size d_model n_embd dim embed_dim",
    96: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size",
    48: "moe_intermediate_size shared_expert_intermediate_size",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "num_experts num_local_experts n_routed_experts",
    2: "num_key_value_heads num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
    "num_experts_per_tok",
    16: "head_dim d_kv",
    128: "vocab_size",
    80: "max_position_embeddings n_positions",
}
_SIZE_OF = {field: size for size, fields in _SMALL_SIZES.items() for field in fields.split()}


def split_fields(init: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """`{"eps": 1e-6, "config.hidden_size": 64}` as plain arguments and the fields of objects."""
    plain = {name: value for name, value in init.items() if "." not in name}
    fields: dict[str, dict[str, Any]] = {}
    for name, value in init.items():
        owner, dot, field = name.partition(".")
        if dot:
            fields.setdefault(owner, {})[field] = value
    return plain, fields


def takes_configuration(parameter: inspect.Parameter, fields: dict[str, dict[str, Any]]) -> bool:
    """Whether an argument is a configuration object: fields are given for it, or it is called or annotated so."""
    return parameter.name in fields or parameter.name == "config" or _annotated(parameter).endswith("Config")


def configuration(
    kind: type[torch.nn.Module], parameter: inspect.Parameter, fields: dict[str, Any], place: Place
) -> tuple[Any, str]:
    """The configuration object for an argument of `kind`'s `__init__`, and what was assumed about it.

    Sizes that are not in `fields` are small where the class has them under their usual names.

    Raises:
        BadInput: the object's class is not found, has no such field, or refuses the values.
    """
    found = _configuration_class(kind, parameter)
    if found is None:
        raise BadInput(
            f"the class of the argument '{parameter.name}' is not found",
            place.shown,
            f"annotate it in __init__, as in '{parameter.name}: NameOfItsClass'",
        )
    declared = inspect.signature(found).parameters
    unknown = [name for name in fields if name not in declared and not hasattr(found, name)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in declared.values())
    if unknown and not (open_ended and hasattr(_built_or_none(found, {}), unknown[0])):
        raise BadInput(
            f"{found.__name__} has no field '{unknown[0]}'",
            f"--init {parameter.name}.{unknown[0]}",
            f"it has {', '.join(name for name in declared if name != 'kwargs')}",
        )
    small = {name: size for name, size in _SIZE_OF.items() if name in declared and name not in fields}
    built = _built_or_none(found, small | fields)
    said = f"{parameter.name} is a {found.__name__}, its other sizes small; pass --init {parameter.name}.FIELD=VALUE"
    if built is None:
        said = f"{parameter.name} is a {found.__name__} with its own defaults; pass --init {parameter.name}.FIELD=VALUE"
        with users_code("the configuration can't be built", place, f"give --init {parameter.name}.FIELD=VALUE"):
            built = found(**fields)
    return built, said


def _built_or_none(found: type, values: dict[str, Any]) -> Any:
    """The class may refuse any combination of sizes, in a way of its own; it is then asked with fewer."""
    place = Place(found.__name__)
    try:
        with users_code("the configuration can't be built", place):
            return found(**values)
    except BadInput:
        return None


def _configuration_class(kind: type[torch.nn.Module], parameter: inspect.Parameter) -> type | None:
    """By annotation, else the class `...Config` of the same module, or of its sibling, with the most alike name."""
    annotation = parameter.annotation
    if isinstance(annotation, type) and annotation is not parameter.empty and not _base(annotation):
        return annotation
    spaces = [vars(sys.modules[kind.__module__]), *_sibling(kind.__module__)]
    for word in re.findall(r"\w+", _annotated(parameter)):
        for space in spaces:
            if isinstance(space.get(word), type) and not _base(space[word]):
                return space[word]  # type: ignore[no-any-return]
    for space in spaces:
        known = [v for n, v in space.items() if isinstance(v, type) and n.endswith("Config") and not _base(v)]
        if known:
            return max(known, key=lambda c: len(os.path.commonprefix([c.__name__, kind.__name__])))
    return None


def _sibling(module: str) -> list[dict[str, Any]]:
    """The names of `configuration_x` beside `modeling_x`."""
    name = module.replace(".modeling_", ".configuration_")
    if name == module:
        return []
    try:
        return [vars(importlib.import_module(name))]
    except ImportError:
        return []


def _base(kind: type) -> bool:
    """Whether a class is what all configurations derive from."""
    return kind.__name__ in ("PretrainedConfig", "PreTrainedConfig")


def _annotated(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    if isinstance(parameter.annotation, type):
        return parameter.annotation.__name__
    return str(parameter.annotation)
