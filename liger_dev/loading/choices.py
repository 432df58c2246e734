"""A file's function and its scalars in, the scalars with the values that each may take out, where these can be known."""

import ast

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from liger_dev.errors import BadInput
from liger_dev.loading.operation import Operation
from liger_dev.loading.probe import run
from liger_dev.loading.probe import samples
from liger_dev.records import Scalar

# What PyTorch's own functions take for their arguments of these names.
_TORCHS_OWN = {"reduction": ("mean", "sum", "none"), "approximate": ("none", "tanh")}


def with_choices(operation: Operation, text: str, entry: str, given: dict[str, list[Any]]) -> Operation:
    """The operation with the choices of its scalars: `given` ones (the file's `STATIC`), those of a Literal, both values
    of a flag, and the strings that the function compares an argument with. Values that it does not run with are left
    out.

    Raises:
        BadInput: `given` names no scalar.
    """
    unknown = set(given) - {scalar.name for scalar in operation.scalars}
    if unknown:
        raise BadInput(f"STATIC names '{min(unknown)}', which is no scalar", operation.place.shown, "mend the name")
    function = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == entry)
    scalars = []
    for scalar in operation.scalars:
        values = given.get(scalar.name) or scalar.choices or _known(scalar, function)
        usual = [] if scalar.default is None else [scalar.default]
        distinct = {repr(value): value for value in [*usual, *values]} if values else {}
        runs = [value for value in distinct.values() if _runs(operation, scalar, value)]
        scalars.append(replace(scalar, choices=tuple(runs)))
    return replace(operation, scalars=tuple(scalars))


def _known(scalar: Scalar, function: ast.FunctionDef) -> list[Any]:
    if scalar.type == "bool":
        return [True, False]
    if scalar.type != "str":
        return []
    compared = list(_compared(scalar.name, function))
    others = [] if compared else _TORCHS_OWN.get(scalar.name, ())
    return [*compared, *others]


def _compared(name: str, function: ast.FunctionDef) -> Iterator[str]:
    """The strings that an argument is compared or matched with, in order."""
    for node in ast.walk(function):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == name:
            operands = node.comparators
        elif isinstance(node, ast.Match) and isinstance(node.subject, ast.Name) and node.subject.id == name:
            patterns = [pattern for case in node.cases for pattern in ast.walk(case.pattern)]
            operands = [pattern.value for pattern in patterns if isinstance(pattern, ast.MatchValue)]
        for operand in operands:
            items = operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            for item in items:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.value


def _runs(operation: Operation, scalar: Scalar, value: Any) -> bool:
    try:
        with torch.no_grad():
            run(operation, samples(operation), {scalar.name: value})
    except BadInput:
        return False
    return True
