"""What a report does with measurements: nothing catastrophic is hidden, and a page shows all of it without a network."""

import re

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from liger_dev.bench.csv import Measurement
from liger_dev.checkstyle import Checkstyle
from liger_dev.checkstyle import StyleState
from liger_dev.ci import Judged
from liger_dev.ci import annotations
from liger_dev.ci import junit
from liger_dev.ci import table
from liger_dev.gate import Attempt
from liger_dev.gate import Gate
from liger_dev.grading.resources import KernelResources
from liger_dev.html_report import html_report
from liger_dev.report import Findings
from liger_dev.report import render

CLEAN = StyleState((), ())


def _rows(liger: float, torch: float) -> tuple[Measurement, ...]:
    fixed = ("N", "columns", 4096)
    rest = ("{}", "NVIDIA H200", "2026-01-01 00:00:00", "0")
    return tuple(
        Measurement("center", provider, "full", metric, unit, *fixed, value, value, value, *rest)
        for metric, unit in (("speed", "ms"), ("memory", "MB"))
        for provider, value in (("liger", liger if metric == "speed" else 1.0), ("torch", torch))
    )


FINDINGS = Findings(
    name="center",
    style=Checkstyle(CLEAN, CLEAN, ()),
    gate=Gate((Attempt(1, ()),), (), "a GPU", ()),
    resources=(),
    rows=_rows(1.0, 2.0),
    not_measured="",
    benchmark_fault="",
    plots=("benchmark/visualizations/center_speed_full.png",),
    ncu="Not run.",
    versions=(("torch", "2.11.0"),),
    seeds="none",
    state="",
)
SLOW = replace(FINDINGS, rows=_rows(6.0, 2.0))


def test_a_good_kernel_passes_and_nothing_is_flagged():
    assert FINDINGS.passed and "Catastrophic" not in render(FINDINGS)


def test_a_target_without_a_type_of_the_kernel_says_so():
    lacking = KernelResources("_k", "forward", "sm_80", "BLOCK=8", lacks="fp8e4nv")
    text = render(replace(FINDINGS, resources=(lacking, replace(lacking, target="sm_90", lacks="", registers=8))))
    assert "| `_k` | sm_80 | 1 | 0 | 0 | 0 | not for it: no fp8e4nv there |" in text
    assert "| `_k` | sm_90 | 1 | 8 | 0 | 0 | compiles |" in text


def test_a_catastrophic_metric_stands_on_top_and_fails_the_kernel():
    text = render(SLOW)
    assert not SLOW.passed
    assert text.splitlines()[2].startswith("**FAILED**: right, but catastrophically worse than PyTorch in speed")
    assert text.splitlines()[4] == "> **Catastrophic:** speed, full, N = 4096: 3.0 times PyTorch's"
    assert "`--accept center:speed`" in text


def test_what_a_person_accepts_by_name_passes_and_still_stands_on_top():
    accepted = replace(SLOW, accepted=("speed",))
    assert accepted.passed and not replace(SLOW, accepted=("memory",)).passed
    assert "3.0 times PyTorch's (accepted by `--accept center:speed`)" in render(accepted)


@pytest.fixture
def page() -> str:
    markdown = render(SLOW) + "\nA test printed `</code><script>alert(1)</script>`.\n"
    picture = {"benchmark/visualizations/center_speed_full.png": "iVBORw0KGgo="}
    return html_report("center", markdown, picture, {"Diff of the run": "-old\n+new <b>\n", "Kernel": "x = 1\n"})


def test_a_page_needs_nothing_from_anywhere(page: str):
    assert "//" not in re.sub(r"// .*", "", page) and "<link" not in page and "@import" not in page
    assert re.findall(r'src="([^"]{0,22})', page) == ["data:image/png;base64,"]


def test_a_page_shows_verdict_flags_tables_and_files(page: str):
    assert '<span class="verdict failed">FAILED</span> right, but catastrophically worse' in page
    assert "<strong>Catastrophic:</strong> speed, full, N = 4096" in page
    assert page.count("<table>") == page.count("</table>") >= 3
    assert '<a href="#benchmark">Benchmark</a>' in page and '<h2 id="benchmark">' in page
    assert '<span class="del">-old</span>\n<span class="add">+new &lt;b&gt;</span>\n' in page
    assert "<code>x = 1\n</code>" in page


def test_nothing_that_a_report_quotes_becomes_a_tag(page: str):
    assert page.count("<script>") == 1 and "alert(1)&lt;/script&gt;" in page


GRADED = """**PASSED**: all of it

## Unit tests

| 1 | none | whole file | 2 | 1 | 0 | passed | 0.01 |

## Grader

**Passed: 54 cases on a device, the tests find 97% of planted bugs**

| Tensor | Dtype | Worst error | Eager's error | Bound | Margin | Case |
|---|---|---:|---:|---:|---:|---|
| output 0 | float32 | 1e-07 | 1e-07 | 1e-06 | 12.50 | base |
| gradient of x | float32 | 1e-07 | 1e-07 | 1e-06 | 3.75 | base |

Planted bugs: the tests found 29 of 30 (96.7%), sampled from 90.

## Benchmark
"""


def test_a_table_ends_several_validations():
    judged = [Judged("good", True, GRADED, seconds=41.6), Judged("gone", False, "", "there is no file", 0.2)]
    assert table(judged).splitlines() == [
        "kernel  verdict  cases  planted bugs found  least margin  seconds",
        "good    passed   54     96.7%               3.75          42",
        "gone    FAILED   -      -                   -             0",
        "gone: there is no file",
        "1 of 2 passed; failed: gone",
    ]


def test_junit_has_a_case_a_kernel_with_its_report():
    judged = [Judged("good", True, render(FINDINGS)), Judged("slow", False, render(SLOW) + "\x00")]
    root = ElementTree.fromstring(junit([*judged, Judged("gone", False, "", stopped="there is no file")]))
    assert root.attrib == {"tests": "3", "failures": "2", "errors": "0", "skipped": "0"}
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert cases["good"].find("failure") is None
    slow = cases["slow"].find("failure")
    assert "catastrophically worse" in slow.get("message") and "# Results: center" in slow.text
    assert cases["gone"].find("failure").get("message") == "there is no file"


def test_annotations_name_the_file_and_escape_what_github_reads():
    accepted = render(replace(SLOW, accepted=("speed",)))
    lines = list(annotations([Judged("center", True, accepted), Judged("slow", False, "", stopped="50 % of\nit")]))
    assert lines[0].startswith("::notice file=kernels/ops/center.py,title=center%3A passed::")
    assert lines[1].startswith("::warning file=kernels/ops/center.py,title=center%3A catastrophically worse::speed")
    assert lines[2] == "::error file=kernels/ops/slow.py,title=slow%3A failed::50 %25 of%0Ait"


def test_each_failing_test_is_an_annotation_of_its_own():
    text = "**FAILED**: x\n\n### Failing tests\n\n- `test/kernels/test_center.py::test_a[1]`: off by 2\n\n### Errors\n"
    found = list(annotations([Judged("center", False, text)]))
    assert found[-1] == "::error file=test/kernels/test_center.py,title=test_a[1]::off by 2"
