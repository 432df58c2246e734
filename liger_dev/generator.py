"""A reference and a reviewed profile go in; the change set of all files of that kernel comes out, nothing written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liger_dev import analyzer
from liger_dev import edits
from liger_dev import honour
from liger_dev import workspace
from liger_dev.case_values import DTYPES
from liger_dev.case_values import SizeDemands
from liger_dev.errors import HandEdited
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.records import Reference
from liger_dev.records import digest
from liger_dev.render import format_python
from liger_dev.render import is_hand_edited
from liger_dev.render import output_path
from liger_dev.render import read_stamp
from liger_dev.render import render_all
from liger_dev.render import stamp
from liger_dev.render import template_hash
from liger_dev.skeleton import missing
from liger_dev.template_values import values
from liger_dev.workspace import View

OP = "kernels/ops/{{ operation_name }}.py.jinja"
TEMPLATES = (
    OP,
    "kernels/modules/{{ operation_name }}.py.jinja",
    "test/kernels/test_{{ operation_name }}.py.jinja",
    "benchmark/scripts/benchmark_{{ operation_name }}.py.jinja",
)

# Keys in a profile's provenance: what an agent has changed in the kernel, in the words that asked for it; and who has
# written it in place of the compiler's. Generating again would undo both.
MODIFIED, KERNEL = "modified", "kernel"


def generate(
    reference: Reference, profile: KernelProfile, root: Path, *, overwrite: bool = False, op_text: str = ""
) -> ChangeSet:
    """All files of a kernel, rendered for the workspace `root`; files that would not change are left out.

    The order is: what the workspace lacks, reference, profile, op, module, test, benchmark script, exports.

    Args:
        overwrite: replace generated files that were edited by hand, or modified as asked, too.
        op_text: the op file, in place of the compiler's.

    Raises:
        ProfileRefused: the profile differs from what the reference gives, in a way that can't be honoured.
        HandEdited: a file to replace was edited or written by hand, or modified as somebody has asked.
        BadInput: a file to edit does not parse.
    """
    view = View(root)
    profile = _without(profile, (MODIFIED,) if op_text else (MODIFIED, KERNEL))
    profile = _with_tuning_of(view, profile)
    op = {} if op_text else compiled_values(reference, profile)
    profile, dropped = _fitting(profile, op)
    texts = kernel_files(reference, profile, op, op_text=op_text)
    if not overwrite:
        _refuse_hand_edits(view, texts)
        _refuse_undoing(view, profile, texts)
    texts = {
        f"kernels/reference/{reference.name}.py": reference.text,
        **_profile_file(profile, view),
        **texts,
    }
    base = {change.path: change for change in missing(view).changes}
    changes = [*base.values(), *(view.change(path, text) for path, text in texts.items())]
    for path, text in _exports(profile, values(reference, profile), view, base).items():
        changes = [change for change in changes if change.path != path]
        changes.append(view.change(path, text))
    changed = tuple(change for change in changes if view.read(change.path) != change.content)
    return ChangeSet(changed, said=dropped)


def compiled_values(reference: Reference, profile: KernelProfile) -> dict[str, Any]:
    """The compiler's values for the op template, with the reviewer's edits of the profile as its options.

    Raises:
        ProfileRefused: an edit can't be honoured.
        Unsupported: the compiler can't express the reference.
    """
    reply = analyzer.compile_in_child(reference, {})
    options = honour.options(KernelProfile.model_validate(reply.profile), profile)
    if options:
        reply = analyzer.compile_in_child(reference, options)
    return dict(reply.op)


def kernel_files(
    reference: Reference,
    profile: KernelProfile,
    op: Mapping[str, Any],
    templates: tuple[str, ...] = TEMPLATES,
    op_text: str = "",
) -> dict[str, str]:
    """The stamped texts of a kernel's own files by path. `op` holds what the op template needs besides.

    An `op_text` that somebody else has written takes the place of the op template's.
    """
    demands = op.get("op", {})
    sizes = SizeDemands(
        demands.get("divisors", {}), demands.get("limits", {}), demands.get("least", {}), demands.get("counts", ())
    )
    counted, picked = demands.get("counted_axes", ()), demands.get("picked", ())
    named = {**values(reference, profile, sizes, counted, picked, demands.get("dtypes", DTYPES)), **op}
    texts = render_all((t for t in templates if not (op_text and t == OP)), named)
    if op_text:
        texts[output_path(OP, named)] = op_text
    source, profile_hash = _profile_path(profile), digest(print_profile(profile))
    return {
        (path := output_path(template, named)): stamp(texts[path], source, profile_hash, template_hash(template))
        for template in templates
    }


def check(root: Path) -> list[str]:
    """One line for each generated file of the workspace that was edited by hand, or is older than what it is from.

    Raises:
        BadInput: a profile does not fit the schema.
    """
    found: list[str] = []
    for file in sorted((root / "profiles").glob("*.yaml")):
        where = f"profiles/{file.name}"
        profile = parse_profile(workspace.read(root, where) or "", where)
        for template in TEMPLATES:
            path = output_path(template, {"operation_name": profile.operation_name})
            text = workspace.read(root, path)
            complaint = "is missing" if text is None else _complaint(text, profile, template)
            if complaint:
                found.append(f"{path}: {complaint}")
    return found


def _complaint(text: str, profile: KernelProfile, template: str) -> str:
    found = read_stamp(text)
    if found is None:
        return "was written by hand: it has no stamp"
    if is_hand_edited(text):
        return "was edited by hand"
    if found["profile"] != digest(print_profile(profile))[:8]:
        return f"is stale: {_profile_path(profile)} changed since it was generated"
    if found["template"] != template_hash(template)[:8]:
        return "is stale: its template changed since it was generated"
    return ""


def _refuse_hand_edits(view: View, texts: Mapping[str, str]) -> None:
    on_disk = {path: view.read(path) for path in texts}
    edited = [path for path, old in on_disk.items() if old is not None and old != texts[path] and is_hand_edited(old)]
    if edited:
        raise HandEdited(
            "generated files were edited or written by hand, and would be replaced",
            ", ".join(edited),
            "move the edits elsewhere, or pass --overwrite to lose them",
        )


def _without(profile: KernelProfile, keys: tuple[str, ...]) -> KernelProfile:
    kept = {key: value for key, value in profile.provenance.items() if key not in keys}
    return profile.model_copy(update={"provenance": kept})


def _refuse_undoing(view: View, profile: KernelProfile, texts: Mapping[str, str]) -> None:
    path = _profile_path(profile)
    text = view.read(path)
    made = parse_profile(text, path).provenance if text is not None else {}
    if made.keys() & {MODIFIED, KERNEL} and any(view.read(p) not in (None, new) for p, new in texts.items()):
        done = f"what was changed in the kernel as asked: {made[MODIFIED]}" if MODIFIED in made else made[KERNEL]
        raise HandEdited(
            f"this would undo {done}",
            path,
            "keep it, change it with `liger-dev modify`, or pass --overwrite to lose it",
        )


def _with_tuning_of(view: View, profile: KernelProfile) -> KernelProfile:
    """A profile that says nothing of measured settings takes over what the workspace's own one says."""
    path = _profile_path(profile)
    text = view.read(path)
    if profile.tuning or text is None:
        return profile
    return profile.model_copy(update={"tuning": parse_profile(text, path).tuning})


def _fitting(profile: KernelProfile, op: Mapping[str, Any]) -> tuple[KernelProfile, str]:
    """The profile without settings of kernels that are no longer those which were measured, and a sentence on these."""
    kernels = op["op"]["tunable"] if op else {}
    now = {name: (kernel["body"], [*kernel["knobs"]]) for name, kernel in kernels.items()}
    kept = [record for record in profile.tuning if now.get(record.kernel) == (record.body, [*record.settings])]
    dropped = dict.fromkeys(record.kernel for record in profile.tuning if record not in kept)
    again = f"measure again: liger-dev tune {profile.operation_name}"
    said = f"Settings measured for {', '.join(dropped)} are left out, since the kernel or what it leaves open has changed; {again}"
    return profile.model_copy(update={"tuning": kept}), said if dropped else ""


def _profile_path(profile: KernelProfile) -> str:
    return f"profiles/{profile.operation_name}.yaml"


def _profile_file(profile: KernelProfile, view: View) -> dict[str, str]:
    """The profile's file, unless the one on disk says the same: that one may carry comments."""
    path = _profile_path(profile)
    old = view.read(path)
    return {} if old is not None and parse_profile(old, path) == profile else {path: print_profile(profile)}


def _exports(
    profile: KernelProfile, named: Mapping[str, Any], view: View, base: Mapping[str, Change]
) -> dict[str, str]:
    """The files that all kernels share, with this kernel's lines in them."""
    name = profile.operation_name

    def current(path: str) -> str:
        return base[path].content if path in base else view.read(path) or ""

    ops, modules, functional = "kernels/ops/__init__.py", "kernels/modules/__init__.py", "kernels/functional.py"
    ops_text = current(ops)
    backward = [f"{name}_backward"] if named["differentiable"] else []
    for symbol in (profile.function_class_name, *backward, f"{name}_forward"):
        ops_text = edits.add_import(ops_text, f"kernels.ops.{name}", symbol, "F401", ops)
    modules_text = edits.add_import(
        current(modules), f"kernels.modules.{name}", profile.module_class_name, "F401", modules
    )
    text = edits.add_import(current(functional), f"kernels.ops.{name}", profile.function_class_name, where=functional)
    text = edits.add_function(text, functional_source(named), functional)
    return {ops: ops_text, modules: modules_text, functional: text}


def functional_source(named: Mapping[str, Any]) -> str:
    """The functional form's source, formatted, from the template's values."""
    path = "kernels/functional.py"
    lines = [
        f"def {named['functional_name']}({named['signature']}):",
        f'    """{named["functional_doc"][0]}',
        *named["functional_doc"][1:],
        '    """',
        f"    return {named['function_class_name']}.apply({named['apply_arguments']})",
    ]
    return format_python({path: "\n".join(lines) + "\n"})[path]
