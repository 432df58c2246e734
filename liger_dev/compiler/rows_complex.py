"""Rows of complex numbers: each is a pair of real terms, which no kernel ever sees together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import result
from liger_dev.compiler.rows_shape import SHAPES
from liger_dev.compiler.rows_shape import stacked
from liger_dev.compiler.rows_slice import element


@dataclass(frozen=True)
class Complex:
    """A complex tensor as its real and its imaginary part."""

    real: Term
    imaginary: Term


def lower_complex(state: Lowering, node: Any, target: str) -> Any:
    """The term of a node that makes or takes complex tensors; None if it is no such node.

    Raises:
        Unsupported: complex numbers have no row for the operation.
    """
    if target in _ROWS:
        return _ROWS[target](state, *node.args, **node.kwargs)
    inputs = [n for n in node.all_input_nodes if isinstance(state.terms.get(n), Complex)]
    if not inputs:
        return None
    if target not in SHAPES or len(inputs) != 1:
        raise state.refuse("complex numbers have no row for it", "write it with real and imaginary parts")
    whole = state.terms[inputs[0]]
    parts = []
    for part in (whole.real, whole.imaginary):
        state.terms[inputs[0]] = part
        try:
            parts.append(SHAPES[target](state, *node.args, **node.kwargs))
        finally:
            state.terms[inputs[0]] = whole
    return Complex(*parts)


def _view_as_complex(state: Lowering, x: Any) -> Complex:
    t = state.term(x)
    return Complex(*(element(state, t, len(t.dims) - 1, i) for i in (0, 1)))


def _view_as_real(state: Lowering, x: Any) -> Term:
    z = _complex(state, x)
    return stacked(state, [z.real, z.imaginary], len(z.real.dims))


def _polar(state: Lowering, length: Any, angle: Any) -> Complex:
    r, a = state.term(length), state.term(angle)
    if r.value.op != "const":  # torch's gradient of a negative length has the wrong sign
        raise state.refuse("a length that is no number", "multiply torch.polar(torch.ones_like(angle), angle) by it")
    cos, sin = (state.graph.make(op, a.value) for op in ("cos", "sin"))
    return Complex(*(result(state, state.graph.mul(r.value, turn), [r, a]) for turn in (cos, sin)))


def _mul(state: Lowering, x: Any, y: Any) -> Any:
    if not any(isinstance(state.terms.get(arg), Complex) for arg in (x, y) if not isinstance(arg, int | float)):
        return None
    a, b, g = _complex(state, x), _complex(state, y), state.graph
    terms = [a.real, a.imaginary, b.real, b.imaginary]
    ar, ai, br, bi = (t.value for t in terms)

    def term(combine: Callable[[Value, Value], Value], left: tuple[Value, Value], right: tuple[Value, Value]) -> Term:
        return result(state, combine(g.mul(*left), g.mul(*right)), terms)

    return Complex(term(g.sub, (ar, br), (ai, bi)), term(g.add, (ar, bi), (ai, br)))


def _conjugate(state: Lowering, x: Any) -> Complex:
    z = _complex(state, x)
    return Complex(z.real, Term(state.graph.neg(z.imaginary.value), z.imaginary.dims, z.imaginary.dtype_of))


def _complex(state: Lowering, arg: Any) -> Complex:
    found = state.terms.get(arg)
    return found if isinstance(found, Complex) else Complex(state.term(arg), Term(state.graph.const(0.0), ()))


_ROWS: dict[str, Row] = {
    "aten.view_as_complex.default": _view_as_complex,
    "aten.view_as_real.default": _view_as_real,
    "aten.complex.default": lambda state, re, im: Complex(state.term(re), state.term(im)),
    "aten.polar.default": _polar,
    "aten.mul.Tensor": _mul,
    **{f"aten.{name}.default": _conjugate for name in ("conj", "_conj", "_conj_physical")},
    "aten.real.default": lambda state, x: _complex(state, x).real,
    "aten.imag.default": lambda state, x: _complex(state, x).imaginary,
}
