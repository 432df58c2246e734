"""Tensors without shapes in, the shapes out that operations usually have, in the order in which they are tried."""

from collections.abc import Iterator
from dataclasses import replace

from liger_dev.loading.signature import ONES
from liger_dev.loading.signature import ZEROS
from liger_dev.records import Tensor

Shape = tuple[str | int, ...]

ROWS: Shape = ("B", "T", "H")
_ANGLES = frozenset("cos sin freqs_cis position_embeddings_cos position_embeddings_sin".split())
_KEYS = frozenset("k key key_states key_layer xk".split())
LABELS = frozenset("target targets label labels shift_labels".split())


def usual_tensors(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors with shapes, and labels as indices: several combinations."""
    found = [[_shaped(tensor, shapes[tensor.name]) for tensor in tensors] for shapes in _shapes(tensors)]
    if any(tensor.name in LABELS for tensor in tensors) and tensors[0].name not in LABELS:
        yield from (_with_labels(given) for given in found)
    yield from found


def _shaped(tensor: Tensor, shape: Shape) -> Tensor:
    """A tensor with a usual shape; whole numbers are one a row."""
    return replace(tensor, shape=shape[:-1] if tensor.dtype == "int" and shape == ROWS else shape)


def as_indices(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Labels whose shape is known as indices below the first axis of the first tensor that they lack."""
    lacked = {t.name: [a for a in tensors[0].shape if isinstance(a, str) and a not in t.shape] for t in tensors[1:]}
    return tuple(
        replace(t, dtype="int", range=(*map(str, lacked[t.name]), "")[0])
        if t.name in LABELS and t.name in lacked and t.dtype == "float"
        else t
        for t in tensors
    )


def _shapes(tensors: list[Tensor]) -> Iterator[dict[str, Shape]]:
    if any(tensor.name in _ANGLES for tensor in tensors):
        yield from _rotations(tensors)
    parameters = {t.name for t in tensors if t.name.lower() in ONES | ZEROS}
    yield {t.name: ("H",) if t.name in parameters else ROWS for t in tensors}
    if not tensors:
        return
    if parameters:
        yield {t.name: ROWS for t in tensors}
    if len(tensors) > 1:
        yield {t.name: ("H",) if i else ROWS for i, t in enumerate(tensors)}
    yield {t.name: ("H",) if t.name in parameters else ("B", "H") for t in tensors}


def _rotations(tensors: list[Tensor]) -> Iterator[dict[str, Shape]]:
    """Queries (B, N, T, H) and keys (B, K, T, H) with angles for each row, for each position, or heads after positions."""
    for angles, places in ((ROWS, "BNTH"), (("T", "H"), "BNTH"), (ROWS, "BTNH"), (("T", "H"), "BTNH")):
        heads, keys = tuple(places), tuple(places.replace("N", "K"))
        yield {t.name: angles if t.name in _ANGLES else keys if t.name in _KEYS else heads for t in tensors}


def _with_labels(tensors: list[Tensor]) -> list[Tensor]:
    """A label for each row of the first tensor: an index below its width."""
    *rows, width = tensors[0].shape
    return [replace(t, shape=tuple(rows), dtype="int", range=str(width)) if t.name in LABELS else t for t in tensors]
