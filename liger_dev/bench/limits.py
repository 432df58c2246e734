"""A device in, the bytes a second that it can move at best out; a provider in, the bytes that its passes must move out."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch

from liger_dev.bench.passes import Provider
from liger_dev.bench.passes import differentiable
from liger_dev.bench.passes import gradient_leaves
from liger_dev.bench.passes import random_gradients
from liger_dev.bench.timing import event_ms

PROBE_BYTES = 2**30
PROBE_SAMPLES = 20


def copy_bandwidth() -> float:
    """Bytes a second that the device reads and writes at its best: the fastest of 20 copies and 20 additions of 1 GiB.

    An addition reads two bytes for one that it writes, as most backward passes do; memory favours reading a little.
    """
    free = torch.cuda.mem_get_info()[0]
    elements = min(PROBE_BYTES, free // 8) // 4
    a, b, c = (torch.zeros(elements, dtype=torch.float32, device="cuda") for _ in range(3))
    copy_ms = _fastest_ms(lambda: c.copy_(a))
    add_ms = _fastest_ms(lambda: torch.add(a, b, out=c))
    size = elements * 4
    return max(2 * size / copy_ms, 3 * size / add_ms) * 1e3


def _fastest_ms(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(PROBE_SAMPLES):
        # The untimed one keeps the device busy while the timed one is launched.
        work()
        times.append(event_ms(work))
    return min(times)


def bytes_moved(function: Provider, inputs: Sequence[Any], modes: Iterable[str]) -> dict[str, int]:
    """The fewest bytes that a provider's passes move: what they read and what they write, each counted once.

    Forward reads its inputs and writes its outputs. Backward reads the outputs' gradients and what forward saved, and
    writes the inputs' gradients; it has no entry if forward wrote these already, and then forward has none either:
    the two share the work in another way than the reference does. `full` is what no division of the work can do
    without: inputs, outputs and both kinds of gradients.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = function(*inputs)
    several = outputs if isinstance(outputs, tuple | list) else (outputs,)
    results = [value for value in several if isinstance(value, torch.Tensor)]
    forward = count_bytes([*tensors, *results])
    if tuple(modes) == ("forward",):
        return {"forward": forward}
    ends = differentiable(outputs)
    saved += _kept_elsewhere(ends)
    grad_outputs = random_gradients(ends)
    read = {_address(tensor): _content(tensor) for tensor in (*grad_outputs, *saved)}
    found = torch.autograd.grad(ends, gradient_leaves(inputs), grad_outputs, allow_unused=True)
    gradients = [grad for grad in found if grad is not None]
    written = [grad for grad in gradients if _address(grad) not in read or read[_address(grad)] != _content(grad)]
    full = count_bytes([*tensors, *results, *grad_outputs]) + count_bytes(gradients)
    if not written and {_address(grad) for grad in gradients} & {_address(tensor) for tensor in saved}:
        moved = {"full": full}
    else:
        backward = count_bytes([*grad_outputs, *saved]) + count_bytes(written)
        moved = {"forward": forward, "backward": backward, "full": full}
    return {mode: size for mode, size in moved.items() if mode in modes}


def _kept_elsewhere(ends: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors that a forward keeps for its backward as plain attributes of the node between them."""
    found: list[torch.Tensor] = []
    nodes: list[Any] = [end.grad_fn for end in ends]
    seen = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found += [value for value in getattr(node, "__dict__", {}).values() if isinstance(value, torch.Tensor)]
        nodes += [following for following, _ in node.next_functions]
    return found


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _content(tensor: torch.Tensor) -> int:
    """A sum of the bits: a gradient at the address of something read was passed on if it is the same, else written."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return int(tensor.detach().view(whole).sum(dtype=torch.int64))


def count_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the tensors' storages that they cover, a storage that several share counted once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        size = min(tensor.numel() * tensor.element_size(), storage.nbytes())
        sizes[storage.data_ptr()] = max(size, sizes.get(storage.data_ptr(), 0))
    return sum(sizes.values())


def fewest(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The smallest count a mode over all providers: none may be held to what another one saves needlessly."""
    best: dict[str, int] = {}
    for count in counts:
        for mode, size in count.items():
            best[mode] = min(size, best.get(mode, size))
    return best
