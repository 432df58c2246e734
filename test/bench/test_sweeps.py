"""Sweeps over sizes, tokens and models: the sizes of each point, what the CSV states, and what is refused."""

import pytest

from liger_dev.bench.models import MODELS
from liger_dev.bench.sweeps import TOKEN_LENGTHS
from liger_dev.bench.sweeps import chosen_sweep
from liger_dev.errors import BadInput

HIDDEN = ("H", "hidden size", (1024, 4096), {"B": 4, "T": 2048, "eps": 1e-6, "dtype": "bfloat16"})
VOCABULARY = ("V", "vocabulary size", (), {"N": 8192, "dtype": "bfloat16"})


def test_a_sweep_over_the_size_holds_the_others():
    sweep = chosen_sweep(*HIDDEN)
    assert sweep.points == {x: {"B": 4, "T": 2048, "eps": 1e-6, "H": x} for x in (1024, 4096)}
    assert sweep.fixed == {"B": 4, "T": 2048, "eps": 1e-6}
    assert sweep.elements(4096) == 4 * sweep.elements(1024)


def test_a_sweep_over_tokens_takes_one_model_s_size():
    sweep = chosen_sweep(*VOCABULARY, "token_length")
    assert (sweep.x_name, tuple(sweep.points)) == ("BT", TOKEN_LENGTHS)
    assert sweep.points[2048] == {"N": 2048, "V": 128256}
    assert sweep.fixed == {"model": "llama_3_8b", "V": 128256}
    other = chosen_sweep(*HIDDEN[:2], (64,), HIDDEN[3], "token_length", ("qwen2.5_7b",))
    assert other.points == {64: {"B": 1, "T": 64, "eps": 1e-6, "H": 3584}}


def test_a_sweep_over_models_holds_the_tokens():
    sweep = chosen_sweep(*VOCABULARY, "model_config", (), 1024)
    assert tuple(sweep.points) == tuple(MODELS)
    assert sweep.points["llama_2_7b"] == {"N": 1024, "V": 32000} and sweep.fixed == {"BT": 1024}
    assert tuple(chosen_sweep(*VOCABULARY, "model_config", ("deepseek_v3",)).points) == ("deepseek_v3",)


@pytest.mark.parametrize(
    ("x_name", "config", "mode", "models", "said"),
    [
        ("K", {"N": 8}, "model_config", (), "no size that 'K' stands for"),
        ("H", {"groups": 8}, "token_length", (), "none of the sizes groups counts tokens"),
        ("H", {"N": 8}, "token_length", ("llama_2_7b", "llama_3_8b"), "takes one model"),
    ],
)
def test_what_has_no_models_or_tokens_is_refused(x_name, config, mode, models, said):
    with pytest.raises(BadInput, match=said):
        chosen_sweep(x_name, "", (), config, mode, models)
