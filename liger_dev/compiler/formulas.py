"""Values in, formulas out, in the words of the inputs: `y = x_hat * weight, where x_hat = x * rstd, rstd = …`."""

from collections.abc import Collection
from collections.abc import Iterable

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.moves import is_moved
from liger_dev.compiler.ops import ATOM
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.ops import PRODUCT
from liger_dev.compiler.ops import SUM
from liger_dev.compiler.ops import Op


def formula(graph: Graph, name: str, value: Value, known: Iterable[str] = (), printed: Collection[str] = ()) -> str:
    """`name = …`, with a definition for every named value that it uses, each once, the first used first; not for those
    whose names are `known`, and no definition that is `printed` elsewhere."""
    skip = set(known)
    definitions = {name: _Speller(graph, value).text(value)}
    queue = list(_Speller(graph, value).used(value))
    while queue:
        part = queue.pop(0)
        if graph.names[part] not in definitions and graph.names[part] not in skip:
            speller = _Speller(graph, part)
            definitions[graph.names[part]] = speller.text(part)
            queue += speller.used(part)
    first, *all_others = (f"{key} {_sign(key)} {text}" for key, text in definitions.items())
    others = [text for text in all_others if text not in printed]
    return f"{first}, where {', '.join(others)}" if others else first


def formulas(graph: Graph, printed: Collection[str] = ()) -> list[str]:
    """All outputs and gradients, each named value defined where it is first used; not if it is so `printed` already."""
    known: set[str] = set()
    lines = []
    roots = [*((o.name, o.value) for o in graph.outputs), *gradient_roots(graph)]
    for name, value in roots:
        same = graph.names.get(value)
        if same != name or same not in known:
            lines.append(
                f"{name} {_sign(name)} {same}" if same in known else formula(graph, name, value, known, printed)
            )
        used = [v for v in graph.walk([value]) if v in graph.names]
        reads = [v for v in used if v.op == "input" and (_index_of(v) or is_moved(graph, v.attr("slices")))]
        reads = [v for v in reads if graph.names[v] not in known]
        lines += [read for v in reads if (read := _read(graph, v)) and read not in lines]
        known |= {graph.names[v] for v in used}
    return lines


def _sign(name: str) -> str:
    """A row of a table is added to, once for each index that counts it."""
    return "+=" if name.endswith("]") else "="


def _index_of(leaf: Value) -> str:
    """The input that counts the rows of a table that a leaf is made of."""
    return next((piece.at for _, piece in leaf.attr("slices") if piece.at), "") if leaf.op == "input" else ""


def _read(graph: Graph, leaf: Value) -> str:
    """What is read at other positions: `previous = x[T - 1], or 0`."""
    parts = []
    for _, piece in leaf.attr("slices"):
        axis = ", ".join(piece.axes)
        if piece.reversed:
            parts.append(f"{axis} reversed")
        elif piece.at:
            parts.append(piece.at)
        elif piece.first:
            parts.append(f"{axis} {'+' if piece.first > 0 else '-'} {abs(piece.first)}")
    ends = {"zero": ", or 0", "wrap": ", round the end", "": ""}
    outside = next((piece.outside for _, piece in leaf.attr("slices") if piece.outside), "")
    return f"{graph.names[leaf]} = {leaf.attr('name')}[{', '.join(parts)}]{ends[outside]}" if parts else ""


def gradient_roots(graph: Graph) -> list[tuple[str, Value]]:
    """Each gradient by the name of its input, or of the slice of it that it belongs to; none where no gradient flows."""
    found = []
    for (name, slices), value in graph.gradients.items():
        if value.op == "const":
            continue
        leaf = next(
            (v for v in graph.names if v.op == "input" and v.attrs == (("name", name), ("slices", slices))), None
        )
        at = [piece.at for _, piece in slices if piece.at]
        own = f"d{graph.names[leaf]}" if leaf is not None else f"d{name}"
        found.append((f"d{name}[{at[0]}]" if at else own, value))
    return found


def axes_text(axes: Iterable[str]) -> str:
    return ", ".join(axes)


class _Speller:
    """Spells one value; named values inside it stand as their names."""

    def __init__(self, graph: Graph, root: Value) -> None:
        self.graph = graph
        self.root = root

    def used(self, value: Value) -> list[Value]:
        found: list[Value] = []
        for arg in value.args:
            named = arg in self.graph.names and arg.args
            found += [arg] if named else self.used(arg)
        return found

    def text(self, value: Value, needs: int = 0) -> str:
        text, strength = self.spell(value)
        return f"({text})" if strength < needs else text

    def spell(self, value: Value) -> tuple[str, int]:
        if value is self.root and (index := _index_of(value)):
            return f"{value.attr('name')}[{index}]", ATOM
        if value in self.graph.names and (value is not self.root or not value.args):
            return self.graph.names[value], ATOM
        match value.op:
            case "const":
                number = value.attr("value")
                return (f"{number:.6g}" if isinstance(number, float) else str(number)), ATOM
            case "index":
                return f"index[{value.attr('axis')}]", ATOM
            case "cat":
                return f"cat({', '.join(self.text(arg) for arg in value.args)})", ATOM
            case "param" | "input":
                return value.attr("name"), ATOM
            case "size":
                sizes = value.attr("over")
                return " * ".join(sizes), ATOM if len(sizes) == 1 else PRODUCT
            case "kth_largest" | "simplex_threshold":
                attrs = dict(value.attrs)
                number = f"k={attrs['k']}" if "k" in attrs else f"total={attrs['total']:g}"
                return f"{value.op}[{axes_text(value.attr('over'))}]({self.text(value.args[0])}, {number})", ATOM
            case "sum" | "max" | "argmax":
                return f"{value.op}[{axes_text(value.attr('over'))}]({self.text(value.args[0])})", ATOM
            case "round":
                return f"round({self.text(value.args[0])})", ATOM
            case "cumsum" | "cumprod":
                start = f"reverse_{value.op}" if value.attr("reverse") else value.op
                return f"{start}[{value.attr('axis')}]({self.text(value.args[0])})", ATOM
            case "fixed":
                return f"{value.attr('to')}({self.text(value.args[0])})", ATOM
        row = OPS[value.op]
        parts = [self.text(arg, _needs(row, i)) for i, arg in enumerate(value.args)]
        return row.formula.format(*parts), row.formula_strength


def _needs(row: Op, position: int) -> int:
    """The strength below which an operand gets parentheses: none inside a call's own."""
    if row.formula_strength == ATOM:
        return 0 if "(" in row.formula else ATOM
    return row.formula_strength + (1 if position or row.formula_strength not in (SUM, PRODUCT) else 0)
