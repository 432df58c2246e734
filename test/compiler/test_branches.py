"""Statements of several settings merged into one list: what a setting runs stays what it came with."""

import itertools

import pytest

from liger_dev.compiler.branches import merged

MEAN = ["a = load()", "", "loss = a * a", "with guard:", "    total(loss)", "", "y = total / n", "return y"]
SUM = ["a = load()", "", "loss = a * a", "with guard:", "    total(loss)", "", "y = total", "return y"]
NONE = ["a = load()", "y = a * a", "if n <= LONG:", "    store(y)", "else:", "    loop(y)", "return y"]


def run(lines, setting):
    """What the statements do for a setting: those on branches that it takes, at their depth without these branches."""
    skipped_from, lifted, done = None, [], []
    for line in (line for line in lines if line):
        depth = (len(line) - len(line.lstrip())) // 4
        text = line.strip()
        while (
            lifted and lifted[-1][0] >= depth and not (lifted[-1][0] == depth and text.startswith(("elif ", "else:")))
        ):
            lifted.pop()
        if skipped_from is not None and depth > skipped_from:
            continue
        skipped_from = None
        head = text.split()[0]
        mine = any(name in text for name in setting) and head in ("if", "elif") and text.endswith(":")
        if mine or (text == "else:" and lifted and lifted[-1][0] == depth):
            if head == "if":
                lifted.append([depth, False])
            is_true = text == "else:" or eval(text.split(" ", 1)[1].rstrip(":"), dict(setting))
            if lifted[-1][1] or not is_true:
                skipped_from = depth
            else:
                lifted[-1][1] = True
            continue
        done.append("    " * (depth - len(lifted)) + text)
    return done


def apart(lines):
    return [line for line in lines if line]


@pytest.mark.parametrize("count", [2, 3])
def test_a_setting_runs_what_it_came_with(count):
    for bodies in itertools.permutations([("mean", MEAN), ("sum", SUM), ("none", NONE)], count):
        lines, used = merged([({"reduction": value}, body) for value, body in bodies])
        assert used == ["reduction"]
        for value, body in bodies:
            assert run(lines, {"reduction": value}) == apart(body)


def test_two_arguments():
    rows = [
        ({"kind": kind, "clamp": clamp}, [f"a = {kind}(x)", *(["a = min(a, 7)"] if clamp else []), "return a"])
        for kind in ("silu", "relu")
        for clamp in (False, True)
    ]
    lines, used = merged(rows)
    assert used == ["kind", "clamp"]
    assert lines == [
        'if kind == "silu":',
        "    a = silu(x)",
        "else:",
        "    a = relu(x)",
        "if clamp:",
        "    a = min(a, 7)",
        "return a",
    ]


def test_what_all_do_is_not_branched_on():
    assert merged([({"flag": True}, MEAN), ({"flag": False}, MEAN)]) == (MEAN, [])


def test_a_tensor_that_one_setting_lacks_is_one_line():
    lines, _ = merged([({"flag": True}, ["a = empty()", "go(a)"]), ({"flag": False}, ["a = None", "go(a)"])])
    assert lines == ["a = empty() if flag else None", "go(a)"]


def test_several_values_against_one():
    rows = [({"r": value}, ["tail"] if value == "none" else ["head", "tail"]) for value in ("mean", "sum", "none")]
    assert merged(rows)[0] == ['if r != "none":', "    head", "tail"]


def test_a_comment_stays_with_the_statement_below_it():
    guard = ["with guard:", "    go(a)"]
    rows = [
        ({"flag": True}, ["# A reason.", *guard]),
        ({"flag": False}, guard),
    ]
    lines, _ = merged(rows)
    assert lines == [
        "if flag:",
        "    # A reason.",
        *(f"    {line}" for line in guard),
        "else:",
        *(f"    {line}" for line in guard),
    ]
    assert merged([({"flag": flag}, ["# A reason.", *guard]) for flag in (True, False)])[0] == ["# A reason.", *guard]
