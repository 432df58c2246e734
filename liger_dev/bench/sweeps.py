"""A benchmark's spec and what the user asked for in, the sizes of every point of the sweep out."""

import math

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from liger_dev.bench.models import DEFAULT_MODEL
from liger_dev.bench.models import MODELS
from liger_dev.bench.models import Model
from liger_dev.bench.models import model
from liger_dev.errors import BadInput

SWEEP_MODES = ("size", "token_length", "model_config")
# What x is called where it is no size of the kernel's own.
OTHER_SWEEPS = ("BT", "model_config")
DEFAULT_TOKENS = 4096
TOKEN_LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
# The names that references give to their axes: which of a model's sizes an axis is, and which axes count tokens.
MODEL_AXES = {"H": "hidden_size", "I": "intermediate_size", "V": "vocab_size", "D": "head_dim"}
TOKEN_AXES = ("N", "BT", "M", "B", "T", "S")

Size = int | float | str
Points = Mapping[int | str, Mapping[str, Size]]


@dataclass(frozen=True)
class Sweep:
    """What varies. `points` are all sizes by name at each x, `fixed` those that the CSV states beside x."""

    x_name: str
    x_label: str
    points: Points
    fixed: Mapping[str, Size]

    def elements(self, x: int | str) -> int:
        """The product of the whole sizes at x, which its memory is taken to grow with."""
        return math.prod(size for size in self.points[x].values() if isinstance(size, int) and size > 0)


def size_sweep(x_name: str, x_label: str, x_values: Sequence[int], config: Mapping[str, Size]) -> Sweep:
    """One size varies, and all others are those of `config`."""
    fixed = _sizes(config)
    return Sweep(x_name, x_label, {x: {**fixed, x_name: x} for x in x_values}, fixed)


def token_sweep(x_name: str, config: Mapping[str, Size], model_name: str, lengths: Sequence[int]) -> Sweep:
    """The number of tokens varies, at one model's sizes. Raises BadInput if the op has no tokens or no model's size."""
    sizes = model_sizes(x_name, config, model(model_name))
    points: Points = {tokens: {**_sizes(config), **sizes, **_tokens(config, tokens)} for tokens in lengths}
    return Sweep(OTHER_SWEEPS[0], "total tokens", points, {"model": model_name, **sizes})


def model_sweep(x_name: str, config: Mapping[str, Size], names: Sequence[str], tokens: int) -> Sweep:
    """Models vary, at one number of tokens. Raises BadInput as `token_sweep` does."""
    rows = {**_sizes(config), **_tokens(config, tokens)}
    points: Points = {name: {**rows, **model_sizes(x_name, config, model(name))} for name in names}
    return Sweep(OTHER_SWEEPS[1], "model configuration", points, {"BT": tokens})


def chosen_sweep(
    x_name: str,
    x_label: str,
    x_values: Sequence[int],
    config: Mapping[str, Size],
    mode: str = "size",
    models: Sequence[str] = (),
    tokens: int = DEFAULT_TOKENS,
) -> Sweep:
    """The sweep that `mode` names. Raises BadInput if the op's axes do not allow it."""
    match mode:
        case "token_length":
            if len(models) > 1:
                raise BadInput("a sweep over tokens takes one model", "--model", "name one")
            return token_sweep(x_name, config, models[0] if models else DEFAULT_MODEL, x_values or TOKEN_LENGTHS)
        case "model_config":
            return model_sweep(x_name, config, models or tuple(MODELS), tokens)
    return size_sweep(x_name, x_label, x_values, config)


def model_sizes(x_name: str, config: Mapping[str, Size], chosen: Model) -> dict[str, int]:
    """The model's sizes by the op's names of its axes, x among them."""
    found = {axis: int(getattr(chosen, MODEL_AXES[axis])) for axis in (*config, x_name) if axis in MODEL_AXES}
    if x_name not in found:
        raise BadInput(
            f"a model has no size that '{x_name}' stands for",
            "--sweep-mode",
            f"name the axis one of {', '.join(MODEL_AXES)} in the reference, or sweep over its size",
        )
    return found


def _sizes(config: Mapping[str, Size]) -> dict[str, Size]:
    return {name: size for name, size in config.items() if name != "dtype"}


def _tokens(config: Mapping[str, Size], tokens: int) -> dict[str, int]:
    """The axes that count tokens: all of them in the last one, which is the row's next neighbour in memory."""
    axes = [name for name in config if name in TOKEN_AXES]
    if not axes:
        raise BadInput(
            f"none of the sizes {', '.join(config) or '(none)'} counts tokens",
            "--sweep-mode",
            f"name the axis of tokens one of {', '.join(TOKEN_AXES)} in the reference, or sweep over the size",
        )
    return {**{name: 1 for name in axes[:-1]}, axes[-1]: tokens}
