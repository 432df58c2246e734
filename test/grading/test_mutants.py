"""Planted bugs: each changes the op's text in one place, and an op file of the gallery offers about twenty kinds."""

import ast

from pathlib import Path

import pytest

from liger_dev.grading.mutants import mutations
from liger_dev.grading.verdict import Mutant
from liger_dev.grading.verdict import Strength

OP = (Path(__file__).parent / "hostile" / "honest.py").read_text()
RMS_NORM = (Path(__file__).parents[1] / "generator" / "ops" / "rms_norm.py").read_text()


def test_every_mutant_is_another_program_that_parses():
    found = mutations(RMS_NORM, "LigerRmsNormFunction")
    texts = [ast.unparse(ast.parse(mutation.text)) for mutation in found]
    assert ast.unparse(ast.parse(RMS_NORM)) not in texts
    assert len(set(texts)) > 0.9 * len(texts)
    assert len({mutation.operator for mutation in found}) >= 25


def test_null_candidates_come_first():
    first = [mutation.operator for mutation in mutations(OP, "Softmax")[:4]]
    assert first == ["returns zeros", "returns ones", "returns its input", "returns the mean"]


@pytest.mark.parametrize(
    "operator, text",
    [
        ("mask one too wide", "mask=cols <= n_cols"),
        ("reduction in bfloat16", "(dy * y).to(tl.bfloat16).to(tl.float32)"),
        ("strides ignored", "def softmax_backward(dy, y):\n    dy = dy\n"),
        ("writes into its input", "dx = y\n"),
        ("store left out", "mask=tl.program_id(0) < 0"),
    ],
)
def test_operators_write_what_they_name(operator, text):
    made = [mutation.text for mutation in mutations(OP, "Softmax") if mutation.operator == operator]
    assert any(text in one for one in made)


def test_a_sum_of_partial_results_loses_its_last_one():
    emitted = (Path(__file__).parents[1] / "compiler" / "golden" / "rms_norm.py").read_text()
    made = [mutation.text for mutation in mutations(emitted, "LigerRmsNormFunction")]
    assert any("sum_partials(dweight_partial[:-1], weight.dtype)" in one for one in made)


def test_sums_added_up_together_lose_their_last_ones_each():
    emitted = (Path(__file__).parents[1] / "compiler" / "golden" / "layer_norm.py").read_text()
    made = [mutation.text for mutation in mutations(emitted, "LigerLayerNormFunction")]
    assert any("sum_each(partials[:, :-1].contiguous(), weight.dtype" in one for one in made)


def test_programs_may_be_missing_where_others_take_their_rows():
    emitted = (Path(__file__).parents[1] / "compiler" / "golden" / "rms_norm.py").read_text()
    made = [one for one in mutations(emitted, "LigerRmsNormFunction") if one.operator == "programs left out"]
    persistent = [("min(max(n_rows" in one.text, bool(one.excluded)) for one in made]
    assert persistent == [(False, False), (False, False), (True, True)], "forward, forward of wide rows, backward"


def test_offsets_of_32_bits_are_left_out_with_the_reason():
    offsets = [mutation for mutation in mutations(OP, "Softmax") if mutation.operator == "int32 offset"]
    assert len(offsets) == 2
    assert all("2**31" in mutation.excluded for mutation in offsets)


def test_the_kill_rate_leaves_out_what_is_excluded():
    outcomes = ["killed"] * 3 + ["survived"] + ["excluded"] * 4
    strength = Strength(tuple(Mutant("an operator", 1, "", outcome) for outcome in outcomes), 20)
    assert strength.kill_rate == 0.75
    assert Strength().kill_rate == 0.0
