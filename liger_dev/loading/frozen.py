"""Tensors that torch gives no gradient for, such as a loss's class weights: found by a run, then detached where they enter."""

import ast

from dataclasses import replace
from typing import Any

from liger_dev.errors import BadInput
from liger_dev.loading.operation import Bound
from liger_dev.loading.operation import Operation
from liger_dev.loading.probe import run
from liger_dev.loading.probe import samples

_REFUSAL = "is not differentiable with respect to argument"


def frozen_tensors(operation: Operation) -> tuple[str, ...]:
    """The tensors that torch refuses as soon as they require a gradient."""
    floats = [tensor.name for tensor in operation.tensors if tensor.dtype == "float"]
    if operation.graph is not None or not _refuses(operation, floats):
        return ()
    return tuple(name for name in floats if _refuses(operation, [name]))


def _refuses(operation: Operation, names: list[str]) -> bool:
    tensors = samples(operation)
    for name in names:
        tensors[name].requires_grad_()
    try:
        run(operation, tensors)
    except BadInput as error:
        return _REFUSAL in error.what
    return False


def detached(operation: Operation, names: tuple[str, ...], why: str = "torch has no gradient for") -> Operation:
    """The operation with these tensors detached before it sees them."""
    if not names:
        return operation

    def bind(scalars: dict[str, Any]) -> Bound:
        bound = operation.bind(scalars)
        return lambda tensors: bound({name: _detach(x) if name in names else x for name, x in tensors.items()})

    note = f"{why} {', '.join(names)}"
    return replace(operation, bind=bind, assumptions=(*operation.assumptions, note))


def _detach(x: Any) -> Any:
    return None if x is None else x.detach()


def detached_text(text: str, entry: str, operation: Operation, names: tuple[str, ...]) -> str:
    """A user's file whose function detaches these tensors in its first lines."""
    optional = {tensor.name for tensor in operation.tensors if tensor.optional}
    function = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == entry)
    body = function.body[1:] if ast.get_docstring(function) is not None and len(function.body) > 1 else function.body
    lines = text.splitlines(keepends=True)
    indent = " " * body[0].col_offset
    added = [
        f"{indent}{n} = {f'None if {n} is None else ' if n in optional else ''}{n}.detach()  # torch has no gradient for it\n"
        for n in names
    ]
    at = body[0].lineno - 1
    return "".join([*lines[:at], *added, *lines[at:]])
