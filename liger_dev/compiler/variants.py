"""A reference whose static arguments take several values in, a Host for each setting out, kernels shared where they can be."""

import itertools

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from liger_dev.choices import Setting
from liger_dev.choices import settings
from liger_dev.choices import static
from liger_dev.compiler.branches import common_share
from liger_dev.compiler.branches import merged
from liger_dev.compiler.host import Host
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.naming import unique
from liger_dev.errors import Unsupported
from liger_dev.literals import literal
from liger_dev.records import Reference
from liger_dev.records import Scalar

# Kernels of two settings become one with branches if that saves at least this share of the shorter one.
_LEAST_IN_COMMON = 0.5
_MOST_SETTINGS = 12

Names = tuple[str, ...]

Make = Callable[[Reference, Names], Host]


def variants(reference: Reference, make: Make) -> tuple[Reference, list[tuple[Setting, Host]], list[str]]:
    """The reference with those choices that can be compiled, a host for each setting, and why other choices can't be.

    `make` compiles a reference whose defaults are a setting; it is told names for the outputs, or none. All hosts give
    their outputs the same names.

    Raises:
        Unsupported: the defaults can't be compiled.
    """
    made: dict[str, Host] = {}
    notes: list[str] = []
    narrowed = _least(reference)

    def extend(trial: Reference) -> None:
        fresh = [s for s in settings(trial.scalars) if str(s) not in made]
        if len(made) + len(fresh) > _MOST_SETTINGS:
            raise Unsupported(f"its kernels would come in more than {_MOST_SETTINGS} combinations")
        found = {str(s): make(_at(reference, s), ()) for s in fresh}
        for host in found.values():
            first = next(iter({**made, **found}.values())).graph.outputs
            if len(host.graph.outputs) != len(first):
                raise Unsupported(f"it returns {len(host.graph.outputs)} tensors, not {len(first)}")
        made.update(found)

    extend(narrowed)
    for scalar in static(reference.scalars):
        kept = scalar.choices[:1]
        for value in scalar.choices[1:]:
            trial = _with_choices(narrowed, scalar, (*kept, value))
            try:
                extend(trial)
            except Unsupported as error:
                notes.append(f"{scalar.name}={literal(value)} is refused: {error.what}")
                continue
            kept, narrowed = (*kept, value), trial
    hosts = [(setting, made[str(setting)]) for setting in settings(narrowed.scalars)]
    names = _output_names([host.graph for _, host in hosts])
    for i, (setting, host) in enumerate(hosts):
        if tuple(output.name for output in host.graph.outputs) != names:
            hosts[i] = (setting, make(_at(reference, setting), names))
    return narrowed, [(setting, replace(host, reference=narrowed)) for setting, host in hosts], notes


def _least(reference: Reference) -> Reference:
    """The reference with the defaults as the only choices."""
    return replace(reference, scalars=tuple(replace(s, choices=s.choices[:1]) for s in reference.scalars))


def _with_choices(reference: Reference, scalar: Scalar, choices: tuple[Any, ...]) -> Reference:
    scalars = tuple(replace(s, choices=choices) if s.name == scalar.name else s for s in reference.scalars)
    return replace(reference, scalars=scalars)


def _at(reference: Reference, setting: Setting) -> Reference:
    scalars = (
        replace(s, default=setting[s.name], choices=(setting[s.name],)) if s.name in setting else s
        for s in reference.scalars
    )
    return replace(reference, scalars=tuple(scalars))


def _output_names(graphs: Sequence[Graph]) -> Names:
    """For each output a name for all variants: the first that no other value has in any of them."""
    names: list[str] = []
    for own in zip(*(graph.outputs for graph in graphs)):
        wanted = list(dict.fromkeys(output.name for output in own))
        free = [n for n in wanted if not any(_is_taken(graph, o, n) for graph, o in zip(graphs, own))]
        names.append(unique((free or wanted)[0], set(names)))
    return tuple(names)


def _is_taken(graph: Graph, output: Output, name: str) -> bool:
    return any(taken == name and value is not output.value for value, taken in graph.names.items())


def named_outputs(graph: Graph, names: Names) -> None:
    """Gives the outputs these names; other values that have them get a number."""
    for i, (output, name) in enumerate(zip(graph.outputs, names)):
        for value, taken in list(graph.names.items()):
            if taken == name and value is not output.value:
                graph.names[value] = unique(name, set(graph.names.values()))
        graph.outputs[i] = replace(output, name=name)
        if graph.names.get(output.value) == output.name:
            graph.names[output.value] = name


def share_kernels(hosts: Sequence[tuple[Setting, Host]]) -> list[tuple[Setting, Host]]:
    """The hosts with kernels that they have in common: the same one, one with branches, or one each by another name."""
    names = dict.fromkeys(name for _, host in hosts for name in host.texts)
    texts: list[dict[str, KernelText]] = [{} for _ in hosts]
    for name in names:
        having = [i for i, (_, host) in enumerate(hosts) if name in host.texts]
        own = [(hosts[i][0], hosts[i][1].texts[name]) for i in having]
        for i, text in zip(having, _shared(own)):
            texts[i][name] = text
    given = frozenset(name for _, host in hosts for name in (*host.saved, *host.upstream))
    return [
        (setting, replace(host, texts=kernels, backward_names=given)) for (setting, host), kernels in zip(hosts, texts)
    ]


Kernels = Sequence[tuple[Setting, KernelText]]
Pair = tuple[list[tuple[Setting, KernelText]], list[tuple[Setting, KernelText]]]


def _shared(rows: Kernels) -> list[KernelText]:
    """A kernel for each setting: settings whose kernels have enough in common share one."""
    groups = [[row] for row in rows]
    while (pair := _fitting(groups)) is not None:
        first, second = pair
        groups.remove(second)
        first += second
    found: dict[str, KernelText] = {}
    taken: set[str] = set()
    for group in groups:
        whole = _together(group)
        assert whole is not None, "a group is made of kernels that go together"
        name = unique(_suffixed(whole.name, group[0][0], rows[0][0]), taken)
        taken.add(name)
        for setting, text in group:
            absent = tuple(pointer for pointer in whole.pointers if pointer not in text.pointers)
            found[str(setting)] = replace(whole, name=name, absent=absent)
    return [found[str(setting)] for setting, _ in rows]


def _fitting(groups: Sequence[list[tuple[Setting, KernelText]]]) -> Pair | None:
    """The first two groups that go together."""
    pairs = itertools.combinations(groups, 2)
    return next(((a, b) for a, b in pairs if _together([*a, *b]) is not None), None)


def _together(rows: Kernels) -> KernelText | None:
    """One kernel for several settings, with branches where they differ; None if they differ too much."""
    first = rows[0][1]
    if all(text == first for _, text in rows):
        return first
    if not _is_product([setting for setting, _ in rows]) or len({text.flat for _, text in rows}) > 1:
        return None
    lines, branched = merged([(setting, list(text.lines)) for setting, text in rows])
    if common_share([list(own) for own in dict.fromkeys(text.lines for _, text in rows)], lines) < _LEAST_IN_COMMON:
        return None
    return replace(
        first,
        pointers=_in_order([text.pointers for _, text in rows]),
        sizes=_in_order([text.sizes for _, text in rows]),
        scalars=_in_order([text.scalars for _, text in rows]),
        flags=_in_order([text.flags for _, text in rows]),
        lines=tuple(lines),
        statics=tuple(branched),
        reloads=any(text.reloads for _, text in rows),
        late=any(text.late for _, text in rows),
        again=any(text.again for _, text in rows),
    )


def _in_order(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """All names, each behind the one that it stands behind in its own row."""
    found: list[str] = []
    for row in rows:
        for before, name in zip((None, *row), row):
            if name not in found:
                found.insert(found.index(before) + 1 if before else 0, name)
    return tuple(found)


def _is_product(rows: Sequence[Setting]) -> bool:
    """Whether the settings are all combinations of the values that occur in them."""
    count = 1
    for name in rows[0]:
        count *= len({repr(setting[name]) for setting in rows})
    return count == len(rows)


def _suffixed(name: str, setting: Setting, usual: Setting) -> str:
    """`_op_forward_kernel` as `_op_sum_forward_kernel`: the values that set it apart from the defaults."""
    words = [_word(key, value) for key, value in setting.items() if value != usual[key]]
    stage = next((s for s in ("_forward_", "_backward_") if s in name), "_kernel")
    return name.replace(stage, f"_{'_'.join(words)}{stage}", 1) if words else name


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    text = "".join(c if c.isalnum() else "_" for c in str(value).lower()).strip("_")
    return text if isinstance(value, str) and text else f"{name}_{text}"
