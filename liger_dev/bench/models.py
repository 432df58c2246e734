"""Sizes of well-known language models, from their published configurations: what a benchmark's shapes are taken from."""

from dataclasses import dataclass

from liger_dev.errors import BadInput


@dataclass(frozen=True)
class Model:
    """One model's sizes, in elements. `head_dim` is the width of a value head where keys and values differ."""

    name: str
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    dtype: str = "bfloat16"


DEFAULT_MODEL = "llama_3_8b"

MODELS = {
    model.name: model
    for model in (
        Model("llama_2_7b", 4096, 11008, 32000, 32, 32, 128),
        Model("llama_3_8b", 4096, 14336, 128256, 32, 8, 128),
        Model("llama_3_70b", 8192, 28672, 128256, 64, 8, 128),
        Model("qwen2.5_7b", 3584, 18944, 152064, 28, 4, 128),
        Model("qwen2.5_14b", 5120, 13824, 152064, 40, 8, 128),
        Model("qwen2.5_72b", 8192, 29568, 152064, 64, 8, 128),
        Model("deepseek_v2_lite", 2048, 10944, 102400, 16, 16, 128),
        Model("deepseek_v3", 7168, 18432, 129280, 128, 128, 128),
    )
}


def model(name: str = DEFAULT_MODEL) -> Model:
    """The sizes of `name`. Raises BadInput that lists the known names."""
    if name not in MODELS:
        raise BadInput(f"no model '{name}' is known", "--model", f"take one of {', '.join(MODELS)}")
    return MODELS[name]
