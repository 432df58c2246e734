"""What the wrappers demand of sizes beyond equality: axes that must divide, and axes that can't be missing or many."""

import re

from liger_dev.compiler.ir import Graph
from liger_dev.ranks import accepts_any_rank
from liger_dev.records import Reference

_DIVIDED = re.compile(r"(\w+)\.shape\[(-?\d+)\] // (\d+)")
_READ = re.compile(r"(\w+)\.shape\[(-?\d+)\]")


def divisors(graph: Graph, reference: Reference) -> dict[str, int]:
    """For each axis of the reference that slices or views take apart, the number that its size must be a multiple of."""
    found: dict[str, int] = {}
    for size in graph.sizes.values():
        for name, position, number in _DIVIDED.findall(size):
            axis = _axis(reference, name, int(position))
            if axis:
                found[axis] = max(found.get(axis, 1), int(number))
    return found


def divisibility_checks(graph: Graph) -> list[str]:
    """The statements that refuse sizes that don't divide."""
    wanted: dict[tuple[str, str], int] = {}
    for size in graph.sizes.values():
        for name, position, number in _DIVIDED.findall(size):
            wanted[name, position] = max(wanted.get((name, position), 1), int(number))
    return [f'check_divisible("{n}.shape[{p}]", {n}.shape[{p}], {number})' for (n, p), number in wanted.items()]


def rank_checks(graph: Graph, reference: Reference) -> list[str]:
    """The statement that refuses other ranks, where the reference counts dimensions from the front; the shapes of the
    other tensors are checked against the largest one's."""
    if accepts_any_rank(reference):
        return []
    largest = max((item for item in graph.inputs if not item.optional), key=lambda item: len(item.dims))
    return [f'check_rank("{largest.name}", {largest.name}, {len(largest.dims)})'] if largest.dims else []


def counted_axes(graph: Graph, text: str) -> list[str]:
    """The axes whose sizes the wrappers read one by one: a tensor needs just these dimensions, no more and no fewer."""
    counted: dict[str, None] = {}
    known = {i.name: i.dims for i in graph.inputs} | {o.name: o.dims for o in graph.outputs}
    known |= {f"d{o.name}": o.dims for o in graph.outputs}
    for name, position in _READ.findall(text):
        if name in known and -len(known[name]) <= int(position) < len(known[name]):
            counted.update(dict.fromkeys(known[name][int(position)]))
    return list(counted)


def _axis(reference: Reference, name: str, position: int) -> str:
    shape = next((t.shape for t in reference.tensors if t.name == name), ())
    axis = shape[position] if -len(shape) <= position < len(shape) else ""
    return axis if isinstance(axis, str) else ""
