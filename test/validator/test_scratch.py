"""Scratch folders: gone at the end, also those that a killed process left, and never those of a process that lives."""

from pathlib import Path

from liger_dev.scratch import own_folder


def test_what_nobody_holds_goes_and_what_somebody_holds_stays(tmp_path: Path):
    left = tmp_path / ".liger-dev/scratch/validate-center-dead"
    (left / "tree").mkdir(parents=True)
    with own_folder(tmp_path, "agent-center") as first:
        assert not left.exists()
        with own_folder(tmp_path, "validate-center") as second:
            assert first.is_dir() and second.is_dir() and first != second
        assert first.is_dir() and not second.exists()
    assert not list(first.parent.iterdir())
