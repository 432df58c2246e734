"""`F.one_hot` as it is traced: torch's own would turn the number of classes, a size, into a constant."""

import contextlib

from collections.abc import Iterator

import torch


@torch.library.custom_op("liger_dev::one_hot", mutates_args=())
def _one_hot(index: torch.Tensor, num_classes: int) -> torch.Tensor:
    return torch._C._nn.one_hot(index, num_classes)


@_one_hot.register_fake
def _(index: torch.Tensor, num_classes: int) -> torch.Tensor:
    return index.new_empty((*index.shape, num_classes))


def _traced(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    return torch.ops.liger_dev.one_hot(tensor, num_classes)  # type: ignore[no-any-return]


@contextlib.contextmanager
def sizes_kept() -> Iterator[None]:
    """While it is open, `F.one_hot` keeps the number of classes symbolic."""
    own = torch.nn.functional.one_hot
    torch.nn.functional.one_hot = _traced
    try:
        yield
    finally:
        torch.nn.functional.one_hot = own


def restore(graph: torch.fx.Graph) -> None:
    """Calls the operation by its usual name again."""
    for node in graph.nodes:
        if node.target is torch.ops.liger_dev.one_hot.default:
            node.target = torch.ops.aten.one_hot.default
