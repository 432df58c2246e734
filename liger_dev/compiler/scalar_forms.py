"""A constant of a traced graph and the tagged scalars in, how it was made of them out: `0.5 / beta` for 1 / (2 * beta)."""

import math

from collections.abc import Mapping

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value

# Tags carry 12 digits that occur nowhere else; a number that a person writes has few.
_MATCH, _DIGITS = 1e-11, 6
# Numbers of many digits that formulas hold beside scalars, and their inverses.
_ROOTS = (
    *(math.sqrt(number) for number in (2.0, math.pi, 2.0 * math.pi, 2.0 / math.pi)),
    *(math.pi, math.e, math.log(2.0), math.log(10.0)),
)


def scalar_form(graph: Graph, number: float, tags: Mapping[str, float]) -> Value | None:
    """`number` as an expression of the scalars that were traced as `tags`; None if it is made of none of them."""
    if _plain(number) is not None:
        return None
    params = {name: graph.make("param", dtype="float", name=name) for name in tags}
    for name, tag in tags.items():
        if _same(number, tag):
            return params[name]
    for name, tag in tags.items():
        found = _of_one(graph, number, params[name], tag)
        if found is not None:
            return found
    return _of_two(graph, number, params, tags)


def _of_one(g: Graph, number: float, p: Value, tag: float) -> Value | None:
    """a * p, a / p, a * p * p, p + b or b - p, for numbers a and b that a person writes, a also times sqrt(2) and the like."""
    if tag == 0:
        return None
    for term, sign in ((number - tag, 1.0), (number + tag, -1.0)):
        plain = _plain(term)
        if plain is not None:
            if sign < 0:
                return g.sub(g.const(plain), p)
            return g.add(g.const(plain), p) if plain > 0 else g.sub(p, g.const(-plain))
    for factor, make, operand in (
        (number / tag, g.mul, p),
        (number * tag, g.div, p),
        (number / (tag * tag), g.mul, g.mul(p, p)),
    ):
        written = _written(factor)
        if written is not None:
            return make(g.const(written), operand)
    return None


def _written(number: float) -> float | None:
    """A number of few digits, or one of them times a root or a power of it; None for any other."""
    plain = _plain(number)
    if plain is not None:
        return plain
    ratios = (ratio for root in _ROOTS for ratio in (number / root, number * root))
    return number if any(_plain(ratio) is not None for ratio in ratios) else None


def _of_two(g: Graph, number: float, params: Mapping[str, Value], tags: Mapping[str, float]) -> Value | None:
    """p * q, p / q, p + q or p - q."""
    for one, p in tags.items():
        for other, q in tags.items():
            a, b = params[one], params[other]
            if one != other and q != 0 and _same(number, p / q):
                return g.div(a, b)
            if one != other and _same(number, p - q):
                return g.sub(a, b)
            if one < other and _same(number, p * q):
                return g.mul(a, b)
            if one < other and _same(number, p + q):
                return g.add(a, b)
    return None


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_MATCH, abs_tol=0.0)


def _plain(number: float) -> float | None:
    """The number of few digits that `number` is but for rounding, if it is one."""
    if not math.isfinite(number) or not 1e-9 < abs(number) < 1e9:
        return 0.0 if number == 0 else None
    short = float(f"{number:.{_DIGITS}g}")
    return short if _same(number, short) else None
