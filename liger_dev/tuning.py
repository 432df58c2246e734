"""A kernel of the workspace in; its better settings, measured in a child, out: profile, op file and samples to write."""

import json
import shutil
import sys

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from liger_dev import analyzer
from liger_dev import generator
from liger_dev import honour
from liger_dev import tuned_points
from liger_dev import workspace
from liger_dev.errors import LIMIT_REACHED
from liger_dev.errors import PASSED
from liger_dev.errors import BadInput
from liger_dev.gate import gpu_name
from liger_dev.profile import KernelProfile
from liger_dev.profile import Tuned
from liger_dev.profile import parse_profile
from liger_dev.records import ChangeSet
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.render import render_all
from liger_dev.requests import reference_path
from liger_dev.sandbox import Completed
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child
from liger_dev.scratch import KernelCopy
from liger_dev.scratch import kernel_copy
from liger_dev.testrun import child_env
from liger_dev.testrun import portable

# Beyond its budget a child may finish the round that it is in.
_GRACE_S = 120
_HELPERS = "kernels/ops/utils.py"

Say = Callable[[str], None]


def tune(name: str, root: Path, say: Say, options: Mapping[str, Any]) -> dict[str, Any]:
    """Measures a kernel's settings: {failure, spent, markdown, changes}.

    `options` are `budget` (seconds), `archs` (targets to compile for), `x_values`, `dtypes`, `again` (measure also what was
    measured) and `kept` (measure nothing).

    Raises:
        BadInput: no GPU and no target to compile for, nothing measured that could be kept, or helpers of an older version.
        HandEdited: files were edited by hand or by an agent, and would be replaced.
    """
    device = "" if options["kept"] else gpu_name()
    before = [*tuned_points.read(root / tuned_points.path_of(name)), *tuned_points.read(_kept(root, name))]
    _check(name, device, before, options)
    with kernel_copy(name, root) as copy:
        reference, profile, tunable = _opened(copy)
        known = [] if options["again"] else [tuned_points.key_of(line) for line in before]
        request = _request(copy, profile, tunable, options, known, measure=bool(device) and not options["archs"])
        done, said = (None, []) if options["kept"] else _run(copy, request, say)
    if done is not None and (done.returncode not in (PASSED, LIMIT_REACHED) or done.timed_out):
        failure = f"the tuner did not run to its end: {_last_line(portable(done.stderr, copy))}"
        return _told(failure, ChangeSet(()), failure=failure)
    spent = f"the budget of {options['budget']:g} s is spent" if done and done.returncode == LIMIT_REACHED else ""
    if options["archs"]:
        return _told(_compiled_only(name, said), ChangeSet(()), spent=spent)
    lines = tuned_points.merged(before, tuned_points.read(_kept(root, name)))
    tuned = profile.model_copy(update={"tuning": _records(profile, lines, tunable)})
    changes = _changes(root, reference, tuned, lines)
    _kept(root, name).unlink(missing_ok=True)
    current = [line for line in lines if tunable.get(line["kernel"], {}).get("body") == line["body"]]
    return _told(markdown(name, current), changes, spent=spent)


def _check(name: str, device: str, before: Sequence[tuned_points.Line], options: Mapping[str, Any]) -> None:
    if options["kept"] and not before:
        raise BadInput(
            f"no settings of '{name}' were measured before", tuned_points.path_of(name), "measure them on a GPU"
        )
    if not device and not options["archs"] and not options["kept"]:
        raise BadInput(
            "settings can be measured on a CUDA GPU only, and there is none here",
            todo="see what compiles for a target, untimed: --arch sm_90; or take what was measured elsewhere: --kept",
        )


def _told(text: str, changes: ChangeSet, failure: str = "", spent: str = "") -> dict[str, Any]:
    return {"failure": failure, "spent": spent, "markdown": text, "changes": changes.to_json()}


def _opened(copy: KernelCopy) -> tuple[Reference, KernelProfile, dict[str, Any]]:
    """Reference and profile, and the kernels with open settings; the copy's op is then one that asks for all of them."""
    name = copy.name
    profile = parse_profile(copy.text(copy.profile), copy.profile)
    text = copy.text(reference_path(name))
    found = analyzer.analyze(name, Source("function", text, name, reference_path(name)))
    reference = found.reference
    generator.generate(reference, profile, copy.root)  # what it would refuse to write need not be measured
    if "def tuned(" not in copy.text(_HELPERS):
        raise BadInput(
            "the workspace's shared helpers are older than this version: they look no settings up",
            _HELPERS,
            "bring them up to date: liger-dev init --overwrite",
        )
    plain = profile.model_copy(update={"tuning": []})
    op = analyzer.compile_in_child(reference, {**honour.options(found.profile, plain), "tunable": True}).op
    named = {**profile.model_dump(mode="json"), **op}
    (copy.tree / copy.op).write_text(render_all([generator.OP], named)[copy.op], encoding="utf-8")
    return reference, profile, dict(op["op"]["tunable"])


def _request(
    copy: KernelCopy,
    profile: KernelProfile,
    tunable: dict[str, Any],
    options: Mapping[str, Any],
    known: Sequence[tuned_points.Key],
    measure: bool,
) -> dict[str, Any]:
    config = {k: v for k, v in profile.benchmark_fixed_config.items() if k != "dtype"}
    return {
        "name": copy.name,
        "root": str(copy.tree),
        "tunable": tunable,
        "x_name": profile.benchmark_variable,
        "x_values": list(options["x_values"] or profile.benchmark_x_values_suggestion),
        "config": config,
        "dtypes": list(options["dtypes"] or [profile.benchmark_fixed_config.get("dtype", "bfloat16")]),
        "budget": options["budget"],
        "targets": list(options["archs"]),
        "measure": measure,
        "known": known,
        "unfit": [],
    }


def _run(copy: KernelCopy, request: dict[str, Any], say: Say) -> tuple[Completed, list[str]]:
    """The child, and what it said. Each point is kept in the workspace as soon as it is measured."""
    folder = copy.folder()
    asked, out, kept = folder / "request.json", folder / "points.jsonl", _kept(copy.root, copy.name)
    asked.write_text(json.dumps(request), encoding="utf-8")
    earlier = kept.read_bytes() if kept.is_file() else b""
    said: list[str] = []

    def heard(line: str) -> None:
        said.append(line)
        say(line)
        if out.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(earlier + out.read_bytes())

    argv = [sys.executable, "-m", "liger_dev.bench.tuner", str(asked), str(out)]
    env = child_env(copy)
    env["PYTHONPATH"] = f"{copy.tree / 'benchmark/scripts'}:{env['PYTHONPATH']}"
    limits = Limits(seconds=request["budget"] + _GRACE_S)
    done = run_child(argv, scratch=folder, limits=limits, env=env, on_line=heard)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return done, said


def _kept(root: Path, name: str) -> Path:
    """Where the points of a run that was stopped wait."""
    return root / ".liger-dev" / "tuning" / f"{name}.jsonl"


def _records(profile: KernelProfile, lines: Sequence[tuned_points.Line], tunable: Mapping[str, Any]) -> list[Tuned]:
    """What was measured, and what the profile says of architectures and dtypes that were not."""
    found = tuned_points.records(lines, {kernel: one["body"] for kernel, one in tunable.items()})
    measured = {(line["kernel"], line["arch"], line["dtype"]) for line in lines}
    return [*(one for one in profile.tuning if (one.kernel, one.arch, one.dtype) not in measured), *found]


def _changes(root: Path, reference: Reference, profile: KernelProfile, lines: Sequence[tuned_points.Line]) -> ChangeSet:
    made = generator.generate(reference, profile, root)
    path, text = tuned_points.path_of(profile.operation_name), tuned_points.to_text(lines)
    view = workspace.View(root)
    if text == (view.read(path) or ""):
        return made
    return ChangeSet((*made.changes, view.change(path, text)), said=made.said)


def markdown(name: str, lines: Sequence[tuned_points.Line]) -> str:
    """A table a GPU: each point's default and its time, what was chosen instead and its time, and how sure that is."""
    text = [f"# Settings of {name}"]
    for place in dict.fromkeys(_place(line) for line in lines):
        own = sorted((line for line in lines if _place(line) == place), key=lambda line: (line["kernel"], line["size"]))
        text += ["", f"{place}; milliseconds of the pass that the kernel is in.", "", *_HEAD, *map(_row, own)]
    return "\n".join(text)


_HEAD = (
    "| Kernel | Dtype | Size | Default | ms | Choice | ms | Ratio | Timed | Dropped |",
    "|---|---|---:|---|---:|---|---:|---|---:|---:|",
)


def _place(line: tuned_points.Line) -> str:
    return ", ".join([line["gpu"], *(f"{name} {version}" for name, version in line["versions"].items())])


def _row(line: tuned_points.Line) -> str:
    same = line["best"] == line["default"]
    counts = [sum(bool(one[kind]) for one in line["tried"]) for kind in ("samples", "dropped")]
    cells = [
        f"`{line['kernel']}`",
        line["dtype"],
        line["size"],
        _settings(line["default"]),
        f"{line['default_ms']:.4f}",
        "the default" if same else _settings(line["best"]),
        "" if same else f"{line['ms']:.4f}",
        "" if same else f"{line['ratio']:.3f} ({line['low']:.3f} to {line['high']:.3f})",
        *counts,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _settings(settings: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _compiled_only(name: str, said: Sequence[str]) -> str:
    return "\n".join([f"# Settings of {name}: compiled only, nothing was timed", "", *(f"- {line}" for line in said)])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
