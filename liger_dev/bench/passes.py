"""A provider's function, its inputs and a mode in; a pass that can be repeated, timed and weighed out."""

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from liger_dev.errors import BadInput

MODES = ("forward", "backward", "full")

Provider = Callable[..., Any]


@dataclass(frozen=True)
class Pass:
    """Work to measure. Before each `call`, which is measured, `prepare` is called, which is not."""

    prepare: Callable[[], None]
    call: Callable[[], None]


def eager_pass(function: Provider, inputs: Sequence[Any], mode: str) -> Pass:
    """The pass as a user's program would run it: one Python call, gradients accumulated into leaves that have none.

    A backward is prepared by its own forward, so that no pass needs `retain_graph`, which would forbid
    torch.compile to reuse the buffers it saved. Each pass meets inputs that no pass before it met.
    """
    assert mode in MODES, f"no mode '{mode}'"
    leaves = gradient_leaves(inputs)
    outputs: list[torch.Tensor] = []
    grad_outputs: list[torch.Tensor] = []

    def grad_to_none() -> None:
        outputs.clear()
        for leaf in leaves:
            leaf.grad = None
        freshen(inputs, grad_outputs)

    def forward() -> None:
        function(*inputs)

    def keep_outputs() -> None:
        outputs.extend(differentiable(function(*inputs)))
        if not grad_outputs:
            grad_outputs.extend(random_gradients(outputs))

    def backward() -> None:
        torch.autograd.backward(outputs, grad_outputs)

    def forward_and_backward() -> None:
        keep_outputs()
        backward()

    def prepare_backward() -> None:
        grad_to_none()
        keep_outputs()

    if mode == "forward":
        return Pass(grad_to_none, forward)
    if mode == "backward":
        return Pass(prepare_backward, backward)
    prepare_backward()
    return Pass(grad_to_none, forward_and_backward)


def freshen(inputs: Sequence[Any], grad_outputs: Sequence[torch.Tensor] = ()) -> None:
    """New values at the same addresses, by the same distribution: every element of an input moves one place on, and
    gradients, which a backward may overwrite, are drawn again.

    So nothing that a pass remembers from the one before it, by address or by content, is of use. Tensors whose
    elements share memory stay as they are.
    """
    for grad in grad_outputs:
        if grad.ndim:
            grad.normal_()
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.numel() > 1 and value.is_contiguous():
            value.detach().copy_(value.detach().roll(1))


def gradient_leaves(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The inputs whose gradient a backward computes."""
    return [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]


def differentiable(outputs: Any) -> list[torch.Tensor]:
    """The tensors among what a function returned that a gradient can flow into. Raises BadInput if there is none."""
    several = outputs if isinstance(outputs, tuple | list) else (outputs,)
    found = [value for value in several if isinstance(value, torch.Tensor) and value.requires_grad]
    if not found:
        raise BadInput("no output requires a gradient, so there is no backward to measure", "", "pass --modes forward")
    return found


def random_gradients(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One gradient an output: random, and 1 for a scalar, as `loss.backward()` takes it."""
    return [torch.randn_like(value) if value.ndim else torch.ones_like(value) for value in outputs]
