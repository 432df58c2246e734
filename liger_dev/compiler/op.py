"""What a row of the table of operations holds, and the shapes that rows come in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from liger_dev.compiler.ir import Graph
    from liger_dev.compiler.ir import Value

Adjoint = Callable[["Graph", "Value", "Value"], list["Value | None"]]

# Binding strength of operators, as in Python, where & and | bind tighter than comparisons; an operand that binds less
# tightly gets parentheses.
COMPARE, OR, AND, SUM, PRODUCT, NEGATION, ATOM = 1, 2, 3, 4, 5, 6, 9


@dataclass(frozen=True)
class Op:
    """What one operation means, to each interpreter of the graph.

    Args:
        arity: number of arguments; None if it varies.
        triton, formula: format strings over the arguments' spellings; empty for leaves.
        strength: of the outermost operator in both; a formula that is a plain call beside an operator in Triton has
            `formula_call`.
        evaluate: torch function of the arguments (and attributes), or None for leaves and reductions.
        adjoint: (graph, value, gradient of value) -> gradient of each argument; None where there is none.
        dtype: the result's type if it does not follow from the arguments.
        precise: needs float32 whatever the inputs are (listed in the profile).
    """

    arity: int | None
    triton: str
    formula: str
    strength: int
    evaluate: Callable[..., Any] | None
    adjoint: Adjoint | None
    dtype: str = ""
    reduces: bool = False
    precise: bool = False
    formula_call: bool = False

    @property
    def formula_strength(self) -> int:
        return ATOM if self.formula_call else self.strength


def no_gradient(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    return [None] * len(v.args)


def one(rule: "Callable[[Graph, Value, Value, Value], Value]") -> Adjoint:
    """The adjoint of a unary operation from its rule (graph, argument, result, gradient) -> gradient."""
    return lambda g, v, d: [rule(g, v.args[0], v, d)]


def leaf() -> Op:
    return Op(0, "", "", ATOM, None, no_gradient)


def call(name: str, evaluate: Callable[..., Any], rule: Any, formula: str = "", precise: bool = True) -> Op:
    return Op(
        1, f"{name}({{0}})", f"{formula or name.split('.')[-1]}({{0}})", ATOM, evaluate, rule, "float", False, precise
    )


def infix(symbol: str, strength: int, evaluate: Callable[..., Any], rule: Adjoint, dtype: str = "") -> Op:
    spelled = f"{{0}} {symbol} {{1}}"
    return Op(2, spelled, spelled, strength, evaluate, rule, dtype)


def reduction(name: str, rule: Adjoint | None, precise: bool = True) -> Op:
    return Op(1, "", f"{name}({{0}})", ATOM, None, rule, "", True, precise)
