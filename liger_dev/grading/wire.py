"""Tensors in, an index and raw bytes out, and back: what passes between the grader and a child is data and never code."""

import json

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LARGEST = 1 << 31


class BadWire(Exception):
    """A child wrote what is no tensor: the message says why."""


def pack(tensors: Mapping[str, torch.Tensor | None], whole: bool = False) -> tuple[dict[str, Any], bytes]:
    """An index by name and the bytes it points into.

    Args:
        whole: keep the whole storage, so that a slice stays one; else only the part that the tensor spans.
    """
    index: dict[str, Any] = {}
    chunks: list[bytes] = []
    position = 0
    for name, tensor in tensors.items():
        if tensor is None:
            index[name] = None
            continue
        data = storage_bytes(tensor, whole)
        index[name] = {
            "dtype": _NAMES.get(tensor.dtype, str(tensor.dtype)),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset() if whole else 0,
            "bytes": [position, position + len(data)],
        }
        chunks.append(data)
        position += len(data)
    return index, b"".join(chunks)


def storage_bytes(tensor: torch.Tensor, whole: bool = True) -> bytes:
    """The bytes of a tensor's storage: all of them, or from its first element to its last."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.detach().untyped_storage())
    if not whole:
        size = tensor.element_size()
        start = tensor.storage_offset() * size
        flat = flat[start : start + span(tensor.shape, tensor.stride()) * size]
    return flat.cpu().numpy().tobytes()


def span(shape: Any, stride: Any) -> int:
    """How many elements of its storage a tensor reaches over."""
    if any(size == 0 for size in shape):
        return 0
    return int(1 + sum((size - 1) * step for size, step in zip(shape, stride)))


def unpack(index: Mapping[str, Any], data: bytes, device: str = "cpu") -> dict[str, torch.Tensor | None]:
    """The tensors of an index, each with a storage of its own. Raises BadWire when index and bytes don't fit."""
    return {
        str(name): None if entry is None else _tensor(str(name), entry, data, device) for name, entry in index.items()
    }


def _tensor(name: str, entry: Any, data: bytes, device: str) -> torch.Tensor:
    try:
        dtype = DTYPES[entry["dtype"]]
        shape, stride = [int(n) for n in entry["shape"]], [int(n) for n in entry["stride"]]
        offset, (start, end) = int(entry["offset"]), (int(n) for n in entry["bytes"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadWire(f"{name} is described by {str(entry)[:200]}: {type(error).__name__}") from None
    if (
        min([offset, start, *shape, *stride], default=0) < 0
        or len(shape) != len(stride)
        or not start <= end <= len(data)
    ):
        raise BadWire(f"{name} has an impossible shape, stride or place")
    size = dtype.itemsize
    if (end - start) % size or (offset + span(shape, stride)) * size > max(end - start, 0) or end - start > _LARGEST:
        raise BadWire(f"{name} reaches beyond its bytes")
    storage = torch.empty((end - start) // size, dtype=dtype, device=device)
    if end > start:
        storage.copy_(torch.frombuffer(bytearray(data[start:end]), dtype=dtype))
    return storage.as_strided(shape, stride, offset)


def write(
    folder: Path, name: str, record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor | None], whole: bool = False
) -> None:
    """`NAME.json` with the record and an index, `NAME.bin` with the bytes; the JSON last, since it says that all is there."""
    index, data = pack(tensors, whole)
    (folder / f"{name}.bin").write_bytes(data)
    (folder / f"{name}.json").write_text(json.dumps({**record, "tensors": index}))


def read(folder: Path, name: str, device: str = "cpu") -> tuple[dict[str, Any], dict[str, torch.Tensor | None]]:
    """What `write` wrote. Raises BadWire if a file is missing, too large or not what it should be."""
    described, raw = folder / f"{name}.json", folder / f"{name}.bin"
    try:
        if described.is_symlink() or raw.is_symlink():
            raise BadWire(f"{name} is a link")
        if described.stat().st_size > 1 << 24 or raw.stat().st_size > _LARGEST:
            raise BadWire(f"{name} is too large")
        record = json.loads(described.read_text(errors="replace"))
        if not isinstance(record, dict) or not isinstance(record.get("tensors"), dict):
            raise BadWire(f"{name} holds no tensors")
        return record, unpack(record.pop("tensors"), raw.read_bytes(), device)
    except FileNotFoundError:
        raise BadWire(f"there is no result {name}") from None
    except ValueError as error:
        raise BadWire(f"{name} is no record: {error}") from None
