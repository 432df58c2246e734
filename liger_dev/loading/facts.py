"""A reference that the compiler can't express and formulas of its gradients in, the shapes and types of its outputs out.

The formulas are Python expressions; each is compared with autograd in float64 before anything is said.
"""

import math

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from liger_dev.axes import extent
from liger_dev.axes import multiples
from liger_dev.axes import named
from liger_dev.compiler.verify import InFloat64
from liger_dev.errors import BadInput
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import import_file
from liger_dev.loading.operation import users_code
from liger_dev.loading.probe import trial_values
from liger_dev.records import Reference
from liger_dev.records import Tensor

# Pairwise different and no sums or products of each other, so that an output's size tells its axis.
_SIZES = (3, 5, 7, 11, 13, 17, 19, 23)
_TOLERANCE = 1e-7

Tensors = dict[str, torch.Tensor]


def output_facts(reference: Reference, formulas: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """Name, shape and dtype of each output, as the profile says them.

    Raises:
        BadInput: a formula is missing, fails, or differs from autograd; an output is not finite, or has a size that
            is no axis.
    """
    call, sizes = _callable(reference, folder / f"facts_{reference.name}.py"), _sizes(reference)
    _compare_gradients(reference, call, formulas, sizes)
    shaped = call(_inputs(reference, sizes, torch.float32))
    names = ["y"] if len(shaped) == 1 else [f"y{i}" for i in range(len(shaped))]
    return [
        {"name": name, "shape": _axes(name, y, sizes), "dtype": _dtype(reference, call, sizes, i)}
        for i, (name, y) in enumerate(zip(names, shaped))
    ]


def compare_references(first: Reference, second: Reference, folder: Path) -> None:
    """Raises BadInput unless both take the same arguments and give the same outputs in float64."""
    arguments = [([t.name for t in r.tensors], [(s.name, s.default) for s in r.scalars]) for r in (first, second)]
    if arguments[0] != arguments[1]:
        todo = f"take exactly {', '.join([*arguments[1][0], *(name for name, _ in arguments[1][1])])}"
        raise BadInput("the reference takes other arguments than its source, or other defaults", first.name, todo)
    inputs = _inputs(second, _sizes(second), torch.float64)
    with InFloat64(), torch.no_grad():
        ours = _callable(first, folder / f"first_{first.name}.py")(inputs)
        theirs = _callable(second, folder / f"second_{first.name}.py")(inputs)
    if [y.shape for y in ours] != [y.shape for y in theirs]:
        raise BadInput("the reference's outputs have other shapes than its source's", first.name, "mend it")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        error = float((a.double() - b.double()).abs().max())
        if not error <= _TOLERANCE * max(1.0, float(b.double().abs().max())):
            raise BadInput(f"output {i} of the reference differs from its source by {error:.2g}", first.name, "mend it")


def _sizes(reference: Reference) -> dict[str, int]:
    parts = multiples(reference.tensors)
    return {a: math.lcm(n, parts.get(a, 1)) for a, n in zip(named(reference.tensors), _SIZES, strict=False)}


def _callable(reference: Reference, path: Path) -> Callable[[Tensors], list[torch.Tensor]]:
    place = Place(reference.origin, path)
    with users_code("the reference fails", place):
        function = getattr(import_file(reference.text, place.path), reference.name)
    scalars = {s.name: s.default for s in reference.scalars} | trial_values(reference.scalars)

    def call(tensors: Tensors) -> list[torch.Tensor]:
        with users_code("the reference fails", place):
            result = function(**tensors, **scalars)
        return list(result) if isinstance(result, tuple | list) else [result]

    return call


def _inputs(reference: Reference, sizes: dict[str, int], dtype: torch.dtype, wide: str = "") -> Tensors:
    """Random inputs; the tensor named `wide` is float32 whatever the others are."""
    generator = torch.Generator().manual_seed(5)

    def make(tensor: Tensor) -> torch.Tensor:
        dims = [extent(axis, sizes) for axis in tensor.shape]
        if tensor.dtype != "float":
            whole = torch.randint(0, sizes.get(tensor.range, 2), dims, generator=generator)
            return whole.bool() if tensor.dtype == "bool" else whole
        values = torch.randn(dims, generator=generator, dtype=torch.float64)
        return values.to(torch.float32 if tensor.name == wide else dtype)

    return {tensor.name: make(tensor) for tensor in reference.tensors}


def _compare_gradients(
    reference: Reference,
    call: Callable[[Tensors], list[torch.Tensor]],
    formulas: dict[str, str],
    sizes: dict[str, int],
) -> None:
    tensors = _inputs(reference, sizes, torch.float64)
    floats = [tensor.name for tensor in reference.tensors if tensor.dtype == "float"]
    if missing := [name for name in floats if name not in formulas]:
        raise BadInput(f"there is no gradient formula for {', '.join(missing)}", "gradient_formulas", "give one each")
    for name in floats:
        tensors[name].requires_grad_()
    with InFloat64():
        outputs = call(tensors)
    if not all(bool(torch.isfinite(y).all()) for y in outputs):
        raise BadInput("an output is not finite for ordinary inputs", reference.name, "mend the reference")
    generator = torch.Generator().manual_seed(6)
    upstream = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in outputs]
    gradients = torch.autograd.grad(outputs, [tensors[name] for name in floats], upstream, allow_unused=True)
    names = {"dy": upstream[0]} if len(upstream) == 1 else {f"dy{i}": d for i, d in enumerate(upstream)}
    scalars = {s.name: s.default for s in reference.scalars} | trial_values(reference.scalars)
    known = {**{key: value.detach() for key, value in tensors.items()}, **scalars, **names, "torch": torch, "F": F}
    for name, gradient in zip(floats, gradients):
        _compare(name, formulas[name], known, torch.zeros_like(tensors[name]) if gradient is None else gradient)


def _compare(name: str, formula: str, known: dict[str, Any], gradient: torch.Tensor) -> None:
    where = f"gradient_formulas.{name}"
    with users_code(f"the formula of d{name} fails", Place(where)), InFloat64():
        found = eval(compile(formula.strip(), where, "eval"), dict(known))
    if not isinstance(found, torch.Tensor) or found.shape != gradient.shape:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise BadInput(f"the formula of d{name} gives {shape}, not {tuple(gradient.shape)}", where, "mend the formula")
    error, scale = float((found - gradient).abs().max()), max(1.0, float(gradient.abs().max()))
    if not error <= _TOLERANCE * scale:
        raise BadInput(f"the formula of d{name} differs from autograd by {error:.2g}", where, "derive it again")


def _axes(name: str, output: torch.Tensor, sizes: dict[str, int]) -> list[str | int]:
    axis_of = {size: axis for axis, size in sizes.items()}
    unknown = [size for size in output.shape if size != 1 and size not in axis_of]
    if unknown:
        raise BadInput(f"the output {name} has the size {unknown[0]}, which is no axis of an input", name, "name it")
    return [axis_of.get(size, 1) for size in output.shape]


def _dtype(
    reference: Reference, call: Callable[[Tensors], list[torch.Tensor]], sizes: dict[str, int], index: int
) -> str:
    if call(_inputs(reference, sizes, torch.bfloat16))[index].dtype != torch.bfloat16:
        return "float32"
    floats = [tensor.name for tensor in reference.tensors if tensor.dtype == "float"]
    widening = [
        name
        for name in floats
        if call(_inputs(reference, sizes, torch.bfloat16, wide=name))[index].dtype == torch.float32
    ]
    return f"promote({', '.join(widening)})" if len(widening) > 1 else f"same as {(widening or floats)[0]}"
