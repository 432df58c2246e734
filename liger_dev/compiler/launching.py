"""One Launch in, the lines of a wrapper that start it out: settings, partial sums, the call, the final sums."""

from liger_dev.compiler.host import Host
from liger_dev.compiler.host import dtype_text
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.layout import Layout
from liger_dev.compiler.naming import unique
from liger_dev.compiler.schedule import Accumulator
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Launch
from liger_dev.compiler.schedule import factored
from liger_dev.compiler.schedule import strided
from liger_dev.compiler.shapes import Shapes
from liger_dev.compiler.tuned import is_looked_up
from liger_dev.compiler.tuned import knobs
from liger_dev.compiler.tuned import lookup

_UNFUSED = "# No fused multiply-add: products are rounded as their row's maximum is, which is subtracted from them."


def launch_lines(host: Host, launch: Launch, device: str, stage: str, shapes: Shapes) -> list[str]:
    """The launch of whichever kernel suits the length of a row."""
    if launch.single is None:
        lines: list[str] = []
        layout = None
        for i, spec in enumerate(launch.looped):
            head = sizes(shapes, spec.layout) if i and spec.layout != layout else []
            layout = spec.layout
            lines += [*head, *_guarded_kernel(host, spec, device, stage, shapes)]
        return lines
    single = _kernel(host, launch.single, device, stage, shapes)
    if not launch.looped:
        return single
    looped = launch_lines(host, Launch(None, launch.looped), device, stage, shapes)
    own = [acc for acc in launch.single.accumulators if acc.value.axes and not acc.place.slices and not acc.add]
    made = [conditional(f"{acc.name} = {_sum_memory(host, acc, shapes, device)}", acc.guard) for acc in own]
    two = host.texts[launch.single.name].holds == 2
    limit = host.options.block_cols or ("LONG_HELD_ROW" if two else "LONG_ROW")
    limit = "WIDE_ROW" if launch.single.narrow else limit
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
    whole = [total.name for total in spec.totals if not total.place.slices and not total.add]
    return [*(f"{name} = None" for name in whole), f"if {spec.when.lower()}:", *(f"    {line}" for line in lines)]


def _kernel(host: Host, spec: KernelSpec, device: str, stage: str, shapes: Shapes) -> list[str]:
    """Settings, partial sums, the launch, and the final sums of one kernel."""
    text = host.texts[spec.name]
    scalars = [f"{name}={name}" for name in host.scalars if name in (*text.scalars, *text.statics)]
    flags = [f"{flag}={_flag_value(flag)}" for flag in text.flags]
    sizes = [shapes.axis(axis) for axis in text.sizes]
    names = knobs(host.options, spec, stage)
    measured, lead = is_looked_up(host.options, text, names), device.removesuffix(".device")
    if not spec.layout.rows + spec.layout.cols:
        args = [*text.pointers, *sizes, *scalars, *flags, "num_warps=1"]
        return [f"with device_guard({device}):", f"    {spec.name}[(1,)]({', '.join(args)})"]
    if spec.layout.flat:
        usual = ("BLOCK_SIZE", str(host.options.num_warps))
        block, warps = names if measured else usual
        settings = [f"BLOCK_SIZE={block}", f"num_warps={warps}"]
        args = [*text.pointers, "n_elements", *sizes, *scalars, *flags, *settings]
        return [
            *([lookup(text, names, lead, usual)] if measured else []),
            f"with device_guard({device}):",
            f"    {text.name}[(cdiv(n_elements, {block}),)]({', '.join(args)})",
        ]
    asked = [lookup(text, names, lead)] if measured else []
    if spec.scatter is not None:
        columns = "cdiv(n_cols, BLOCK_COLS)"
        blocks = ["BLOCK_ROWS=BLOCK_ROWS", "BLOCK_COLS=BLOCK_COLS", "num_warps=num_warps"]
        args = [*text.pointers, "n_rows", "n_cols", *sizes, *scalars, *flags, *blocks]
        return [
            "BLOCK_ROWS, BLOCK_COLS, num_warps = scatter_settings(n_cols)",
            *asked,
            f"with device_guard({device}):",
            f"    {text.name}[(n_rows, {columns})]({', '.join(args)})",
        ]
    stages = ["NUM_STAGES=NUM_STAGES"] if spec.persistent else []
    stages += ["RELOAD=n_cols > WIDE_ROW"] if text.reloads else []
    stages += ["LATE=n_cols > WIDE_ROW"] if text.late else []
    blocks = ["BLOCK_ROWS=BLOCK_ROWS", "BLOCK_COLS=BLOCK_COLS", *stages, "num_warps=num_warps"]
    blocks += ["enable_fp_fusion=False"] if text.unfused else []
    args = [*text.pointers, "n_rows", "n_cols", *sizes, *scalars, *flags, *blocks]
    programs = "n_programs" if spec.persistent else "cdiv(n_rows, BLOCK_ROWS)"
    grid = [
        programs,
        *([_local(host, "n_splits")] if spec.layout.groups else []),
        *(["n_pieces"] if spec.pieces else []),
    ]
    pieces = ["n_pieces = cdiv(n_cols, BLOCK_COLS)"] if spec.pieces else []
    together = _together(host, spec, shapes)
    lines = [f"{t.name}_partial = torch.empty(n_rows, dtype=torch.float32, device={device})" for t in spec.totals]
    if not spec.persistent:
        lines += [f"BLOCK_ROWS, BLOCK_COLS, num_warps = {_settings(host, spec, stage)}", *asked, *pieces]
    else:
        lines += [*_persistent_settings(host, spec, stage, shapes), *asked, *pieces]
        lines += _programs(host, spec, device, shapes)
        for acc in [acc for acc in spec.accumulators if acc not in together]:
            fresh = f"{acc.name}_partial = torch.empty({_partial_shape(host, spec, acc)}, dtype=torch.float32, device={device})"
            lines.append(conditional(fresh, acc.guard))
        if together:
            shape = _partial_shape(host, spec, together[0]).strip("()")
            lines += [
                f"{_local(host, 'partials')} = torch.empty(({len(together)}, {shape}), dtype=torch.float32, device={device})",
                f"{', '.join(f'{acc.name}_partial' for acc in together)} = {_local(host, 'partials')}",
            ]
    lines += [
        *([_UNFUSED] if text.unfused else []),
        f"with device_guard({device}):",
        f"    {text.name}[({', '.join(grid)}{',' if len(grid) == 1 else ''})]({', '.join(args)})",
    ]
    lines += [line for total in spec.totals for line in _final(host, total, "", shapes, False)]
    last_if = ""
    if together:
        dtypes = [conditional(_dtype(host, acc, shapes), acc.guard) for acc in together]
        sums = ", ".join(acc.place.name for acc in together)
        lines.append(f"{sums} = sum_each({_local(host, 'partials')}, {', '.join(dtypes)})")
    alone = [acc for acc in spec.accumulators if acc not in together]
    for line in (line for acc in alone for line in _final_of(host, spec, acc, shapes)):
        if not (line.startswith("if ") and line == last_if):
            lines.append(line)
        last_if = line if line.startswith("if ") else last_if if line.startswith("    ") else ""
    return lines


def _together(host: Host, spec: KernelSpec, shapes: Shapes) -> list[Accumulator]:
    """The sums whose partial sums are one tensor, added up by one launch: whole gradients, a number for each column."""
    shape = "(n_programs, n_cols)"
    alike = [
        acc
        for acc in spec.accumulators
        if not acc.place.slices and not acc.add and _partial_shape(host, spec, acc) == shape
    ]
    alike = [acc for acc in alike if _view(host, acc, shapes, False) == ""]
    return alike if len(alike) > 1 else []


def _final_of(host: Host, spec: KernelSpec, acc: Accumulator, shapes: Shapes) -> list[str]:
    return _final(host, acc, acc.guard, shapes, True, not acc.value.axes.isdisjoint(spec.layout.groups))


def _persistent_settings(host: Host, spec: KernelSpec, stage: str, shapes: Shapes) -> list[str]:
    """The settings of a kernel that strides over rows; no more of these at once than one group has."""
    chosen, kind = host.options.settings(stage), "piece" if spec.pieces else "persistent"
    members = shapes.count(spec.layout.members)
    most = f", max_rows=next_power_of_2({members})" if spec.layout.groups and "max_rows" not in chosen else ""
    sums = "" if spec.pieces else f", sums={_columns_of_sums(spec)}"
    shared = sum(1 for value in spec.loads if spec.layout.kind(value) == "col") + bool(spec.layout.groups)
    sums += f", shared={shared}" if sums and shared > 1 else ""
    sums += ", strided=True" if sums and strided(spec) else ""
    return [
        f"BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, {'_' if host.options.programs_per_sm else 'per_sm'} = {kind}_settings(",
        f"    n_cols, {_loaded(spec)}{sums}{most}{chosen}",
        ")",
    ]


def _programs(host: Host, spec: KernelSpec, device: str, shapes: Shapes) -> list[str]:
    """How many programs stride over rows, and how many share each group of rows."""
    share = f"{host.options.programs_per_sm or 'per_sm'} * sm_count({device})"
    share = f"cdiv({share}, max(1, n_pieces))" if spec.pieces else share
    if not spec.layout.groups:
        return [f"n_programs = min(cdiv(n_rows, BLOCK_ROWS), {share})"]
    groups, splits = _local(host, "n_groups"), _local(host, "n_splits")
    blocks = f"cdiv({shapes.count(spec.layout.members)}, BLOCK_ROWS)"
    return [
        f"{groups} = {shapes.product(spec.layout.groups)}",
        f"n_programs = {share}",
        f"{splits} = min({blocks}, max(1, n_programs // max(1, {groups})))",
        f"n_programs = min({groups}, n_programs)",
    ]


def _local(host: Host, name: str) -> str:
    """A name of the wrapper's own, beside the reference's arguments."""
    return unique(name, {*host.input_names, *host.scalars})


def _partial_shape(host: Host, spec: KernelSpec, acc: Accumulator) -> str:
    """The shape of the partial sums: a row for each program, or for each that shares a group of rows."""
    by_column = not acc.value.axes.isdisjoint(spec.layout.cols)
    groups, splits = _local(host, "n_groups"), _local(host, "n_splits")
    programs = f"n_programs * {splits}" if spec.layout.groups else "n_programs"
    split = not acc.value.axes.isdisjoint(spec.layout.groups)
    programs = splits if split else f"{groups} * {splits}" if acc in factored(spec) else programs
    programs += " * n_pieces" if spec.pieces and not by_column else ""
    if acc.place.slices and not acc.value.axes:
        return programs
    return f"({f'{groups}, ' if split else ''}{programs}, {'n_cols' if by_column else 1})"


def _final(host: Host, acc: Accumulator, guard: str, shapes: Shapes, programs: bool, split: bool = False) -> list[str]:
    """The gradient, or the slice of it, from its partial sums: `programs` left a row each, `split` by groups of rows, or
    one number a row."""
    name, cut = acc.place.name, dict(acc.place.slices)
    total = _final_sum(host, acc, shapes, programs, split)
    if not cut and not acc.add:
        return [conditional(f"{name} = {total}", guard)]
    if not cut:
        line = f"{name} = {name} + {total}"
        return [f"if {guard.lower()}:", f"    {line}"] if guard else [line]
    index = ", ".join(_index(cut[i], shapes) if i in cut else ":" for i in range(len(acc.place.dims)))
    turned = ".flip(0)" if any(piece.reversed for piece in cut.values()) else ""
    line = f"{name}[{index}] {'+=' if acc.add else '='} {acc.name}_partial.sum(0){turned}"
    return [f"if {guard.lower()}:", f"    {line}"] if guard else [line]


def _index(piece: Slice, shapes: Shapes) -> str:
    """A slice as Python's subscript."""
    if piece.reversed:
        return ":"
    start = " + ".join([*([str(piece.first)] if piece.first else []), *(shapes.axis(a) for a in piece.after)]) or "0"
    if not piece.axes:
        return start
    return f"{start} : {start} + {piece.step} * {shapes.dim(piece.axes)} : {piece.step}"


def _settings(host: Host, spec: KernelSpec, stage: str) -> str:
    chosen = host.options.settings(stage)
    one_row = ", max_rows=1" if not spec.layout.rows and "max_rows" not in chosen else ""
    text = host.texts[spec.name]
    if spec.wide:
        return "wide_settings(n_cols)"
    if spec.looped:
        return "column_settings(n_rows, n_cols)" if strided(spec) else f"loop_settings(n_cols{one_row}{_several(text)})"
    if strided(spec) and not spec.pieces:
        return f"strided_settings(n_cols{one_row}{chosen})"
    kept = ", late=True" if text.lean else ", again=True" if text.again else ""
    kept += f", shared={text.lean}" if text.lean > 1 else ""
    tiles = sum(1 for value in spec.loads if spec.layout.kind(value) == "tile")
    kept += f", tiles={tiles}" if tiles > 5 else ""
    return f"row_settings({'min(n_cols, PIECE_COLS)' if spec.pieces else 'n_cols'}{one_row}{chosen}{kept})"


def _several(text: KernelText) -> str:
    """What `loop_settings` is told of a kernel that goes over several tensors at once."""
    if text.at_once < 2:
        return "" if text.unfused or not text.again else ", light=True" if text.light else ", again=True"
    if text.online:
        return ", tensors=2" + (", num_warps=16" if text.holds > 1 else "")
    return ", tensors=2" + (", num_warps=32" if text.holds else "")


def _loaded(spec: KernelSpec) -> str:
    """The bytes that a persistent kernel loads for each element of its tile."""
    tiles = [place for value, place in spec.loads.items() if spec.layout.kind(value) == "tile"]
    parts = ["4" if place.exact else f"{place.name}.element_size()" for place in tiles]
    return " + ".join(parts) or "0"


def _columns_of_sums(spec: KernelSpec) -> int:
    """The sums over rows that a program keeps for each column."""
    shared = factored(spec)
    own = [acc for acc in spec.accumulators if not acc.value.axes.isdisjoint(spec.layout.cols) and acc not in shared]
    return len(own) + len({one.kept for one in shared.values()})


def _flag_value(flag: str) -> str:
    return f"{flag[4:].lower()} is not None" if flag.startswith("HAS_") else flag.lower()


def _final_sum(host: Host, acc: Accumulator, shapes: Shapes, programs: bool, split: bool) -> str:
    """The sum of partial sums in the gradient's shape and dtype."""
    dtype = _dtype(host, acc, shapes)
    if programs:
        return f"sum_partials({acc.place.name}_partial, {dtype}){_view(host, acc, shapes, split)}"
    view = _view(host, acc, shapes, split, of_rows=True)
    return f"{acc.place.name}_partial.sum(0){view}.to({dtype})"


def _dtype(host: Host, acc: Accumulator, shapes: Shapes) -> str:
    """The dtype of the input that a sum is the gradient of."""
    own = acc.place.name.removeprefix("d")
    return f"{own}.dtype" if own in host.saved else shapes.argument(f"{own}_dtype", dtype_text(host, (own,)))


def _view(host: Host, acc: Accumulator, shapes: Shapes, split: bool, of_rows: bool = False) -> str:
    """What gives a sum the gradient's shape; nothing where it has it."""
    own, axes = acc.place.name.removeprefix("d"), len(acc.value.axes)
    axes = axes if of_rows else max(axes, 1)
    dims = next(i.dims for i in host.graph.inputs if i.name == own)
    if len([dim for dim in acc.place.dims if dim]) > 1 or split:
        return f".view({f'{own}.shape' if own in host.saved else shapes.shape(dims)})"
    if len(dims) != axes:
        return f".view({', '.join('-1' if d else '1' for d in dims) or '()'})"
    return ""


def conditional(line: str, guard: str) -> str:
    return f"{line} if {guard.lower()} else None" if guard else line


def sizes(shapes: Shapes, layout: Layout) -> list[str]:
    if not layout.rows + layout.cols:
        return []
    if layout.flat:
        return [f"n_elements = {shapes.product(layout.cols)}"]
    return [shapes.rows_and_cols(layout)]
