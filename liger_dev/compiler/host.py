"""KernelTexts in, the Python around them out: wrappers that allocate and launch, and the autograd Function."""

from dataclasses import dataclass

from liger_dev.compiler.emit import KernelText
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.options import Options
from liger_dev.compiler.partition import Layout
from liger_dev.compiler.partition import Plan
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.records import Reference
from liger_dev.records import Tensor


@dataclass(frozen=True)
class Host:
    """Everything that the wrappers need to know; `saved` are the names of what backward loads, in order."""

    reference: Reference
    graph: Graph
    plan: Plan
    options: Options
    forward: tuple[KernelSpec, KernelText]
    backward: tuple[KernelSpec, KernelText]

    @property
    def layout(self) -> Layout:
        return self.plan.layout

    @property
    def saved(self) -> list[str]:
        names = {output.value: output.name for output in self.graph.outputs}
        return [names.get(v, self.graph.names[v]) for v in self.plan.saved]

    @property
    def full(self) -> Tensor:
        """The first input that has all axes: shapes are read off it."""
        axes = {*self.layout.rows, *self.layout.cols}
        for tensor, item in zip(self.reference.tensors, self.graph.inputs):
            if self.layout.flat and item.value.axes or axes == item.value.axes:
                return tensor
        raise AssertionError("no input has all axes")

    @property
    def scalars(self) -> list[str]:
        return [scalar.name for scalar in self.reference.scalars]

    @property
    def backward_scalars(self) -> list[str]:
        return [name for name in self.scalars if name in self.backward[1].scalars]

    @property
    def needs(self) -> list[str]:
        """`needs_dx`, in the order of the kernel's flags; none when there is one gradient."""
        return [flag.lower() for flag in self.backward[1].flags if flag.startswith("NEEDS_")]


def forward_lines(host: Host) -> list[str]:
    """The body of `NAME_forward(tensors, scalars)`: returns outputs, then what backward saves beside them."""
    full, layout = host.full.name, host.layout
    lines = [] if layout.flat else [f"n_rows, n_cols = row_shape({full})"]
    lines += [f"check_floating({', '.join(f'{t.name}={t.name}' for t in host.reference.tensors)})"]
    lines += [line for tensor in host.reference.tensors if (line := _shape_check(host, tensor))]
    lines += [_contiguous(tensor) for tensor in host.reference.tensors]
    if layout.flat:
        lines.append(f"n_elements = {full}.numel()")
    outputs = {output.name: output for output in host.graph.outputs}
    for store in host.forward[0].stores:
        dtype_of = outputs[store.name].dtype_of if store.name in outputs else None
        lines.append(f"{store.name} = {_empty_forward(host, store.value, store.name, dtype_of)}")
    lines += _launch(host, host.forward[1], f"{full}.device", "forward")
    kept = [name for name in host.saved if name not in outputs]
    lines.append(f"return {', '.join([*outputs, *kept])}")
    return lines


def backward_lines(host: Host) -> list[str]:
    """The body of `NAME_backward(upstream, saved, scalars, needs)`: returns the gradients in the order of inputs."""
    spec, kernel = host.backward
    upstream = [name for name in spec.loads.values() if name not in host.saved]
    lead = upstream[0]
    lines = [] if host.layout.flat else [f"n_rows, n_cols = row_shape({_full_backward(host)})"]
    lines += [f"{name} = {name}.contiguous()" for name in upstream]
    if host.layout.flat:
        lines.append(f"n_elements = {_full_backward(host)}.numel()")
    for store in spec.stores:
        fresh = f"torch.empty_like({_like_gradient(host, store.name)})"
        lines.append(f"{store.name} = {fresh}" + (f" if {store.guard.lower()} else None" if store.guard else ""))
    launch = _launch(host, kernel, f"{lead}.device", "backward")
    if spec.persistent:
        settings, launch = launch[0], launch[1:]
        partials = []
        for acc in spec.accumulators:
            shape = "(n_programs, n_cols)" if acc.value.axes else "n_programs"
            fresh = f"torch.empty({shape}, dtype=torch.float32, device={lead}.device)"
            partials.append(
                f"{acc.name}_partial = {fresh}" + (f" if {acc.guard.lower()} else None" if acc.guard else "")
            )
        programs = f"n_programs = min(triton.cdiv(n_rows, BLOCK_ROWS), {_times_sms(host, lead)})"
        lines += [settings, programs, *partials]
    lines += launch
    lines += [_final_sum(host, acc.name, acc.value, acc.guard) for acc in spec.accumulators]
    lines.append(f"return {', '.join(dict.fromkeys(_returned(host)))}")
    return lines


def _times_sms(host: Host, lead: str) -> str:
    factor = host.options.programs_per_sm
    return f"{factor} * sm_count({lead}.device)" if factor != 1 else f"sm_count({lead}.device)"


def _shape_check(host: Host, tensor: Tensor) -> str:
    """A check that a tensor has the shape that the first full input implies; nothing is broadcast."""
    full = host.full
    item = next(i for i in host.graph.inputs if i.name == tensor.name)
    if tensor is full:
        return ""
    rows, cols = host.layout.rows, host.layout.cols
    axes = tuple(d for d in item.dims if d)
    if host.layout.flat and axes or axes == (*rows, *cols):
        shape = f"{full.name}.shape"
    elif axes == cols and cols:
        shape = f"({', '.join('1' if d is None else 'n_cols' for d in item.dims)},)"
    elif axes == rows and rows:
        ones = len(item.dims) - len(rows)
        shape = f"(*{full.name}.shape[:-1],{' 1,' * ones})" if ones else f"{full.name}.shape[:-1]"
    else:
        shape = f"({'1,' * len(item.dims)})"
    check = f'check_shape("{tensor.name}", {tensor.name}, {shape})'
    return check


def _contiguous(tensor: Tensor) -> str:
    name = tensor.name
    return (
        f"{name} = {name}.contiguous() if {name} is not None else None"
        if tensor.optional
        else f"{name} = {name}.contiguous()"
    )


def _empty_forward(host: Host, value: Value, name: str, dtype_of: tuple[str, ...] | None) -> str:
    full = host.full.name
    kind = host.layout.kind(value)
    if dtype_of is None:  # saved for backward exactly, as float32 unless the reference rounds it
        if kind == "row":
            return f"torch.empty(n_rows, dtype=torch.float32, device={full}.device)"
        dtype_of = value.attr("like") if value.op == "round" else ()
    dtype = _promoted(host, dtype_of)
    if kind == "row":
        dims = next(o.dims for o in host.graph.outputs if o.name == name)
        shape = f"(*{full}.shape[:-1], 1)" if dims and dims[-1] is None else f"{full}.shape[:-1]"
        return f"torch.empty({shape}, dtype={dtype}, device={full}.device)"
    return f"torch.empty_like({full})" if dtype == f"{full}.dtype" else f"torch.empty_like({full}, dtype={dtype})"


def _promoted(host: Host, dtype_of: tuple[str, ...]) -> str:
    """The dtype that the reference's own promotion gives."""
    given = [name for name in dtype_of if not _is_optional(host, name)]
    if not dtype_of:
        return "torch.float32"
    if len(given) == 1:
        return f"{given[0]}.dtype"
    text = f"{given[0]}.dtype"
    for name in given[1:]:
        text = f"torch.promote_types({text}, {name}.dtype)"
    return text


def _is_optional(host: Host, name: str) -> bool:
    return any(t.name == name and t.optional for t in host.reference.tensors)


def _launch(host: Host, kernel: KernelText, device: str, stage: str) -> list[str]:
    scalars = [f"{name}={name}" for name in host.scalars if name in kernel.scalars]
    flags = [f"{flag}={_flag_value(flag)}" for flag in kernel.flags]
    if host.layout.flat:
        warps = f"num_warps={host.options.num_warps}"
        args = [*kernel.pointers, "n_elements", *scalars, *flags, "BLOCK_SIZE=BLOCK_SIZE", warps]
        grid = "triton.cdiv(n_elements, BLOCK_SIZE)"
        return [f"with device_guard({device}):", f"    {kernel.name}[({grid},)]({', '.join(args)})"]
    persistent = stage == "backward" and host.backward[0].persistent
    stages = ["NUM_STAGES=loop_stages(n_cols)"] if persistent else []
    blocks = ["BLOCK_ROWS=BLOCK_ROWS", "BLOCK_COLS=BLOCK_COLS", *stages, "num_warps=num_warps"]
    args = [*kernel.pointers, "n_rows", "n_cols", *scalars, *flags, *blocks]
    grid = "n_programs" if persistent else "triton.cdiv(n_rows, BLOCK_ROWS)"
    extra = host.options.settings(stage)
    return [
        f"BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols{extra})",
        f"with device_guard({device}):",
        f"    {kernel.name}[({grid},)]({', '.join(args)})",
    ]


def _flag_value(flag: str) -> str:
    return f"{flag[4:].lower()} is not None" if flag.startswith("HAS_") else flag.lower()


def _full_backward(host: Host) -> str:
    """A tensor with all axes among backward's arguments."""
    spec = host.backward[0]
    outputs = {f"d{o.name}": o for o in host.graph.outputs}
    for value, name in spec.loads.items():
        dims = outputs[name].dims if name in outputs else None
        if dims is not None and len([d for d in dims if d]) == len(host.full.shape):
            return name
        if dims is None and host.layout.kind(value) == "tile":
            return name
    raise AssertionError("backward has no tensor with all axes")


def _like_gradient(host: Host, name: str) -> str:
    """The tensor that a gradient is allocated like: its input where that is saved, else the first saved tile."""
    own = name.removeprefix("d")
    if own in host.saved:
        return own
    tiles = [graph_name for v, graph_name in zip(host.plan.saved, host.saved) if host.layout.kind(v) == "tile"]
    return tiles[0] if tiles else _full_backward(host)


def _final_sum(host: Host, name: str, value: Value, guard: str) -> str:
    own = name.removeprefix("d")
    dims = next(i.dims for i in host.graph.inputs if i.name == own)
    total = f"{name}_partial.sum(0)"
    if len(dims) != len(value.axes):
        total += f".view({', '.join('-1' if d else '1' for d in dims)})"
    if own in host.saved:
        total += f".to({own}.dtype)"
    return f"{name} = {total}" + (f" if {guard.lower()} else None" if guard else "")


def _returned(host: Host) -> list[str]:
    owner: dict[Value, str] = {}
    for name, gradient in host.graph.gradients.items():
        owner.setdefault(gradient, f"d{name}")
    return [owner[gradient] for gradient in host.graph.gradients.values()]


def function_values(host: Host) -> dict[str, object]:
    """What the autograd Function's template needs: names in order, for each place where they stand."""
    outputs = [output.name for output in host.graph.outputs]
    results = [*outputs, *(name for name in host.saved if name not in outputs)]
    flags = {flag.removeprefix("needs_d"): flag for flag in host.needs}
    gradients = list(host.graph.gradients)
    owners = dict(zip(gradients, (name.removeprefix("d") for name in _returned(host))))
    needs = []
    for flag, text in flags.items():
        indices = [i for i, t in enumerate(host.reference.tensors) if owners.get(t.name) == flag]
        needs.append((text, " or ".join(f"ctx.needs_input_grad[{i}]" for i in indices)))
    upstream = [name for name in host.backward[0].loads.values() if name not in host.saved]
    d_outputs = [f"d{name}" for name in outputs]
    by_input = {name: f"d{owners[name]}" for name in gradients}
    returned = [by_input.get(t.name, "None") for t in host.reference.tensors] + ["None"] * len(host.scalars)
    return {
        "outputs": outputs,
        "results": results,
        "saved": host.saved,
        "scalars": host.scalars,
        "tensors": [t.name for t in host.reference.tensors],
        "backward_scalars": host.backward_scalars,
        "upstream": upstream,
        "d_outputs": d_outputs,
        "needs": needs,
        "gradients": list(dict.fromkeys(_returned(host))),
        "returned": returned,
    }
