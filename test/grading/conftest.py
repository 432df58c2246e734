"""Ends a run of the attacks with all of them by name: convicted by their text, by what they do, or not convicted."""

import re
import textwrap

from attack_cases import FAMILIES

_ATTACK = re.compile(r"test_attacks\.py::test_(its_text|what_it_does)_convicts\[(\w+)\]$")
_HOW = {"its_text": "text", "what_it_does": "run"}
_OUTCOMES = {}


def pytest_runtest_logreport(report):
    found = _ATTACK.search(report.nodeid)
    if found and (report.when == "call" or not report.passed):
        _OUTCOMES.setdefault(found[2], {})[_HOW[found[1]]] = report.outcome


def pytest_terminal_summary(terminalreporter):
    if not _OUTCOMES:
        return
    terminalreporter.section("attacks, and what convicts them")
    for family, attacks in FAMILIES.items():
        told = [f"{name} ({_told(_OUTCOMES[name])})" for name in attacks if name in _OUTCOMES]
        if told:
            line = f"{family}: {', '.join(told)}"
            terminalreporter.write_line(textwrap.fill(line, 120, subsequent_indent="    ", break_on_hyphens=False))


def _told(outcomes):
    return ", ".join(how if outcome == "passed" else f"{how} {outcome.upper()}" for how, outcome in outcomes.items())
