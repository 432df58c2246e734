"""What a reference file says of tensors that hold no floats: `DTYPES`, `RANGES` and annotations."""

import json

import pytest

from liger_dev.errors import BadInput
from liger_dev.loading import load
from liger_dev.loading.reference_file import constants_text
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.records import Tensor
from liger_dev.sources import catalog_source

HEAD = "import torch\n\nSHAPES = {'x': ('N', 'V'), 'target': ('N',)}\n"
BODY = "    y = x.gather(-1, target.unsqueeze(-1)).squeeze(-1)\n    return y\n"
PLAIN = "\n\ndef chosen(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:\n" + BODY
ANNOTATED = "\n\ndef chosen(x: torch.Tensor, target: torch.LongTensor) -> torch.Tensor:\n" + BODY


def loaded(text, folder):
    return load("chosen", Source("function", text, "chosen", "chosen.py"), folder)


def test_constants_say_what_a_tensor_holds_and_how_far_an_index_goes(tmp_path):
    constants = "DTYPES = {'target': 'int'}\nRANGES = {'target': 'V'}\n"
    reference = loaded(HEAD + constants + PLAIN, tmp_path)
    assert reference.tensors == (Tensor("x", ("N", "V")), Tensor("target", ("N",), "int", range="V"))
    assert reference.text == HEAD + constants + PLAIN, "the file is kept verbatim"
    assert Reference.from_json(json.loads(json.dumps(reference.to_json()))) == reference


def test_an_annotation_says_so_too_and_a_constant_wins(tmp_path):
    assert loaded(HEAD + ANNOTATED, tmp_path).tensors[1] == Tensor("target", ("N",), "int")
    wins = HEAD.replace("('N',)", "('N', 'V')") + "DTYPES = {'target': 'bool'}\n"
    body = "\n\ndef chosen(x: torch.Tensor, target: torch.LongTensor) -> torch.Tensor:\n    return x * target\n"
    assert loaded(wins + body, tmp_path).tensors[1].dtype == "bool"


def test_an_index_without_a_range_stays_below_two(tmp_path):
    # Were it drawn from more, the loading run would leave a dimension of size 2.
    text = "import torch\n\nSHAPES = {'x': ('N', 2), 'target': ('N',)}\n" + ANNOTATED
    assert loaded(text, tmp_path).tensors[1].range == ""


@pytest.mark.parametrize(
    ("constants", "what"),
    [
        ("DTYPES = {'goal': 'int'}\n", "DTYPES names 'goal', which is no tensor"),
        ("DTYPES = {'target': 'int64'}\n", "DTYPES has the value 'int64'"),
        ("DTYPES = {'target': 'int'}\nRANGES = {'target': 'K'}\n", "RANGES has the value 'K'"),
        ("DTYPES = {'target': int}\n", "DTYPES is no literal of the right form"),
        ("RANGES = ['target']\n", "RANGES is no literal of the right form"),
    ],
)
def test_a_constant_that_is_wrong_is_bad_input(constants, what, tmp_path):
    with pytest.raises(BadInput) as caught:
        loaded(HEAD + constants + PLAIN, tmp_path)
    assert what in caught.value.what and caught.value.todo and caught.value.where.startswith("chosen.py")


def test_what_is_printed_can_be_read_again(tmp_path):
    tensors = (Tensor("x", ("N", "V")), Tensor("target", ("N",), "int", range="V"), Tensor("mask", ("N",), "bool"))
    text = constants_text(tensors)
    assert 'DTYPES = {"target": "int", "mask": "bool"}\nRANGES = {"target": "V"}\n' in text
    scope: dict[str, object] = {}
    exec(text, scope)
    assert scope["DTYPES"] == {"target": "int", "mask": "bool"}


def test_the_catalogue_s_masks_and_targets_are_typed(tmp_path):
    mask = load("masked_softmax", catalog_source("masked_softmax"), tmp_path).tensors[1]
    target = load("cross_entropy", catalog_source("cross_entropy"), tmp_path).tensors[1]
    assert (mask.dtype, target.dtype, target.range) == ("bool", "int", "V")
