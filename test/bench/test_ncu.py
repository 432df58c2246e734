"""ncu's command line, and its CSV: launches by provider, shares, the heaviest stalls."""

from pathlib import Path

import pytest

from liger_dev.bench import ncu

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COLUMNS = ["ID", "Kernel Name", *ncu.METRICS.values(), *map(STALL.format, ("long_scoreboard", "wait", "selected"))]


def _csv(*launches):
    units = ["", "", "ns", "%", "%", "%", "%", "%", "register/thread", "inst", "inst", "inst"]
    lines = [COLUMNS, units, *launches]
    return "\n".join(["==PROF== Connected", *(",".join(f'"{cell}"' for cell in line) for line in lines)])


def test_clocks_are_left_alone_and_only_the_marked_pass_is_profiled():
    command = ncu.command("python", "benchmark_x.py", 4096, ["liger", "torch"], "/tmp/report")
    words = " ".join(command)
    assert "--clock-control none" in words and "--profile-from-start off" in words
    assert words.endswith("python -m liger_dev.bench.profiled benchmark_x.py --x 4096 --providers liger torch")


def test_launches_are_told_apart_by_the_marks():
    mark = ["0", "spin_kernel(long)", *["1"] * 10]
    own = ["1", "_rms_norm_forward_kernel", "44,032", "52.5", "100", "91", "88", "23", "64", "12.0", "3.0", "1.0"]
    eager = ["3", "void at::native::vectorized_elementwise_kernel<4, x>(int)", "30,000", *["10"] * 9]
    found = ncu.parse(_csv(mark, own, mark, eager), ("liger", "torch"))
    assert [(one.provider, one.microseconds) for one in found] == [("liger", 44.032), ("torch", 30.0)]
    first = found[0]
    assert (first.occupancy, first.memory, first.compute, first.registers) == (0.525, 0.91, 0.23, 64)
    assert first.stalls == (("long scoreboard", 0.75), ("wait", 0.1875))
    lines = list(ncu.table(found))
    assert "| liger | `_rms_norm_forward_kernel` | 44.0 | 52 % (100 %) | 91 % | 88 % | 23 % | 64 |" in lines[2]
    assert "`vectorized_elementwise_kernel`" in lines[3]


def test_a_baseline_of_many_kernels_is_cut_and_says_so():
    mark = ["0", "spin_kernel(long)", *["1"] * 10]
    many = [[str(number), f"kernel_{number}", str(1000 * number), *["10"] * 9] for number in range(1, 8)]
    lines = list(ncu.table(ncu.parse(_csv(mark, *many), ("torch",))))
    assert len(lines) == 2 + 4 + 1 and lines[-1] == "| torch | 3 more | 6.0 | | | | | | |"


def test_what_is_no_report_names_no_launch():
    assert ncu.parse("==ERROR== No kernels were profiled.", ("liger",)) == ()


def test_what_ncu_prints_of_a_pass_on_a_gpu():
    text = (Path(__file__).parent / "ncu_rms_norm.csv").read_text()
    found = ncu.parse(text, ("liger", "torch"))
    own = [one for one in found if one.provider == "liger"]
    assert [one.kernel for one in own][:2] == ["_rms_norm_forward_kernel", "_rms_norm_backward_kernel"]
    assert len(own) == 4 and len(found) == 7
    forward = own[0]
    assert (forward.microseconds, forward.occupancy, forward.possible_occupancy) == (31.68, pytest.approx(0.6853), 0.75)
    assert (forward.memory, forward.dram, forward.compute) == pytest.approx((0.7244, 0.7244, 0.4968))
    assert forward.registers == 40 and forward.stalls[0] == ("long scoreboard", pytest.approx(0.53, abs=0.01))
    names = [line.split("|")[2].strip() for line in ncu.table(found)]
    assert names[4:] == ["`reduce_kernel`", "`vectorized_elementwise_kernel`", *names[6:]] and "<" not in "".join(names)


def test_a_profile_is_kept_and_read_as_it_was(tmp_path):
    text = (Path(__file__).parent / "ncu_rms_norm.csv").read_text()
    profile = ncu.Profile("abc", "NVIDIA H200", "2026-11-30", "H = 4096", ncu.parse(text, ("liger", "torch")))
    path = ncu.path_beside(tmp_path / "all.csv", "rms_norm")
    path.parent.mkdir()
    path.write_text(ncu.to_text(profile))
    assert ncu.read(path) == profile and ncu.read(tmp_path / "none.json") is None
    assert next(ncu.lines(profile)).startswith("One full pass of each at H = 4096 on NVIDIA H200, 2026-11-30")
