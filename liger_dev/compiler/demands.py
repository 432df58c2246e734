"""What the wrappers demand of sizes beyond equality: axes that must divide or fit, and axes that can't be missing or many."""

import math
import re

from collections.abc import Collection

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.ranks import accepts_any_rank
from liger_dev.records import Reference

_DIVIDED = re.compile(r"(\w+)\.shape\[(-?\d+)\] // (\w+)")
_DIFFERENCE = re.compile(r"(\w+)\.shape\[(-?\d+)\] - (\w+)\.shape\[(-?\d+)\]")
_READ = re.compile(r"(\w+)\.shape\[(-?\d+)\]")


def divisors(graph: Graph, reference: Reference) -> dict[str, int]:
    """For each axis of the reference that slices or views take apart, the number that its size must be a multiple of."""
    found: dict[str, int] = {}
    usual = {scalar.name: scalar.default for scalar in reference.scalars}
    for size in graph.sizes.values():
        for name, position, number in _DIVIDED.findall(size):
            axis = _axis(reference, name, int(position))
            if axis:
                found[axis] = max(found.get(axis, 1), int(usual.get(number, number)))
    return found


def divisibility_checks(graph: Graph) -> list[str]:
    """The statements that refuse sizes that don't divide."""
    wanted: dict[tuple[str, str], str] = {}
    for size in graph.sizes.values():
        for name, position, number in _DIVIDED.findall(size):
            known = wanted.get((name, position), "1")
            wanted[name, position] = max(known, number, key=int) if known.isdigit() and number.isdigit() else number
    return [f'check_divisible("{n}.shape[{p}]", {n}.shape[{p}], {number})' for (n, p), number in wanted.items()]


def limits(graph: Graph, reference: Reference) -> dict[str, str]:
    """For each axis of the reference that is a part of another one, the axis that must be as large."""
    found = {}
    for whole, at, part, part_at in _differences(graph):
        found[_axis(reference, part, part_at)] = _axis(reference, whole, at)
    return {part: whole for part, whole in found.items() if part and whole}


def limit_checks(graph: Graph) -> list[str]:
    """The statements that refuse a part larger than the whole."""
    return [
        f'check_at_most("{part}.shape[{part_at}]", {part}.shape[{part_at}], {whole}.shape[{at}])'
        for whole, at, part, part_at in _differences(graph)
    ]


def least_sizes(graph: Graph) -> dict[str, int]:
    """For each axis that elements are read from one by one, counted from an end, how many it must have."""
    values = graph.walk(output.value for output in graph.outputs)
    found = {axis: v.attr("k") for v in values if v.op == "kth_largest" for axis in v.attr("over")}
    for leaf in values:
        for position, piece in leaf.attr("slices") if leaf.op == "input" else ():
            dim = graph.dims_of(leaf.attr("name"))[position]
            counted = not piece.after or piece.after == dim and piece.first < 0
            numbers = [graph.sizes[axis] for axis in piece.axes]
            if len(dim) != 1 or not counted or piece.outside or piece.step < 1 or not all(n.isdigit() for n in numbers):
                continue
            count = math.prod(map(int, numbers))
            least = -piece.first if piece.first < 0 else piece.first + piece.step * (count - 1) + 1
            if not graph.sizes[dim[0]].isdigit():
                found[dim[0]] = max(found.get(dim[0], 0), least)
    return found


def least_checks(graph: Graph) -> list[str]:
    """The statements that refuse tensors without the elements that are read one by one."""
    sizes = {axis: graph.sizes[axis] for axis in least_sizes(graph)}
    return [f'check_least("{sizes[axis]}", {sizes[axis]}, {least})' for axis, least in least_sizes(graph).items()]


def rank_checks(graph: Graph, reference: Reference) -> list[str]:
    """The statement that refuses other ranks, where the reference counts dimensions from the front; the shapes of the
    other tensors are checked against the largest one's."""
    return [] if accepts_any_rank(reference) else _one_rank(_largest(graph))


def late_rank_checks(graph: Graph, reference: Reference, counted: Collection[str]) -> list[str]:
    """The same, where the wrappers read the first of several dimensions by itself: it does not stand for any number."""
    largest = _largest(graph)
    alone = len(largest.dims) > 1 and not {*counted}.isdisjoint(largest.dims[0])
    return _one_rank(largest) if alone and accepts_any_rank(reference) else []


def _largest(graph: Graph) -> Input:
    return max((item for item in graph.inputs if not item.optional), key=lambda item: len(item.dims))


def _one_rank(item: Input) -> list[str]:
    return [f'check_rank("{item.name}", {item.name}, {len(item.dims)})'] if item.dims else []


def counted_axes(graph: Graph, text: str) -> list[str]:
    """The axes whose sizes the wrappers read one by one: a tensor needs just these dimensions, no more and no fewer."""
    counted: dict[str, None] = {}
    known = {i.name: i.dims for i in graph.inputs} | {o.name: o.dims for o in graph.outputs}
    known |= {f"d{o.name}": o.dims for o in graph.outputs}
    for name, position in _READ.findall(text):
        if name in known and -len(known[name]) <= int(position) < len(known[name]):
            counted.update(dict.fromkeys(known[name][int(position)]))
    return list(counted)


def _differences(graph: Graph) -> list[tuple[str, int, str, int]]:
    found = (match for size in graph.sizes.values() for match in _DIFFERENCE.findall(size))
    return list(dict.fromkeys((whole, int(at), part, int(part_at)) for whole, at, part, part_at in found))


def _axis(reference: Reference, name: str, position: int) -> str:
    shape = next((t.shape for t in reference.tensors if t.name == name), ())
    axis = shape[position] if -len(shape) <= position < len(shape) else ""
    return axis if isinstance(axis, str) else ""
