"""Axes and dimensions in, Python expressions over the tensors at hand out."""

import re

from dataclasses import dataclass

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.layout import Layout


@dataclass(frozen=True)
class Shapes:
    """The tensors that a wrapper can read sizes off, by name, the plainest first. Where `given` is a dict, sizes that
    no tensor has are arguments: it collects their names by axis."""

    graph: Graph
    tensors: dict[str, Dims]
    given: dict[str, str] | None = None

    def axis(self, axis: str) -> str:
        """The size of one axis."""
        if own := self._dimension((axis,)):
            return own
        size = self.graph.sizes[axis]
        if self.graph.is_given(axis):
            return size if self.given is None or size.isdigit() else self.given.setdefault(axis, size)
        for name, dims in self.tensors.items():
            for i, dim in enumerate(dims):
                if axis in dim:
                    rest = [self.axis(other) for other in dim if other != axis]
                    return f"{name}.shape[{i - len(dims)}] // {factor(' * '.join(map(factor, rest)))}"
        size = self._of_known(size)
        if self.given is not None and size.split(".")[0] not in self.tensors:
            return self.given.setdefault(axis, f"size_{axis}")
        return size

    def argument(self, name: str, text: str) -> str:
        """The name of an argument for what the forward wrapper knows as `text`."""
        assert self.given is not None, "only backward has such arguments"
        return self.given.setdefault(text, name)

    def _of_known(self, size: str) -> str:
        """A size that is read off an input, read off a tensor at hand with the same dimension if there is one."""
        inputs = {item.name: item.dims for item in self.graph.inputs}

        def found(match: re.Match[str]) -> str:
            dim = inputs[match[1]][int(match[2])] if match[1] in inputs else ()
            return self._dimension(dim) or match[0]

        return re.sub(r"(\w+)\.shape\[(-?\d+)\]", found, size)

    def _dimension(self, dim: tuple[str, ...]) -> str:
        """Where a tensor at hand has a dimension; empty if none has."""
        return next(
            (
                f"{n}.shape[{i - len(dims)}]"
                for n, dims in self.tensors.items()
                for i, d in enumerate(dims)
                if d == dim != ()
            ),
            "",
        )

    def product(self, axes: tuple[str, ...]) -> str:
        """The number of elements over some axes. Leading dimensions that a tensor has are counted as they come, so that
        any number of them will do."""
        if not axes:
            return "1"
        best, counted = "", set[str]()
        for name, dims in self.tensors.items():
            for length in range(len(dims), 0, -1):
                inside = {a for dim in dims[:length] for a in dim}
                text = f"{name}.numel()" if length == len(dims) else f"{name}.shape[:{length - len(dims)}].numel()"
                if inside == set(axes) and length >= len(dims) - 1:
                    return text
                if inside < set(axes) and len(inside) > max(len(counted), 1):
                    best, counted = text, inside
        rest = tuple(a for a in axes if a not in counted)
        return f"{best} * {self._times(rest, alone=False)}" if best else self._times(rest)

    def count(self, axes: tuple[str, ...]) -> str:
        """A product of sizes, as their axes give them."""
        return self._times(axes) if axes else "1"

    def _times(self, axes: tuple[str, ...], *, alone: bool = True) -> str:
        parts = [self.axis(axis) for axis in axes]
        if alone and len(parts) == 1:
            return parts[0]
        return " * ".join(map(factor, parts))

    def rows_and_cols(self, layout: Layout) -> str:
        """The statement that sets `n_rows` and `n_cols`."""
        for name, dims in self.tensors.items():
            plain = all(len(dim) == 1 for dim in dims)
            if plain and tuple(d[0] for d in dims) == (*layout.rows, *layout.cols) and len(layout.cols) == 1:
                return f"n_rows, n_cols = row_shape({name})"
        return f"n_rows, n_cols = {self.product(layout.rows)}, {self.product(layout.cols)}"

    def shape(self, dims: Dims, own: str = "") -> str:
        """A shape as a tuple; the leading dimensions that a tensor has too are taken from it as they come, so that any
        number of them will do. Sizes that no tensor has are those of `own`."""
        same = next((name for name, other in self.tensors.items() if other == dims and name != own), "")
        if same:
            return f"{same}.shape"
        best, length = "", 0
        for name, other in self.tensors.items():
            common = 0
            while common < min(len(dims), len(other)) and dims[common] == other[common] != ():
                common += 1
            if common > length and name != own:
                best, length = name, common
        parts = [f"*{best}.shape[:{length - len(self.tensors[best])}]"] if length else []
        if length and length == len(self.tensors[best]):
            parts = [f"*{best}.shape"]
        for i, dim in enumerate(dims[length:], start=length):
            known = self.shared(dim, own) or all(self.known(axis, own) for axis in dim)
            parts.append(self.dim(dim) if known else f"{own}.shape[{i - len(dims)}]")
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})" if parts else "()"

    def shared(self, dim: tuple[str, ...], own: str) -> bool:
        """Whether another tensor has the same dimension."""
        return any(dim in dims for name, dims in self.tensors.items() if name != own)

    def known(self, axis: str, own: str) -> bool:
        return self.shared((axis,), own) or self.graph.is_given(axis) or not own

    def dim(self, axes: tuple[str, ...]) -> str:
        return (self._dimension(axes) or self._times(axes)) if axes else "1"


def factor(size: str) -> str:
    """A size as an operand of a product or the divisor of a quotient, in parentheses if it is computed."""
    return size if is_atom(size) else f"({size})"


def dividend(size: str) -> str:
    """A size as the left operand of `*` or `//`, in parentheses if it is a sum."""
    return f"({size})" if is_sum(size) else size


def is_atom(size: str) -> bool:
    """Whether a size needs no parentheses anywhere: it is a number, is read off a tensor, or is one call."""
    return " " not in size or (size.startswith("max(") and size.endswith(")"))


def is_sum(size: str) -> bool:
    return not is_atom(size) and (" + " in size or " - " in size)
