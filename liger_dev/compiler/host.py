"""Everything that the wrappers around kernels need to know, and the values of the autograd Function."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.options import Options
from liger_dev.compiler.partition import Plan
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Launch
from liger_dev.compiler.schedule import saved_places
from liger_dev.compiler.schedule import specs_of
from liger_dev.records import Reference
from liger_dev.records import Tensor


@dataclass(frozen=True)
class Host:
    """Everything that the wrappers need to know; `texts` are the kernels by name, `backward_names` the tensors that the
    backward wrapper is given for any setting of static arguments."""

    reference: Reference
    graph: Graph
    plan: Plan
    options: Options
    forward: tuple[Launch, ...]
    backward: tuple[Launch, ...]
    texts: dict[str, KernelText]
    backward_names: frozenset[str] = frozenset()

    @property
    def main(self) -> KernelSpec:
        """The first forward kernel: the one that a description speaks of."""
        return self.forward[0].single or self.forward[0].looped[0]

    @property
    def saved(self) -> list[str]:
        """The tensors that forward saves, in order, each once: slices of one input are that input."""
        return list(dict.fromkeys(self.saved_name(value) for value in self.plan.saved))

    def saved_name(self, value: Value) -> str:
        if value in self.plan.host:
            outputs = {o.value: o.name for o in self.graph.outputs}
            return outputs.get(value) or self.graph.names[value]
        return saved_places(self.graph, self.plan)[value].name

    @property
    def scalars(self) -> list[str]:
        return [scalar.name for scalar in self.reference.scalars]

    @property
    def backward_scalars(self) -> list[str]:
        if self.plan.fused:
            return self.scalars
        texts = [text for launch in self.backward for text in self.kernels(launch)]
        used = {name for text in texts for name in (*text.scalars, *text.statics)}
        return [name for name in self.scalars if name in used]

    @property
    def guards(self) -> list[str]:
        """`NEEDS_DX` of all inputs with a gradient of their own, in the order of the inputs; none when there is one."""
        specs = [s for launch in self.forward if self.plan.fused for s in launch.looped]
        specs += [s for launch in self.backward for s in specs_of(launch)]
        used = {guard for spec in specs for guard in (*spec.guards, spec.when)}
        used |= {f"NEEDS_D{name.upper()}" for name in self.graph.zero_gradients}
        return [guard for name in self.input_names if (guard := f"NEEDS_D{name.upper()}") in used]

    @property
    def input_names(self) -> list[str]:
        return [item.name for item in self.graph.inputs]

    def kernels(self, launch: Launch) -> list[KernelText]:
        return [self.texts[spec.name] for spec in specs_of(launch)]

    def absent(self, launch: Launch) -> list[str]:
        """The pointers of a launch's kernels that this setting has no tensor for."""
        return list(dict.fromkeys(name for text in self.kernels(launch) for name in text.absent))

    @property
    def upstream(self) -> list[str]:
        """The gradients of outputs that backward reads."""
        read = {place.name for launch in self.backward for spec in specs_of(launch) for place in spec.loads.values()}
        return [name for o in self.graph.outputs if (name := f"d{o.name}") in read or self.plan.fused]

    @property
    def owner(self) -> dict[str, str]:
        """For each input with a gradient, the input whose gradient variable it returns."""
        owners, zero = self.graph.gradient_owners, self.graph.zero_gradients
        names = dict.fromkeys(name for name, _ in self.graph.gradients)
        return {name: owners.get(name, name) for name in names if name in owners or name in zero}

    @property
    def needs(self) -> dict[str, list[int]]:
        """For each guard in lower case, the positions of the inputs whose gradient it is about."""
        return {
            guard.lower(): [
                i
                for i, tensor in enumerate(self.reference.tensors)
                if f"needs_d{self.owner.get(tensor.name, '').lower()}" == guard.lower()
            ]
            for guard in self.guards
        }


def promoted(host: Host, dtype_of: tuple[str, ...]) -> str:
    """The dtype that the reference's own promotion gives; an optional input takes part where it is given."""
    optional = {tensor.name for tensor in host.reference.tensors if tensor.optional}
    given = [name for name in dtype_of if name not in optional]
    if not dtype_of:
        return "torch.float32"
    text = f"{given[0]}.dtype"
    for name in given[1:]:
        text = f"torch.promote_types({text}, {name}.dtype)"
    for name in [name for name in dtype_of if name in optional]:
        text = f"torch.promote_types({text}, {name}.dtype) if {name} is not None else {text}"
    return text


def dtype_text(host: Host, inputs: tuple[str, ...]) -> str:
    """The dtype that inputs promote to, in the forward wrapper; an optional one has a gradient of its own."""
    optional = {item.name for item in host.graph.inputs if item.optional}
    if inputs[0] in optional:
        return f"None if {inputs[0]} is None else {inputs[0]}.dtype"
    return promoted(host, inputs)


def function_values(hosts: Sequence[Host]) -> dict[str, Any]:
    """What the autograd Function's template needs, for all hosts together: names in order, for each place where they
    stand."""
    first = hosts[0]
    outputs = [output.name for output in first.graph.outputs]
    saved = list(dict.fromkeys(name for host in hosts for name in host.saved))
    owner = _owners(hosts)
    gradients = list(dict.fromkeys(f"d{name}" for name in owner.values()))
    needs: dict[str, dict[int, None]] = {}
    for host in hosts:
        for guard, positions in host.needs.items():
            needs.setdefault(guard, {}).update(dict.fromkeys(positions))
    order = [f"needs_d{name.lower()}" for name in first.input_names]
    scalars = {name for host in hosts for name in host.backward_scalars}
    upstream = {name for host in hosts for name in host.upstream}
    tensors = [tensor.name for tensor in first.reference.tensors]
    return {
        "outputs": outputs,
        "results": [*outputs, *(gradients if first.plan.fused else [n for n in saved if n not in outputs])],
        "fused": bool(first.plan.fused),
        "saved": saved,
        "scalars": first.scalars,
        "tensors": tensors,
        "backward_scalars": [name for name in first.scalars if name in scalars],
        "upstream": [f"d{name}" for name in outputs if f"d{name}" in upstream],
        "d_outputs": [f"d{name}" for name in outputs],
        "needs": [
            (guard, " or ".join(f"ctx.needs_input_grad[{i}]" for i in sorted(needs[guard])))
            for guard in sorted(needs, key=order.index)
        ],
        "gradients": gradients,
        "returned": [
            *(_returned(tensor, i, owner) for i, tensor in enumerate(first.reference.tensors)),
            *["None"] * len(first.scalars),
        ],
    }


def _returned(tensor: Tensor, position: int, owner: dict[str, str]) -> str:
    """What the autograd Function gives back for an input; nothing for an absent one whose gradient is another's too."""
    if tensor.name not in owner:
        return "None"
    shared = list(owner.values()).count(owner[tensor.name]) > 1
    return f"d{owner[tensor.name]}" + (
        f" if ctx.needs_input_grad[{position}] else None" if tensor.optional and shared else ""
    )


def _owners(hosts: Sequence[Host]) -> dict[str, str]:
    """For each input with a gradient in any host, the input whose gradient variable it returns: that of the hosts, if
    they agree."""
    found: dict[str, str] = {}
    for host in hosts:
        for name, owner in host.owner.items():
            found[name] = owner if found.get(name, owner) == owner else name
    for name, owner in found.items():
        if found.get(owner) != owner:
            found[name] = name
    return found
