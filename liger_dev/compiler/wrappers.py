"""Launches in, the bodies of the two wrappers out: checks, allocations, launches, what is returned."""

from collections.abc import Sequence

from liger_dev.compiler.demands import divisibility_checks
from liger_dev.compiler.demands import least_checks
from liger_dev.compiler.demands import limit_checks
from liger_dev.compiler.demands import rank_checks
from liger_dev.compiler.host import Host
from liger_dev.compiler.host import dtype_text
from liger_dev.compiler.host import promoted
from liger_dev.compiler.host_values import HostValues
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Value
from liger_dev.compiler.launching import conditional
from liger_dev.compiler.launching import launch_lines
from liger_dev.compiler.launching import sizes
from liger_dev.compiler.layout import Layout
from liger_dev.compiler.layout import read_axes
from liger_dev.compiler.picks import index_checks
from liger_dev.compiler.schedule import Accumulator
from liger_dev.compiler.schedule import Launch
from liger_dev.compiler.schedule import Store
from liger_dev.compiler.schedule import host_operands
from liger_dev.compiler.schedule import kept_place
from liger_dev.compiler.schedule import saved_places
from liger_dev.compiler.schedule import specs_of
from liger_dev.compiler.schedule import total_place
from liger_dev.compiler.shapes import Shapes
from liger_dev.compiler.slices import output_slices
from liger_dev.literals import literal


def forward_lines(host: Host, results: Sequence[str]) -> list[str]:
    """The body of `NAME_forward(tensors, scalars)`: returns `results`, outputs and then what backward saves beside them;
    they are None where this host saves nothing of that name."""
    graph = host.graph
    required = [i for i in graph.inputs if not i.optional]
    shapes = Shapes(graph, {i.name: i.dims for i in required})
    full = required[0]
    lines = [*_checks(host), *divisibility_checks(graph), *limit_checks(graph), *least_checks(graph)]
    known: dict[Value, str] = {}
    before = graph.walk(host.plan.fused.totals) if host.plan.fused else []
    lines += [*rank_checks(graph, host.reference), *index_checks(graph, shapes, before, known)]
    lines += [_contiguous(item) for item in graph.inputs]
    if host.plan.fused:
        lines += _totals_before(host, shapes, known)
    host_values = _host_values(host, shapes, known)
    layout: Layout | None = None
    filled: set[str] = set()
    missing: set[str] = set()
    for launch in host.forward:
        spec = launch.single or launch.looped[0]
        lines += host_values.assign(v for v in spec.loads if v in host.plan.host)
        if spec.layout != layout:
            layout = spec.layout
            lines = _with_sizes(lines, sizes(shapes, layout), first=not filled)
        stores = {store.place.name: store for store in reversed(spec.stores)}
        for name in dict.fromkeys([*host.texts[spec.name].pointers, *stores, *host.absent(launch)]):
            if name in stores and name not in filled:
                filled.add(name)
                fresh = f"{name} = {_empty_forward(host, stores[name], spec.layout, shapes, full.name)}"
                lines.append(conditional(fresh, stores[name].guard))
            elif name in host.absent(launch) and name not in filled | missing:
                missing.add(name)
                lines.append(f"{name} = None")
        lines += launch_lines(host, launch, f"{full.name}.device", "forward", shapes)
        layout = _layout_after(launch)
    given = {*host.saved, *(output.name for output in graph.outputs), *filled, *missing}
    lines += [f"{name} = None" for name in results if name not in given]
    lines += _rounded(host, host_values.assign(host_values.wanted))
    lines.append(f"return {', '.join(results)}")
    return [*_static(host), *lines]


def _totals_before(host: Host, shapes: Shapes, known: dict[Value, str]) -> list[str]:
    """The totals that a kernel needs, from the tensors themselves; `known` collects their names."""
    assert host.plan.fused is not None
    wanted = {total: kept_place(host.graph, total, host.plan).name for total in host.plan.fused.totals}
    values = HostValues(host.graph, shapes, frozenset(host.graph.walk(wanted)), {}, wanted, dict(known))
    known |= wanted
    return values.assign(wanted)


def _static(host: Host) -> list[str]:
    """Refusals of strings, flags and integers other than the ones that the kernels were compiled for."""
    graph = host.graph
    values = graph.walk([*(o.value for o in graph.outputs), *graph.gradients.values()])
    used = {value.attr("name") for value in values if value.op == "param"} | {*graph.sizes.values()}
    chosen = [
        (s.name, s.choices or (s.default,))
        for s in host.reference.scalars
        if s.choices or s.name not in used and s.type != "float"
    ]
    return [f'check_least("{name}", {name}, 0)' for name in graph.at_least_zero] + [
        f'check_static("{name}", {name}, {", ".join(map(literal, values))})'
        for name, values in chosen
        if {True, False} != {*values}
    ]


def _with_sizes(lines: list[str], head: list[str], first: bool) -> list[str]:
    """The statements so far with those that set a launch's sizes: in front of all others if they are a check too."""
    return [*head, *lines] if first and head and "row_shape" in head[0] else [*lines, *head]


def _checks(host: Host) -> list[str]:
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
        if not own:
            lines.append(f'check_shape("{item.name}", {item.name}, {expected})')
        if not item.optional:
            known = Shapes(graph, {**known.tensors, item.name: item.dims})
    return lines


def _contiguous(item: Input) -> str:
    name = item.name
    return f"{name} = {name}.contiguous()" + (f" if {name} is not None else None" if item.optional else "")


def _empty_forward(host: Host, store: Store, layout: Layout, shapes: Shapes, full: str) -> str:
    outputs = {output.name: output for output in host.graph.outputs}
    place = store.place
    if place.name not in outputs:
        if store.guard:
            return f"torch.empty_like({place.name.removeprefix('d')})"
        if place.exact:
            return _empty_rows(store, layout, shapes, full)
        like = store.value.attr("like") if store.value.op == "round" else ()  # exact, unless the reference rounds it
        return _empty(shapes, place.dims, promoted(host, like), full)
    output = outputs[place.name]
    if output.value.dtype == "bool":
        return _empty(shapes, place.dims, "torch.bool", full)
    if output.value.dtype == "int":
        return _empty(shapes, place.dims, f"torch.{output.whole}", full)
    return _empty(shapes, place.dims, promoted(host, output.dtype_of), full)


def _empty_rows(store: Store, layout: Layout, shapes: Shapes, full: str) -> str:
    """Memory for what one launch stores for another."""
    axes = store.place.axes
    size = "n_rows" if axes and axes == layout.rows else shapes.product(axes)
    dtype = {"int": "torch.int64", "bool": "torch.bool"}.get(store.value.dtype, "torch.float32")
    return f"torch.empty({size}, dtype={dtype}, device={full}.device)"


def _empty(shapes: Shapes, dims: Dims, dtype: str, full: str) -> str:
    same = [name for name, other in shapes.tensors.items() if other == dims]
    alike = next((name for name in same if dtype == f"{name}.dtype"), same[0] if same else "")
    if alike and dtype == f"{alike}.dtype":
        return f"torch.empty_like({alike})"
    if alike:
        return f"torch.empty_like({alike}, dtype={dtype})"
    return f"torch.empty({shapes.shape(dims)}, dtype={dtype}, device={full}.device)"


def _host_values(host: Host, shapes: Shapes, known: dict[Value, str]) -> HostValues:
    """What the wrapper of forward computes itself: sums over rows, and the outputs made of them; `known` are those that
    it has already."""
    graph, plan = host.graph, host.plan
    wanted = {output.value: output.name for output in graph.outputs if output.value in plan.host}
    loaded = [v for launch in host.forward for spec in specs_of(launch) for v in spec.loads if v in plan.host]
    for value in (*loaded, *(v for v in plan.saved if v in plan.host)):
        wanted.setdefault(value, total_place(graph, value).name)
    rows: dict[Value, str] = {}
    stored = {v: o.name for o in graph.outputs for _, v in output_slices(o)}
    for operand in host_operands(graph, plan):
        rows[operand] = stored.get(operand) or kept_place(graph, operand, plan).name
    return HostValues(graph, shapes, plan.host, rows, wanted, bound=dict(known))


def _rounded(host: Host, lines: list[str]) -> list[str]:
    """The statements of the wrapper's own outputs, rounded as the reference rounds them."""
    for output in host.graph.outputs:
        if output.value in host.plan.host and output.dtype_of:
            dtype = promoted(host, output.dtype_of)
            index = next(i for i, line in enumerate(lines) if line.startswith(f"{output.name} = "))
            text = lines[index].split(" = ", 1)[1]
            lines[index] = f"{output.name} = ({text}).to({dtype})"
    return lines


def _backward_totals(host: Host, shapes: Shapes) -> HostValues:
    """The sums over rows that the wrapper of backward takes between launches."""
    specs = [spec for launch in host.backward for spec in specs_of(launch)]
    rows = {store.value: store.place.name for spec in specs for store in spec.stores}
    loaded = [v for spec in specs for v in spec.loads if v.args and v not in host.plan.saved]
    wanted = {
        v: total_place(host.graph, v).name for v in loaded if v.op == "sum" and v.args[0] in rows and v not in rows
    }
    return HostValues(host.graph, shapes, frozenset(wanted), rows, wanted)


def backward_lines(host: Host, gradients: Sequence[str], given: dict[str, str] | None = None) -> list[str]:
    """The body of `NAME_backward(upstream, saved, scalars, sizes, needs)`: returns `gradients`, in the order of inputs.

    `given` collects what it takes as arguments beside tensors: names of sizes by axis, of dtypes by their text.
    """
    graph = host.graph
    if not gradients:
        return []
    if host.plan.fused:
        return _fused_backward_lines(host)
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
    totals = _backward_totals(host, shapes)
    layout: Layout | None = None
    filled: set[str] = set()
    for launch in host.backward:
        spec = launch.single or launch.looped[0]
        lines += totals.assign(v for v in spec.loads if v in totals.wanted)
        if spec.layout != layout:
            layout = spec.layout
            lines = _with_sizes(lines, sizes(shapes, layout), first=not filled)
        for store in spec.stores if not spec.totals else ():
            name = store.place.name
            if name not in filled:
                filled.add(name)
                if store.place.exact:
                    memory = _empty_rows(store, spec.layout, shapes, lead)
                else:
                    memory = _empty_gradient(host, name, shapes, lead)
                lines.append(conditional(f"{name} = {memory}", store.guard or spec.when))
        for acc in _sliced(launch):
            if acc.place.name not in filled:
                filled.add(acc.place.name)
                fresh = f"{acc.place.name} = {_empty_gradient(host, acc.place.name, shapes, lead)}"
                lines.append(conditional(fresh, acc.guard))
        lines += [f"{name} = None" for name in host.absent(launch) if name not in host.backward_names]
        lines += launch_lines(host, launch, f"{lead}.device", "backward", shapes)
        layout = _layout_after(launch)
    for name in graph.zero_gradients:
        zeros = _empty_gradient(host, f"d{name}", shapes, lead)
        lines.append(conditional(f"d{name} = {zeros}", f"NEEDS_D{name.upper()}"))
    own = {f"d{name}": f"d{owner}" for name, owner in host.owner.items()}
    lines.append(f"return {', '.join(own.get(name, 'None') for name in gradients)}")
    return lines


def _fused_backward_lines(host: Host) -> list[str]:
    """Scales what forward has made; else makes it now, to the bit the same where it can be scaled."""
    gradients = [f"d{name}" for name in host.owner]
    (upstream,) = host.upstream
    flags = [f"{guard.lower()}={guard.lower()}" for guard in host.guards]
    arguments = ", ".join([*host.input_names, *host.scalars, f"{upstream} if inside else None", *flags])
    return [
        f"fresh = {' and '.join(f'{name} is None' for name in gradients)}",
        f"inside = fresh and not scalable({', '.join(host.input_names)})",
        "if fresh:",
        f"    {', '.join(['_', *gradients])} = {host.reference.name}_forward({arguments})",
        "if not inside:",
        *(f"    scale_in_place({name}, {upstream})" for name in gradients),
        f"return {', '.join(gradients)}",
    ]


def _layout_after(launch: Launch) -> Layout | None:
    """The layout whose sizes are set once a launch is over; None if it depends on the kernel that ran."""
    last = {*([launch.single.layout] if launch.single else []), *(spec.layout for spec in launch.looped[-1:])}
    return last.pop() if len(last) == 1 else None


def _sliced(launch: Launch) -> list[Accumulator]:
    """The sums that fill a slice of a gradient only."""
    return [acc for spec in specs_of(launch) for acc in (*spec.accumulators, *spec.totals) if acc.place.slices]


def _empty_gradient(host: Host, name: str, shapes: Shapes, lead: str) -> str:
    """A gradient's memory: like its input where that is saved, of the promoted dtype if several inputs have that gradient;
    zeros where slices leave elements untouched."""
    own = name.removeprefix("d")
    sharing = tuple(other for other, owner in host.owner.items() if owner == own) or (own,)
    make = "empty" if _covered(host, own) else "zeros"
    if _adds(host, name):  # several kernels add to it
        return f"torch.{make}({shapes.shape(host.graph.dims_of(own))}, dtype=torch.float32, device={lead}.device)"
    if sharing == (own,) and (own in shapes.tensors or own in host.saved):
        return f"torch.{make}_like({own})"
    dims = host.graph.dims_of(own)
    floats = {n: other for n, other in shapes.tensors.items() if _is_float(host, n)}
    alike = next((n for n, other in floats.items() if other == dims and n != lead), "")
    alike = alike or next((n for n, other in floats.items() if other == dims), "")
    if alike and _has_dtype_of(host, alike, sharing):
        return f"torch.{make}_like({alike})"
    dtype = shapes.argument(f"{name if len(sharing) > 1 else own}_dtype", dtype_text(host, sharing))
    if alike:
        return f"torch.{make}_like({alike}, dtype={dtype})"
    return f"torch.{make}({shapes.shape(dims)}, dtype={dtype}, device={lead}.device)"


def _has_dtype_of(host: Host, name: str, inputs: tuple[str, ...]) -> bool:
    """Whether a tensor, or the output that it is the gradient of, always has the dtype that inputs promote to."""
    found = next((o.dtype_of for o in host.graph.outputs if name in (o.name, f"d{o.name}")), ())
    return {*found} == {*inputs}


def _adds(host: Host, name: str) -> bool:
    specs = [spec for launch in host.backward for spec in launch.looped]
    return any(store.add and store.place.name == name for spec in specs for store in spec.stores)


def _is_float(host: Host, name: str) -> bool:
    kinds = {tensor.name: tensor.dtype for tensor in host.reference.tensors}
    return kinds.get(name, "float") == "float"


def _covered(host: Host, name: str) -> bool:
    """Whether the stored slices of a gradient fill it."""
    extents, dims = host.graph.extents, host.graph.dims_of(name)
    if any(piece.at for owner, cut in host.graph.gradients if owner == name for _, piece in cut):
        return False
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
