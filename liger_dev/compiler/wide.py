"""A forward launch in; with a kernel of its own for wide rows out, where one that holds them would lack registers."""

from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import WHOLE_ROW
from liger_dev.compiler.needs import Needs
from liger_dev.compiler.passes import arrange
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Launch
from liger_dev.compiler.schedule import short_rows
from liger_dev.compiler.schedule import stores_tiles
from liger_dev.compiler.schedule import strided


def widened(graph: Graph, launch: Launch) -> Launch:
    spec = launch.single
    if spec is None or launch.looped or not _summed_up_once(graph, spec):
        return launch
    name = spec.name.replace("_kernel", "_wide_kernel")
    wide = replace(spec, name=name, looped=True, wide=True)
    return Launch(replace(spec, narrow=True), (wide,))


def _summed_up_once(graph: Graph, spec: KernelSpec) -> bool:
    """Whether a program adds up one tensor's row, and then needs it once more, with what rows share of others."""
    layout = spec.layout
    if layout.flat or not layout.rows or spec.pieces or spec.persistent or not stores_tiles(spec):
        return False
    if strided(spec) or short_rows(layout):
        return False
    needs = Needs(graph, replace(spec, looped=True))
    own = [v for v in needs.values if v not in spec.loads]
    reduced = [v for v in own if v.op in (*REDUCTIONS, *SCANS, *WHOLE_ROW)]
    if needs.singles or not reduced or any(v.op != "sum" for v in reduced):
        return False
    passes, _ = arrange(graph, replace(spec, looped=True, wide=True), needs.values, needs.singles)
    if len(passes) != 2 or passes[0].stores or len(passes[0].online) > 1 or passes[1].reductions or passes[1].online:
        return False
    rows = {v for one in passes for v in one.loads if needs.read_once(v)}
    return len(rows) == 1 and passes[0].loads == rows and rows <= passes[1].loads
