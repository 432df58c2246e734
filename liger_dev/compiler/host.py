"""Everything that the wrappers around kernels need to know, and the values of the autograd Function."""

from dataclasses import dataclass

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.options import Options
from liger_dev.compiler.partition import Plan
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Launch
from liger_dev.compiler.schedule import saved_places
from liger_dev.compiler.statements import KernelText
from liger_dev.records import Reference


@dataclass(frozen=True)
class Host:
    """Everything that the wrappers need to know; `texts` are the kernels by name."""

    reference: Reference
    graph: Graph
    plan: Plan
    options: Options
    forward: tuple[Launch, ...]
    backward: tuple[Launch, ...]
    texts: dict[str, KernelText]

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
        used = {name for launch in self.backward for text in self.kernels(launch) for name in text.scalars}
        return [name for name in self.scalars if name in used]

    @property
    def guards(self) -> list[str]:
        """`NEEDS_DX` of all inputs with a gradient of their own, in the order of the inputs; none when there is one."""
        specs = [s for launch in self.backward for s in ((launch.single,) if launch.single else ()) + launch.looped]
        used = {guard for spec in specs for guard in (*spec.guards, spec.when)}
        return [guard for name in self.input_names if (guard := f"NEEDS_D{name.upper()}") in used]

    @property
    def input_names(self) -> list[str]:
        return [item.name for item in self.graph.inputs]

    def kernels(self, launch: Launch) -> list[KernelText]:
        specs = ((launch.single,) if launch.single else ()) + launch.looped
        return [self.texts[spec.name] for spec in specs]

    @property
    def upstream(self) -> list[str]:
        """The gradients of outputs that backward reads."""
        read = {
            place.name
            for launch in self.backward
            for spec in ((launch.single,) if launch.single else ()) + launch.looped
            for place in spec.loads.values()
        }
        return [name for o in self.graph.outputs if (name := f"d{o.name}") in read]

    @property
    def owner(self) -> dict[str, str]:
        """For each input with a gradient, the input whose gradient variable it returns."""
        first: dict[Value, str] = {}
        owners: dict[str, str] = {}
        for (name, _), value in self.graph.gradients.items():
            if value.op != "const":
                owners.setdefault(name, first.setdefault(value, name))
        return owners


def function_values(host: Host) -> dict[str, object]:
    """What the autograd Function's template needs: names in order, for each place where they stand."""
    outputs = [output.name for output in host.graph.outputs]
    owner = host.owner
    needs = []
    for guard in host.guards:
        text = guard.lower()
        indices = [i for i, t in enumerate(host.reference.tensors) if f"needs_d{owner.get(t.name, '').lower()}" == text]
        needs.append((text, " or ".join(f"ctx.needs_input_grad[{i}]" for i in indices)))
    returned = [f"d{owner[t.name]}" if t.name in owner else "None" for t in host.reference.tensors]
    return {
        "outputs": outputs,
        "results": [*outputs, *(name for name in host.saved if name not in outputs)],
        "saved": host.saved,
        "scalars": host.scalars,
        "tensors": [t.name for t in host.reference.tensors],
        "backward_scalars": host.backward_scalars,
        "upstream": host.upstream,
        "d_outputs": [f"d{name}" for name in outputs],
        "needs": needs,
        "gradients": list(dict.fromkeys(f"d{name}" for name in owner.values())),
        "returned": [*returned, *["None"] * len(host.scalars)],
    }
