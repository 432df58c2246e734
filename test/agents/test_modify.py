"""Changes in words: what an agent may edit of a kernel, and that its tests only grow."""

import textwrap

import pytest

from messages_server import answers
from messages_server import calls
from seats import seat_in
from seats import tool_results

from liger_dev import render
from liger_dev.agents.modification import added_tests
from liger_dev.agents.modification import modify_by_agent
from liger_dev.agents.tools import Refused
from liger_dev.agents.transcript import read_all
from liger_dev.errors import BadInput
from liger_dev.errors import HandEdited
from liger_dev.generator import _refuse_undoing
from liger_dev.generator import generate
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.records import Reference
from liger_dev.records import Tensor
from liger_dev.records import digest
from liger_dev.scratch import hashes
from liger_dev.workspace import View

OP = "kernels/ops/center.py"
TEST = "test/kernels/test_center.py"
MODULE = "kernels/modules/center.py"
PROFILE = "profiles/center.yaml"
BEFORE = textwrap.dedent("""
    import pytest
    import torch

    TOLERANCE = 1e-3


    def test_one():
        assert torch.ones(1) == 1
""").lstrip()
NEW_TEST = "\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_two(n):\n    assert n\n"


def never(name, text, profile):
    raise AssertionError("the reference was not edited")


def change(*blocks, tests=("test_two",), reason=""):
    return answers(*blocks, calls("submit_change", summary="as asked", tests_added=list(tests), no_test_reason=reason))


def grown(center, text=NEW_TEST):
    return calls("write_file", path=TEST, content=(center / TEST).read_text() + text)


def warps(number):
    return calls("edit_file", path=OP, old="num_warps=4", new=f"num_warps={number}")


def stamped(center, *paths):
    """Stamps files as generated from the profile that is there; gives its hash."""
    profile = digest(print_profile(profile_of(center)))
    for path in paths:
        (center / path).write_text(render.stamp((center / path).read_text(), PROFILE, profile, "2" * 8))
    return profile


def profile_of(center):
    return parse_profile((center / PROFILE).read_text(), PROFILE)


def test_only_what_was_asked_is_edited_and_is_not_overwritten_later(serve, center):
    old = stamped(center, OP, TEST, MODULE)
    script = serve(change(warps(8), grown(center)))
    before = hashes(center)
    changes = modify_by_agent("center", "use eight warps", center, seat_in(center), never)
    contents = {c.path: c.content for c in changes.changes}
    assert list(contents) == [PROFILE, OP, TEST, MODULE]
    assert "num_warps=8" in contents[OP] and "def test_two" in contents[TEST] and changes.said == "as asked"
    made = parse_profile(contents[PROFILE], PROFILE)
    assert made.provenance["modified"] == "use eight warps"
    for path in (OP, TEST, MODULE):
        assert not render.is_hand_edited(contents[path])
        assert render.read_stamp(contents[path])["profile"] == digest(print_profile(made))[:8] != old[:8]
    assert render.read_stamp(contents[MODULE])["template"] == "2" * 8
    task = script.requests[0]["messages"][0]["content"]
    assert "use eight warps" in task and "`test/kernels/test_center.py`" in task and "center.yaml` (locked)" in task
    kept = {path: text for path, text in hashes(center).items() if not path.startswith(".liger-dev")}
    assert kept == before, "nothing is written before the approval"


def test_a_second_change_starts_from_the_first_and_a_hand_edit_stays_one(serve, center):
    stamped(center, OP)
    (center / TEST).write_text(render.stamp((center / TEST).read_text(), PROFILE, "1" * 8, "2" * 8) + "\n# mine\n")
    script = serve(change(warps(8), grown(center)))
    seat = seat_in(center)
    first = modify_by_agent("center", "use eight warps", center, seat, never)
    edit = calls("edit_file", path=OP, old="num_warps=8", new="num_warps=16")
    script.replies[:] = [change(edit)]
    second = modify_by_agent("center", "use eight warps", center, seat, never, "no, sixteen", first)
    contents = {c.path: c.content for c in second.changes}
    assert "num_warps=16" in contents[OP] and "def test_two" in contents[TEST] and "# mine" in contents[TEST]
    assert render.is_hand_edited(contents[TEST]) and not render.is_hand_edited(contents[OP])
    assert "no, sixteen" in script.requests[1]["messages"][0]["content"]
    assert len(read_all(seat.run.folder)) == 2


def test_a_persons_comments_in_the_profile_stay(serve, center):
    commented = print_profile(profile_of(center).model_copy(update={"provenance": {"source": "test"}}))
    (center / PROFILE).write_text("# checked by hand\n" + commented.replace("tier: 2\n", "tier: 2  # one reduction\n"))
    for wish in ('use "eight" warps: now', "and then some"):
        serve(change(warps(8), grown(center)))
        changes = modify_by_agent("center", wish, center, seat_in(center), never)
        (text,) = (c.content for c in changes.changes if c.path == PROFILE)
        (center / PROFILE).write_text(text)
    assert text.startswith("# checked by hand\n") and "tier: 2  # one reduction\n" in text
    assert list(profile_of(center).provenance) == ["source", "modified"]
    assert profile_of(center).provenance == {"source": "test", "modified": 'use "eight" warps: now; and then some'}


def test_generating_again_does_not_undo_a_change_unasked(serve, center):
    serve(change(warps(8), grown(center)))
    changes = modify_by_agent("center", "use eight warps", center, seat_in(center), never)
    for made in changes.changes:
        (center / made.path).write_text(made.content)
    profile = profile_of(center)
    reference = Reference("center", (center / "kernels/reference/center.py").read_text(), X, (), "test")
    with pytest.raises(HandEdited, match="undo what was changed in the kernel as asked: use eight warps"):
        _refuse_undoing(View(center), profile, {OP: "another text"})
    again = generate(reference, profile, center, overwrite=True, op_text=OTHER_OP)
    contents = {c.path: c.content for c in again.changes}
    assert "modified" not in parse_profile(contents[PROFILE], PROFILE).provenance


X = (Tensor("x", ("B", "T", "H")),)
OTHER_OP = '"""Another kernel."""\n'


def test_a_change_without_a_test_or_with_weaker_tests_is_refused(serve, center):
    text = (center / TEST).read_text()
    serve(
        change(tests=[]),
        change(warps(8), tests=[]),
        change(calls("write_file", path=TEST, content=text.replace("rtol=TOLERANCE", "rtol=1e9")), tests=[]),
        change(calls("write_file", path="test/utils.py", content="TOLERANCE = 1e9\n"), tests=[]),
        change(calls("write_file", path=TEST, content=text), tests=[], reason="the schedule alone changes"),
    )
    seat = seat_in(center)
    modify_by_agent("center", "use eight warps", center, seat, never)
    errors = [text for text, is_error in tool_results(seat) if is_error]
    assert [next(part for part in PARTS if part in error) for error in errors] == PARTS


PARTS = ["nothing was edited", "add a test", "may only grow", "is locked", "may only grow"]


def test_an_edited_reference_is_derived_anew(serve, center):
    reference = "kernels/reference/center.py"
    edit = calls("edit_file", path=reference, old="x.mean(-1", new="2 * x.mean(-1")
    serve(change(edit, grown(center)))

    def derive(name, text, profile):
        assert name == "center" and "2 * x.mean" in text
        return profile.model_copy(update={"forward_computation": "y = x - 2 * sum(x) / N"})

    changes = modify_by_agent("center", "subtract the mean twice", center, seat_in(center), derive)
    contents = {c.path: c.content for c in changes.changes}
    assert sorted(contents) == [reference, PROFILE, TEST]
    assert "2 * sum(x)" in contents["profiles/center.yaml"]


def test_a_kernel_that_is_not_there_can_not_be_modified(center):
    with pytest.raises(BadInput, match="has no file"):
        modify_by_agent("missing", "faster", center, None, never)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (BEFORE.replace("== 1", "== 1 or True"), "may only grow"),
        (BEFORE.replace("1e-3", "1.0"), "may only grow"),
        (BEFORE.replace("import pytest\n", ""), "may only grow"),
        (BEFORE + "\n\ndef test_one():\n    pass\n", "test_one is defined already"),
        (BEFORE + "\n\nTOLERANCE = 1.0\n", "imports and functions only"),
        (BEFORE + "\n\npytestmark = pytest.mark.skip\n", "imports and functions only"),
        (BEFORE + "\n\n@pytest.mark.skip\ndef test_two():\n    pass\n", "may not carry @pytest.mark.skip"),
        (BEFORE + "\n\n@pytest.fixture(autouse=True)\ndef quiet():\n    pass\n", "may not carry @pytest.fixture"),
        (
            BEFORE.replace("import torch\n", "import torch\nfrom evil import TOLERANCE\n"),
            "TOLERANCE is defined already",
        ),
    ],
)
def test_a_test_file_may_only_grow(after, message):
    with pytest.raises(Refused, match=message.replace("(", r"\(")):
        added_tests(BEFORE, after, TEST)


def test_new_tests_and_imports_are_found():
    after = BEFORE.replace("import torch\n", "import torch\n\nfrom math import pi\n") + NEW_TEST
    assert added_tests(BEFORE, after, TEST) == ["test_two"]
    assert added_tests(BEFORE, BEFORE, TEST) == []
