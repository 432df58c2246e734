"""A run's context in, a stage's output out: who fills the seat, the builtin engine or an agent, is decided here.

`builtin` never asks a model. `claude` asks for every stage. `auto` asks where the builtin engine can't do the work and
a key is there. A pass of the gates counts the same, whoever wrote the kernel.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
from dataclasses import replace
from typing import Any

from liger_dev import analyzer
from liger_dev import generator
from liger_dev import workspace
from liger_dev.agents.draft import formulas_of
from liger_dev.agents.draft import is_by_agent
from liger_dev.agents.draft import redrafted
from liger_dev.agents.seat import has_key
from liger_dev.agents.seat import seat_of
from liger_dev.agents.transcript import Event
from liger_dev.agents.transcript import cost_table
from liger_dev.agents.transcript import read_all
from liger_dev.analyzer import Analysis
from liger_dev.errors import BadInput
from liger_dev.errors import Unsupported
from liger_dev.gate import Attempt
from liger_dev.gate import Gate
from liger_dev.gate import Mend
from liger_dev.pipeline import Context
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.records import ChangeSet
from liger_dev.records import Source
from liger_dev.repair import Repair
from liger_dev.repair import repair
from liger_dev.runs import Run

BUILTIN, AUTO, CLAUDE = "builtin", "auto", "claude"
_KEY = "set ANTHROPIC_API_KEY and an agent is asked (--engine auto or claude)"
_PLACEHOLDER = '"""To be written."""\n'
# What a person may have chosen in a profile, and a new trace of the source would forget.
_KEPT = (
    "function_class_name",
    "module_class_name",
    "functional_name",
    "benchmark_variable",
    "benchmark_x_label",
    "benchmark_x_values_suggestion",
    "benchmark_providers",
    "benchmark_fixed_config",
)


def asks(request: Mapping[str, Any]) -> bool:
    """Whether an agent may be asked: the engine is claude, or auto where a key is."""
    engine = request.get("engine", BUILTIN)
    return engine == CLAUDE or engine == AUTO and has_key()


def analyze(context: Context, source: Source) -> Analysis:
    """The analysis by whoever can. Raises what the analyzer raises, LimitReached and ModelFailed."""
    request, root = context.request, context.root
    name, profile = request["name"], request.get("profile", "")
    if profile:
        given = parse_profile(profile, f"profiles/{name}.yaml")
        if is_by_agent(given):
            return Analysis(analyzer.load_in_child(name, source), given)
        return replace(analyzer.analyze(name, source, root=root), profile=given)
    if source.kind == "prose" or request.get("engine") == CLAUDE:
        if not asks(request):
            raise BadInput("words and formulas take an agent", source.origin, _KEY)
        return _by_agent(context, source, "")
    try:
        found = analyzer.analyze(name, source, root=root)
    except Unsupported as refusal:
        if not asks(request):
            raise _with_key(refusal) from None
        context.say(f"the compiler can't express it: {refusal.what}; asking an agent")
        return _by_agent(context, source, str(refusal))
    return _kept(found, request.get("keep", ""))


def _by_agent(context: Context, source: Source, refusal: str) -> Analysis:
    from liger_dev.agents.analysis import analyze_by_agent

    return analyze_by_agent(context.request["name"], source, seat_of(context), refusal)


def _with_key(refusal: Unsupported) -> Unsupported:
    return Unsupported(refusal.what, refusal.where, f"{refusal.todo}; or {_KEY}" if refusal.todo else _KEY)


def _kept(found: Analysis, old: str) -> Analysis:
    """The analysis with names and benchmark settings of the profile that is replaced, if they still fit its axes."""
    if not old:
        return found
    fields = parse_profile(old, "the profile that is replaced").model_dump(mode="json")
    axes = {axis for tensor in found.profile.forward_inputs for axis in tensor.shape if isinstance(axis, str)}
    fits = axes == {fields["benchmark_variable"], *fields["benchmark_fixed_config"]} - {"dtype"}
    names = [name for name in _KEPT if fits or not name.startswith("benchmark")]
    data = {**found.profile.model_dump(mode="json"), **{name: fields[name] for name in names}}
    return replace(found, profile=KernelProfile.model_validate(data))


def remark_on_analysis(context: Context, source: Source, analysis: Analysis, remark: str) -> Analysis:
    """The analysis as a reviewer wants it, by the analyzer's agent."""
    from liger_dev.agents.analysis import Wish
    from liger_dev.agents.analysis import analyze_by_agent

    return analyze_by_agent(
        context.request["name"], source, seat_of(context), wish=Wish(remark, analysis.reference.text)
    )


def reanalyze(context: Context, analysis: Analysis, source: Source) -> Analysis:
    """The analysis of an edited reference. One that the compiler can't express keeps its plan and formulas, if they hold."""
    name = analysis.reference.name
    if not is_by_agent(analysis.profile):
        return analyzer.analyze(name, source, root=context.root)
    reference = analyzer.load_in_child(name, source)
    outputs = analyzer.facts_in_child(reference, formulas_of(analysis.profile))
    return replace(analysis, reference=reference, profile=redrafted(reference, analysis.profile, outputs))


def generate(context: Context, analysis: Analysis) -> ChangeSet:
    """The files of a kernel: the compiler's, or an agent's where it has none or is beaten."""
    overwrite = context.request["overwrite"]
    if is_by_agent(analysis.profile):
        if not asks(context.request):
            raise Unsupported("the compiler can't express the reference", analysis.reference.name, _KEY)
        return _write(context, analysis, overwrite)
    compiled = generator.generate(analysis.reference, analysis.profile, context.root, overwrite=overwrite)
    return _contest(context, analysis, compiled) if context.request.get("engine") == CLAUDE else compiled


def _write(
    context: Context, analysis: Analysis, overwrite: bool, *, compiled: str = "", remark: str = "", previous: str = ""
) -> ChangeSet:
    from liger_dev.agents.generation import write_op

    files = _files(_laid_out(context, analysis, _PLACEHOLDER, overwrite))
    files.pop(f"kernels/ops/{analysis.reference.name}.py", None)
    options = {"compiled": compiled, "remark": remark, "previous": previous}
    seat = seat_of(context)
    text, said = write_op(analysis, files, seat, **options)
    if not is_by_agent(analysis.profile):
        analysis = replace(analysis, profile=_by(analysis.profile, seat.model))
    return replace(_laid_out(context, analysis, text, overwrite), said=said)


def _by(profile: KernelProfile, model: str) -> KernelProfile:
    """The profile of a kernel that an agent has written where the compiler could, too."""
    written = {generator.KERNEL: f"written by {model} in place of the compiler's"}
    return profile.model_copy(update={"provenance": {**profile.provenance, **written}})


def _laid_out(context: Context, analysis: Analysis, op: str, overwrite: bool) -> ChangeSet:
    return generator.generate(analysis.reference, analysis.profile, context.root, overwrite=overwrite, op_text=op)


def _files(changes: ChangeSet) -> dict[str, str]:
    return {change.path: change.content for change in changes.changes if not change.binary}


def _contest(context: Context, analysis: Analysis, compiled: ChangeSet) -> ChangeSet:
    """The agent's kernel if it passes the gate and is measurably better than the compiler's, else the compiler's.

    Without a GPU nothing can be measured, so the agent is not asked and not paid.
    """
    from liger_dev.agents.contest import contest
    from liger_dev.agents.generation import measured
    from liger_dev.agents.trials import device
    from liger_dev.agents.trials import passes_gate

    op, seat = f"kernels/ops/{analysis.reference.name}.py", seat_of(context)
    old = _files(compiled).get(op) or workspace.read(context.root, op) or ""
    written = _write(context, analysis, context.request["overwrite"], compiled=old) if device() else compiled
    outcome = contest(
        old,
        _files(written).get(op, old),
        device(),
        lambda text: passes_gate(context.root, analysis, {**_files(written), op: text}, context.say),
        lambda text: measured({**_files(written), op: text}, analysis.reference.name, seat),
    )
    context.say(outcome.reason)
    said = "\n".join(filter(None, (outcome.reason, written.said)))
    return replace(written if outcome.wins else compiled, said=said)


def remark_on_kernel(context: Context, analysis: Analysis, changes: ChangeSet, remark: str) -> ChangeSet:
    """The files with the op file as a reviewer wants it, by the generator's agent."""
    op = f"kernels/ops/{analysis.reference.name}.py"
    previous = _files(changes).get(op) or workspace.read(context.root, op) or _PLACEHOLDER
    return _write(context, analysis, context.request["overwrite"], remark=remark, previous=previous)


def modify(context: Context, remark: str = "", last: ChangeSet = ChangeSet(())) -> ChangeSet:
    """What an agent edits in a kernel of the workspace, as the request's `wish` says, and a remark on its last change."""
    from liger_dev.agents.modification import modify_by_agent

    request = context.request
    if not asks(request):
        raise BadInput("a change in words takes an agent", "modify", f"{_KEY}; or name a source: --from SOURCE")

    def derive(name: str, text: str, profile: KernelProfile) -> KernelProfile:
        source = Source("function", text, name, f"kernels/reference/{name}.py, as modified")
        if is_by_agent(profile):
            return reanalyze(context, Analysis(analyzer.load_in_child(name, source), profile), source).profile
        return _kept(analyzer.analyze(name, source, root=context.root), print_profile(profile)).profile

    return modify_by_agent(request["name"], request["wish"], context.root, seat_of(context), derive, remark, last)


def mend_of(context: Context) -> tuple[Mend | None, Callable[[Gate, str], str] | None]:
    """Who repairs, and who writes to the person in the end; None for the builtin engine's own."""
    if not asks(context.request):
        return None, None
    from liger_dev.agents.repairs import Mender

    mender = Mender(context.request["name"], context.root, seat_of(context))
    where = f"profiles/{context.request['name']}.yaml"
    profile = parse_profile(workspace.read(context.root, where) or "", where)
    if context.request.get("engine") == CLAUDE or is_by_agent(profile):
        return mender, mender.account
    integers = frozenset(tensor.name for tensor in profile.forward_inputs if tensor.dtype in ("int", "bool"))

    def builtin_first(text: str, attempt: Attempt, tried: Set[str]) -> Repair | None:
        """One builtin move, which is free; what it does not mend is the agent's."""
        return (None if tried else repair(text, attempt.kind, tried, integers)) or mender(text, attempt, tried)

    return builtin_first, mender.account


def talks(context: Context) -> dict[str, list[Event]]:
    """All that the run's agents were asked and answered, by the transcript's file name."""
    return {found.path.name: found.events for found in read_all(Run(context.root, context.run_id).folder)}


def costs(context: Context) -> list[str]:
    """The report's table of what the run's agents took; empty if none was asked."""
    transcripts = read_all(Run(context.root, context.run_id).folder)
    return cost_table(transcripts) if transcripts else []
