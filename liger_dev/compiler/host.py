"""KernelTexts in, the Python around them out: wrappers that allocate and launch, and the autograd Function's values."""

from dataclasses import dataclass

from liger_dev.compiler.emit import KernelText
from liger_dev.compiler.host_values import HostValues
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import Layout
from liger_dev.compiler.layout import read_axes
from liger_dev.compiler.options import Options
from liger_dev.compiler.partition import Plan
from liger_dev.compiler.schedule import Accumulator
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Launch
from liger_dev.compiler.schedule import Place
from liger_dev.compiler.schedule import Store
from liger_dev.compiler.schedule import host_operands
from liger_dev.compiler.schedule import kept_place
from liger_dev.compiler.schedule import saved_places
from liger_dev.compiler.shapes import Shapes
from liger_dev.compiler.slices import output_slices
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


def forward_lines(host: Host) -> list[str]:
    """The body of `NAME_forward(tensors, scalars)`: returns outputs, then what backward saves beside them."""
    graph = host.graph
    required = [i for i in graph.inputs if not i.optional]
    shapes = Shapes(graph, {i.name: i.dims for i in required})
    full = required[0]
    lines = [*_static(host), *_checks(host, shapes)]
    lines += [_contiguous(item) for item in graph.inputs]
    layout: Layout | None = None
    filled: set[str] = set()
    for launch in host.forward:
        spec = launch.single or launch.looped[0]
        head = _sizes(shapes, spec.layout) if spec.layout != layout else []
        layout = spec.layout
        lines = [*head, *lines] if head and not filled and "row_shape" in head[0] else [*lines, *head]
        for store in spec.stores:
            if store.place.name not in filled:
                filled.add(store.place.name)
                lines.append(f"{store.place.name} = {_empty_forward(host, store, shapes, full.name)}")
        lines += _launch(host, launch, f"{full.name}.device", "forward", shapes)
    lines += _host_lines(host, shapes)
    outputs = [output.name for output in graph.outputs]
    kept = [name for name in host.saved if name not in outputs]
    lines.append(f"return {', '.join([*outputs, *kept])}")
    return lines


def _static(host: Host) -> list[str]:
    """Refusals of flags and integers other than the ones that the kernels were compiled for."""
    graph = host.graph
    values = graph.walk([*(o.value for o in graph.outputs), *graph.gradients.values()])
    used = {value.attr("name") for value in values if value.op == "param"}
    fixed = [s for s in host.reference.scalars if s.name not in used and s.type != "float"]
    return [f'check_static("{s.name}", {s.name}, {s.default!r})' for s in fixed]


def _checks(host: Host, shapes: Shapes) -> list[str]:
    """Dtypes, devices, and every size that two tensors share: nothing is broadcast silently."""
    graph = host.graph
    kinds: dict[str, list[str]] = {}
    for tensor in host.reference.tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor.name)
    lines = [f"check_floating({', '.join(f'{n}={n}' for n in kinds['float'])})"] if "float" in kinds else []
    for kind, check in (("int", "check_integer"), ("bool", "check_bool")):
        if kind in kinds:
            lines.append(f"{check}({', '.join(f'{n}={n}' for n in kinds[kind])})")
    known = Shapes(graph, {})
    for item in graph.inputs:
        expected = known.shape(item.dims, item.name)
        own = all(part.startswith(f"{item.name}.shape[") for part in expected.strip("(),").split(", "))
        if known.tensors and not own or any(graph.sizes[a].isdigit() for a in read_axes(item.dims)):
            lines.append(f'check_shape("{item.name}", {item.name}, {expected})')
        if not item.optional:
            known = Shapes(graph, {**known.tensors, item.name: item.dims})
    del shapes
    return lines


def _contiguous(item: Input) -> str:
    name = item.name
    return f"{name} = {name}.contiguous()" + (f" if {name} is not None else None" if item.optional else "")


def _sizes(shapes: Shapes, layout: Layout) -> list[str]:
    if layout.flat:
        return [f"n_elements = {shapes.product(layout.cols)}"]
    return [shapes.rows_and_cols(layout)]


def _empty_forward(host: Host, store: Store, shapes: Shapes, full: str) -> str:
    outputs = {output.name: output for output in host.graph.outputs}
    place = store.place
    if place.name not in outputs:
        if place.exact:
            rows = tuple(axis for dim in place.dims for axis in dim)
            size = "n_rows" if rows == host.main.layout.rows else shapes.product(rows)
            return f"torch.empty({size}, dtype=torch.float32, device={full}.device)"
        like = store.value.attr("like") if store.value.op == "round" else ()  # exact, unless the reference rounds it
        return _empty(shapes, place.dims, _promoted(host, like), full)
    output = outputs[place.name]
    if output.value.dtype == "bool":
        return _empty(shapes, place.dims, "torch.bool", full)
    if output.value.dtype == "int":
        return _empty(shapes, place.dims, "torch.int64", full)
    return _empty(shapes, place.dims, _promoted(host, output.dtype_of), full)


def _empty(shapes: Shapes, dims: Dims, dtype: str, full: str) -> str:
    same = [name for name, other in shapes.tensors.items() if other == dims]
    alike = next((name for name in same if dtype == f"{name}.dtype"), same[0] if same else "")
    if alike and dtype == f"{alike}.dtype":
        return f"torch.empty_like({alike})"
    if alike:
        return f"torch.empty_like({alike}, dtype={dtype})"
    return f"torch.empty({shapes.shape(dims)}, dtype={dtype}, device={full}.device)"


def _promoted(host: Host, dtype_of: tuple[str, ...]) -> str:
    """The dtype that the reference's own promotion gives."""
    optional = {tensor.name for tensor in host.reference.tensors if tensor.optional}
    given = [name for name in dtype_of if name not in optional]
    if not dtype_of:
        return "torch.float32"
    text = f"{given[0]}.dtype"
    for name in given[1:]:
        text = f"torch.promote_types({text}, {name}.dtype)"
    return text


def _host_lines(host: Host, shapes: Shapes) -> list[str]:
    """Sums over rows, and the outputs made of them."""
    graph, plan = host.graph, host.plan
    wanted = {output.value: output.name for output in graph.outputs if output.value in plan.host}
    for value in plan.saved:
        if value in plan.host:
            if value not in graph.names:
                graph.names[value] = kept_place(graph, value, plan).name
            wanted.setdefault(value, graph.names[value])
    if not wanted:
        return []
    rows: dict[Value, tuple[str, tuple[str, ...]]] = {}
    stored = {v: Place(o.name, o.dims, cut) for o in graph.outputs for cut, v in output_slices(o)}
    for operand in host_operands(graph, plan):
        place = stored.get(operand) or kept_place(graph, operand, plan)
        rows[operand] = (place.name, place.axes)
    lines = HostValues(graph, shapes, rows, wanted).assign(plan.host)
    for output in graph.outputs:
        if output.value in plan.host and output.dtype_of:
            dtype = _promoted(host, output.dtype_of)
            lines = [f"{line}" for line in lines]
            index = next(i for i, line in enumerate(lines) if line.startswith(f"{output.name} = "))
            text = lines[index].split(" = ", 1)[1]
            lines[index] = f"{output.name} = ({text}).to({dtype})"
    return lines


def backward_lines(host: Host, given: dict[str, str] | None = None) -> list[str]:
    """The body of `NAME_backward(upstream, saved, scalars, sizes, needs)`: returns the gradients in the order of inputs.

    `given` collects the sizes that it takes as arguments, by axis.
    """
    graph = host.graph
    dims = {f"d{o.name}": o.dims for o in graph.outputs}
    tensors = {name: dims[name] for name in host.upstream}
    for value, place in saved_places(graph, host.plan).items():
        if (
            not place.exact
            and value not in host.plan.host
            and place.name not in {i.name for i in graph.inputs if i.optional}
        ):
            tensors[place.name] = place.dims
    shapes = Shapes(graph, tensors, given if given is not None else {})
    lead = (host.upstream or list(tensors))[0]
    lines = [f"{name} = {name}.contiguous()" for name in host.upstream if dims[name]]
    layout: Layout | None = None
    filled: set[str] = set()
    for launch in host.backward:
        spec = launch.single or launch.looped[0]
        head = _sizes(shapes, spec.layout) if spec.layout != layout else []
        layout = spec.layout
        lines = [*head, *lines] if head and not filled and "row_shape" in head[0] else [*lines, *head]
        for name in dict.fromkeys(store.place.name for store in spec.stores if not spec.totals):
            if name not in filled:
                filled.add(name)
                guard = next(store.guard for store in spec.stores if store.place.name == name) or spec.when
                lines.append(_conditional(f"{name} = {_empty_gradient(host, name, shapes, lead)}", guard))
        for acc in _sliced(launch):
            if acc.place.name not in filled:
                filled.add(acc.place.name)
                fresh = f"{acc.place.name} = {_empty_gradient(host, acc.place.name, shapes, lead)}"
                lines.append(_conditional(fresh, acc.guard))
        lines += _launch(host, launch, f"{lead}.device", "backward", shapes)
    distinct = dict.fromkeys(f"d{name}" for name in host.owner.values())
    lines.append(f"return {', '.join(distinct)}")
    return lines


def _sliced(launch: Launch) -> list[Accumulator]:
    """The sums that fill a slice of a gradient only."""
    specs = [*([launch.single] if launch.single else []), *launch.looped]
    return [acc for spec in specs for acc in (*spec.accumulators, *spec.totals) if acc.place.slices]


def _conditional(line: str, guard: str) -> str:
    return f"{line} if {guard.lower()} else None" if guard else line


def _empty_gradient(host: Host, name: str, shapes: Shapes, lead: str) -> str:
    """A gradient's memory: like its input where that is saved; zeros where slices leave elements untouched."""
    own = name.removeprefix("d")
    make = "empty" if _covered(host, own) else "zeros"
    if _adds(host, name):  # several kernels add to it
        return f"torch.{make}({shapes.shape(host.graph.dims_of(own))}, dtype=torch.float32, device={lead}.device)"
    if own in shapes.tensors or own in host.saved:
        return f"torch.{make}_like({own})"
    dims = host.graph.dims_of(own)
    floats = {n: other for n, other in shapes.tensors.items() if _is_float(host, n)}
    alike = next((n for n, other in floats.items() if other == dims and n != lead), "")
    alike = alike or next((n for n, other in floats.items() if other == dims), "")
    if alike:
        return f"torch.{make}_like({alike})"
    return f"torch.{make}({shapes.shape(dims)}, dtype={lead}.dtype, device={lead}.device)"


def _adds(host: Host, name: str) -> bool:
    specs = [spec for launch in host.backward for spec in launch.looped]
    return any(store.add and store.place.name == name for spec in specs for store in spec.stores)


def _is_float(host: Host, name: str) -> bool:
    kinds = {tensor.name: tensor.dtype for tensor in host.reference.tensors}
    return kinds.get(name, "float") == "float"


def _covered(host: Host, name: str) -> bool:
    """Whether the stored slices of a gradient fill it."""
    extents, dims = host.graph.extents, host.graph.dims_of(name)
    total = 0
    for (owner, cut), value in host.graph.gradients.items():
        if owner == name and value.op != "const":
            axes = read_axes(dims, cut)
            count = 1
            for axis in axes:
                count *= extents[axis]
            total += count
    whole = 1
    for axis in read_axes(dims):
        whole *= extents[axis]
    return total == whole


def _launch(host: Host, launch: Launch, device: str, stage: str, shapes: Shapes) -> list[str]:
    """The launch of whichever kernel suits the length of a row."""
    if launch.single is None:
        lines: list[str] = []
        layout = None
        for i, spec in enumerate(launch.looped):
            head = _sizes(shapes, spec.layout) if i and spec.layout != layout else []
            layout = spec.layout
            lines += [*head, *_guarded_kernel(host, spec, device, stage, shapes)]
        return lines
    single = _kernel(host, launch.single, device, stage, shapes)
    if not launch.looped:
        return single
    looped = _launch(host, Launch(None, launch.looped), device, stage, shapes)
    own = [acc for acc in launch.single.accumulators if acc.value.axes and not acc.place.slices]
    made = [_conditional(f"{acc.name} = {_sum_memory(host, acc, shapes, device)}", acc.guard) for acc in own]
    limit = host.options.block_cols or "LONG_ROW"
    return [
        f"if n_cols <= {limit}:",
        *(f"    {line}" for line in single),
        "else:",
        *(f"    {line}" for line in [*made, *looped]),
    ]


def _sum_memory(host: Host, acc: Accumulator, shapes: Shapes, device: str) -> str:
    own = acc.name.removeprefix("d")
    if own in host.saved:
        return f"torch.empty_like({own})"
    dims = host.graph.dims_of(own)
    return f"torch.empty({shapes.shape(dims)}, dtype=torch.float32, device={device})"


def _guarded_kernel(host: Host, spec: KernelSpec, device: str, stage: str, shapes: Shapes) -> list[str]:
    """A kernel that does nothing but one gradient is not launched when that is not needed."""
    lines = _kernel(host, spec, device, stage, shapes)
    if not spec.when:
        return lines
    whole = [total.name for total in spec.totals if not total.place.slices]
    return [*(f"{name} = None" for name in whole), f"if {spec.when.lower()}:", *(f"    {line}" for line in lines)]


def _kernel(host: Host, spec: KernelSpec, device: str, stage: str, shapes: Shapes) -> list[str]:
    """Settings, partial sums, the launch, and the final sums of one kernel."""
    text = host.texts[spec.name]
    scalars = [f"{name}={name}" for name in host.scalars if name in text.scalars]
    flags = [f"{flag}={_flag_value(flag)}" for flag in text.flags]
    sizes = [shapes.axis(axis) for axis in text.sizes]
    if spec.layout.flat:
        args = [
            *text.pointers,
            "n_elements",
            *sizes,
            *scalars,
            *flags,
            "BLOCK_SIZE=BLOCK_SIZE",
            f"num_warps={host.options.num_warps}",
        ]
        return [
            f"with device_guard({device}):",
            f"    {spec.name}[(triton.cdiv(n_elements, BLOCK_SIZE),)]({', '.join(args)})",
        ]
    stages = ["NUM_STAGES=loop_stages(n_cols)"] if spec.persistent else []
    blocks = ["BLOCK_ROWS=BLOCK_ROWS", "BLOCK_COLS=BLOCK_COLS", *stages, "num_warps=num_warps"]
    args = [*text.pointers, "n_rows", "n_cols", *sizes, *scalars, *flags, *blocks]
    grid = "n_programs" if spec.persistent else "triton.cdiv(n_rows, BLOCK_ROWS)"
    lines = [f"{t.name}_partial = torch.empty(n_rows, dtype=torch.float32, device={device})" for t in spec.totals]
    lines += [f"BLOCK_ROWS, BLOCK_COLS, num_warps = {_settings(host, spec, stage)}"]
    if spec.persistent:
        factor = f"{host.options.programs_per_sm} * " if host.options.programs_per_sm != 1 else ""
        lines.append(f"n_programs = min(triton.cdiv(n_rows, BLOCK_ROWS), {factor}sm_count({device}))")
        for acc in spec.accumulators:
            shape = "(n_programs, n_cols)" if acc.value.axes else "n_programs"
            fresh = f"{acc.name}_partial = torch.empty({shape}, dtype=torch.float32, device={device})"
            lines.append(_conditional(fresh, acc.guard))
    lines += [f"with device_guard({device}):", f"    {spec.name}[({grid},)]({', '.join(args)})"]
    lines += [line for total in spec.totals for line in _final(host, total, "", shapes)]
    last_if = ""
    for line in (line for acc in spec.accumulators for line in _final(host, acc, acc.guard, shapes)):
        if not (line.startswith("if ") and line == last_if):
            lines.append(line)
        last_if = line if line.startswith("if ") else last_if if line.startswith("    ") else ""
    return lines


def _final(host: Host, acc: Accumulator, guard: str, shapes: Shapes) -> list[str]:
    """The gradient, or the slice of it, from its partial sums."""
    name, cut = acc.place.name, dict(acc.place.slices)
    if not cut:
        return [_conditional(f"{name} = {_final_sum(host, name, len(acc.value.axes))}", guard)]
    index = ", ".join(_index(cut[i], shapes) if i in cut else ":" for i in range(len(acc.place.dims)))
    line = f"{name}[{index}] = {acc.name}_partial.sum(0)"
    return [f"if {guard.lower()}:", f"    {line}"] if guard else [line]


def _index(piece: Slice, shapes: Shapes) -> str:
    """A slice as Python's subscript."""
    start = " + ".join([*([str(piece.first)] if piece.first else []), *(shapes.axis(a) for a in piece.after)]) or "0"
    if not piece.axes:
        return start
    return f"{start} : {start} + {piece.step} * {shapes.dim(piece.axes)} : {piece.step}"


def _settings(host: Host, spec: KernelSpec, stage: str) -> str:
    if not spec.looped:
        return f"row_settings(n_cols{host.options.settings(stage)})"
    order = [axis for tensor in host.graph.inputs for axis in read_axes(tensor.dims)]
    strided = order and spec.layout.rows and _last_axis(host.graph) in spec.layout.rows
    return "column_settings(n_rows, n_cols)" if strided else "loop_settings(n_cols)"


def _last_axis(graph: Graph) -> str:
    """The axis that lies together in memory in the largest tensor."""
    largest = max([read_axes(i.dims) for i in graph.inputs] + [read_axes(o.dims) for o in graph.outputs], key=len)
    return largest[-1] if largest else ""


def _flag_value(flag: str) -> str:
    return f"{flag[4:].lower()} is not None" if flag.startswith("HAS_") else flag.lower()


def _final_sum(host: Host, name: str, axes: int) -> str:
    own = name.removeprefix("d")
    dims = next(i.dims for i in host.graph.inputs if i.name == own)
    total = f"{name}_partial.sum(0)"
    if len(dims) != axes:
        total += f".view({', '.join('-1' if d else '1' for d in dims)})"
    return total + (f".to({own}.dtype)" if own in host.saved else "")


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
