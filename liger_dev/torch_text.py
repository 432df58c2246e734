"""A graph of torch.export in, the text of a plain torch function out: operators, casts and names as a person writes them."""

import builtins
import json
import keyword
import re

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from torch.fx import Node

from liger_dev.errors import Unsupported
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.torch_spellings import FALLBACK
from liger_dev.torch_spellings import FUNCTIONAL
from liger_dev.torch_spellings import METHODS
from liger_dev.torch_spellings import REDUCTIONS
from liger_dev.torch_spellings import RENAMED
from liger_dev.traced_names import assigned_names
from liger_dev.traced_names import source_line
from liger_dev.traced_scalars import ATOM
from liger_dev.traced_scalars import POWER
from liger_dev.traced_scalars import PRODUCT
from liger_dev.traced_scalars import SUM
from liger_dev.traced_scalars import UNARY
from liger_dev.traced_scalars import derived
from liger_dev.traced_scalars import number_text

_COMPARE, _OR, _AND = range(1, 4)

_INFIX = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "truediv": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "matmul": ("@", PRODUCT),
    "pow": ("**", POWER),
    "bitwise_and": ("&", _AND),
    "bitwise_or": ("|", _OR),
    "eq": ("==", _COMPARE),
    "ne": ("!=", _COMPARE),
    "lt": ("<", _COMPARE),
    "le": ("<=", _COMPARE),
    "gt": (">", _COMPARE),
    "ge": (">=", _COMPARE),
}
_BOUNDS = {"min": "max", "minimum": "max", "max": "min", "maximum": "min"}
_NOTHING = frozenset("lift_fresh_copy lift_fresh detach_ alias".split())
_NO_ARGUMENT = frozenset("cudnn_enable cudnn_enabled layout pin_memory memory_format".split())
_LONGEST = 60


@dataclass(frozen=True)
class Traced:
    """A torch.export graph with what its placeholders stand for.

    `arguments` maps placeholder names to argument names, `tags` a scalar's name to the number it was traced with
    (digits that occur nowhere else), `constants` placeholder names to lifted 0-d tensors, `dtype` is the dtype of all
    float inputs in the trace. `names` are those that the source gives to nodes, None where they are to be read from it.
    """

    graph: torch.fx.Graph
    arguments: dict[str, str]
    tags: dict[str, float]
    constants: dict[str, torch.Tensor]
    dtype: torch.dtype
    names: dict[Node, str] | None = None


def print_function(name: str, traced: Traced, tensors: tuple[Tensor, ...], scalars: tuple[Scalar, ...]) -> str:
    """The imports and the function `name(tensors..., scalars...)` that computes what the graph computes.

    Raises:
        Unsupported: an operation has no spelling in torch's public functions; names the node and its source line.
    """
    printer = _Printer(traced, tensors[0].name, {t.name for t in tensors} | {s.name for s in scalars} | {name})
    body = printer.statements()
    parameters = [f"{t.name}: torch.Tensor" for t in tensors]
    parameters += [f"{s.name}: {s.type} = {number_text(s.default)}" for s in scalars]
    result = "torch.Tensor" if printer.outputs == 1 else f"tuple[{', '.join(['torch.Tensor'] * printer.outputs)}]"
    head = f"def {name}({', '.join(parameters)}) -> {result}:"
    if len(head) > 120:
        head = "\n".join([f"def {name}(", *(f"    {parameter}," for parameter in parameters), f") -> {result}:"])
    return "\n".join([head, *(f"    {line}" for line in body)]) + "\n"


def imports_of(function: str) -> str:
    """The import lines that a printed function needs."""
    lines = ["import torch"] + (["import torch.nn.functional as F"] if re.search(r"\bF\.", function) else [])
    return "\n".join(lines) + "\n"


class _Printer:
    """Goes through the nodes once; `texts` holds what a later node writes for an earlier one, with its precedence."""

    def __init__(self, traced: Traced, first: str, taken: set[str]) -> None:
        self.traced = traced
        self.first = first
        self.taken = taken | {"torch", "F"}
        self.texts: dict[Node, tuple[str, int]] = {}
        self.weights: dict[Node, int] = {}
        self.lines: list[str] = []
        self.outputs = 0
        self.nodes = [n for n in traced.graph.nodes if "_assert" not in str(n.target)]
        self.assigned = assigned_names(self.nodes) if traced.names is None else traced.names

    def statements(self) -> list[str]:
        for node in self.nodes:
            if node.op == "placeholder":
                self.texts[node] = self.placeholder(node)
            elif node.op == "output":
                self.write_return(node)
            elif node.op != "call_function":
                raise _unsupported(node, f"a node of kind {node.op} can't be written as torch code")
            elif isinstance(node.meta.get("val"), tuple | list):
                self.write_unpacking(node)
            elif node not in self.texts and node.users:
                self.write_value(node)
        return self.lines

    def placeholder(self, node: Node) -> tuple[str, int]:
        if node.name in self.traced.constants:
            value = self.traced.constants[node.name].item()
            if all(op_name(user) in _INFIX or op_name(user) in _BOUNDS for user in node.users):
                return number_text(value), UNARY if value < 0 else ATOM
            return f"torch.tensor({number_text(value)})", ATOM
        return self.traced.arguments.get(node.name, node.name), ATOM

    def write_value(self, node: Node) -> None:
        text, precedence = self.expression(node)
        weight = 1 + sum(self.weights.get(operand, 0) for operand in node.all_input_nodes)
        wanted = self.assigned.get(node, "")
        returned = any(user.op == "output" for user in node.users)
        short = len(text) <= _LONGEST and weight <= 4
        if text.isidentifier() or (
            not wanted and not returned and short and (len(node.users) == 1 or ".shape" in text)
        ):
            self.texts[node] = (text, precedence)
            self.weights[node] = weight
            return
        name = self.unique(wanted or ("y" if returned else self.fallback(node)), node)
        self.lines.append(f"{name} = {text}")
        self.texts[node] = (name, ATOM)

    def write_unpacking(self, node: Node) -> None:
        parts = {user.args[1]: user for user in node.users if op_name(user) == "getitem"}
        assert len(parts) == len(node.users), f"{node}: a tuple is used as a whole"
        if op_name(node) == "broadcast_tensors" and all(_same_shape(p, node.args[0][i]) for i, p in parts.items()):  # type: ignore[index]
            self.texts |= {part: self.of(node.args[0][index]) for index, part in parts.items()}  # type: ignore[index]
            return
        names = []
        for index in range(len(node.meta["val"])):
            part = parts.get(index)
            name = self.unique(self.assigned.get(part) or f"part_{index}", part) if part is not None else "_"
            names.append(name)
            if part is not None:
                self.texts[part] = (name, ATOM)
        self.lines.append(f"{', '.join(names)} = {self.expression(node)[0]}")

    def write_return(self, node: Node) -> None:
        results = node.args[0]
        assert isinstance(results, tuple | list), "torch.export returns a tuple"
        self.outputs = len(results)
        self.lines.append(f"return {', '.join(self.operand(result, 0) for result in results)}")

    def unique(self, wanted: str, node: Node) -> str:
        """`wanted`, or something close to it that no other value has."""
        tries = [wanted]
        if _dtype(node) == torch.float32 and self.traced.dtype != torch.float32:
            tries.append(f"{wanted}_float")
        tries += [f"{wanted}_{i}" for i in range(2, 1000)]
        name = next(n for n in tries if n not in self.taken and not keyword.iskeyword(n) and not hasattr(builtins, n))
        self.taken.add(name)
        return name

    def fallback(self, node: Node) -> str:
        operand = self.texts[node.all_input_nodes[0]][0] if node.all_input_nodes else ""
        if op_name(node) in ("to", "_to_copy") and operand.isidentifier():
            return f"{operand}_float" if _dtype(node) == torch.float32 else f"{operand}_cast"
        return FALLBACK.get(op_name(node), op_name(node).strip("_"))

    def expression(self, node: Node) -> tuple[str, int]:
        """The text of one node in terms of the texts of its operands."""
        op = op_name(node)
        args, kwargs = node.args, node.kwargs
        if op in _NOTHING or (op in ("dropout", "native_dropout") and args[2] is False):
            return self.of(args[0])
        if op.endswith("_") and not op.endswith("__"):
            raise _unsupported(node, f"aten.{op} writes in place")
        if op in _INFIX and not kwargs.get("rounding_mode"):
            return self.infix(*_INFIX[op], args, kwargs)
        if op in _BOUNDS and len(args) == 2 and isinstance(args[1], Node) and args[1].name in self.traced.constants:
            return f"{self.operand(args[0], ATOM)}.clamp({_BOUNDS[op]}={self.operand(args[1], 0)})", ATOM
        if op in _SPECIAL:
            return _SPECIAL[op](self, node)
        return self.call(node, op), ATOM

    def infix(self, sign: str, precedence: int, args: Any, kwargs: Any) -> tuple[str, int]:
        left, right = args
        if sign == "*" and isinstance(left, Node) and op_name(left) == "reciprocal" and len(left.users) == 1:
            if not isinstance(right, Node) and self.texts[left][0].startswith("torch.reciprocal("):
                # `1 / x` of a tensor arrives as reciprocal(x) * 1
                return f"{self.operand(right, PRODUCT)} / {self.operand(left.args[0], UNARY)}", PRODUCT
        right_text = self.operand(right, precedence if sign == "**" else precedence + 1)
        if kwargs.get("alpha", 1) != 1:
            right_text = f"{self.operand(kwargs['alpha'], PRODUCT)} * {self.operand(right, UNARY)}"
        left_text = self.operand(left, precedence + (sign == "**"))
        space = "" if sign == "**" and left_text.isidentifier() and right_text.isalnum() else " "
        return f"{left_text}{space}{sign}{space}{right_text}", precedence

    def call(self, node: Node, op: str) -> str:
        """`x.mean(-1, keepdim=True)`, `torch.rsqrt(x)` or `F.silu(x)`."""
        arguments = self.arguments(node, op)
        if op in METHODS:
            return f"{self.operand(node.args[0], ATOM)}.{op}({', '.join(arguments[1:])})"
        if op in RENAMED:
            return f"{RENAMED[op]}({', '.join(arguments)})"
        if op in FUNCTIONAL or not hasattr(torch, op):
            if callable(getattr(F, op, None)):
                return f"F.{op}({', '.join(arguments)})"
        if callable(getattr(torch, op, None)) and not op.startswith("_"):
            return f"torch.{op}({', '.join(arguments)})"
        if callable(getattr(torch.Tensor, op, None)) and isinstance(node.args[0], Node):
            return f"{self.operand(node.args[0], ATOM)}.{op}({', '.join(arguments[1:])})"
        raise _unsupported(node, f"{node.target} has no spelling in torch's public functions")

    def arguments(self, node: Node, op: str) -> list[str]:
        """Arguments by the operation's schema: what equals its default is left out, flags go by keyword."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            raise _unsupported(node, f"{node.target} is no operation of torch")
        given = {declared.name: value for declared, value in zip(schema.arguments, node.args)} | dict(node.kwargs)
        texts: list[str] = []
        by_keyword = op == "clamp"
        for declared in schema.arguments:
            if declared.name not in given or declared.name in _NO_ARGUMENT:
                by_keyword = True
                continue
            value = given[declared.name]
            if texts and declared.has_default_value() and _same(value, declared.default_value):
                by_keyword = True
                continue
            if declared.name == "reduction" and isinstance(value, int):
                value = REDUCTIONS[value]
            text = self.argument(node, declared.name, value)
            if op == "broadcast_tensors":  # the only function of torch whose list is its arguments
                text = text.strip("[]")
            flag = isinstance(value, bool | str | torch.dtype | torch.device)
            dim = declared.name == "dim" and op not in METHODS
            by_keyword = by_keyword or bool(texts and (flag or dim))
            texts.append(f"{declared.name}={text}" if texts and by_keyword else text)
        return texts

    def argument(self, node: Node, name: str, value: Any) -> str:
        if name == "normalized_shape":
            return self.normalized_shape(node, value)
        if isinstance(value, torch.device):
            return f"{self.first}.device"
        if isinstance(value, tuple | list) and len(value) == 1 and name == "dim":
            return self.operand(value[0], 0)
        return self.operand(value, 0)

    def normalized_shape(self, node: Node, value: Any) -> str:
        """Sizes that a module baked in, in terms of the weight or of the input itself."""
        weight = node.args[2] if len(node.args) > 2 else None
        if isinstance(weight, Node):
            return f"{self.operand(weight, ATOM)}.shape"
        return f"{self.operand(node.args[0], ATOM)}.shape[-{len(value)}:]"

    def of(self, value: Any) -> tuple[str, int]:
        """The text of an operand with its precedence."""
        if isinstance(value, Node):
            return self.texts[value]
        if isinstance(value, float):
            found = derived(value, self.traced.tags)
            if found is not None:
                return found
            return number_text(value), UNARY if value < 0 else ATOM
        if isinstance(value, torch.dtype):
            return f"{self.first}.dtype" if value == self.traced.dtype else str(value), ATOM
        if isinstance(value, tuple | list):
            items = ", ".join(self.operand(item, 0) for item in value)
            tensors = any(isinstance(item, Node) and isinstance(item.meta.get("val"), torch.Tensor) for item in value)
            return f"[{items}]" if tensors else f"({items}{',' if len(value) == 1 else ''})", ATOM
        if isinstance(value, str):
            return json.dumps(value), ATOM
        return repr(value), UNARY if isinstance(value, int) and value < 0 else ATOM

    def operand(self, value: Any, least: int) -> str:
        """The text of an operand, in parentheses where it binds less than `least`."""
        text, precedence = self.of(value)
        return text if precedence >= least else f"({text})"

    def cast(self, node: Node) -> tuple[str, int]:
        source = node.args[0]
        target = _dtype(node)
        assert isinstance(source, Node), "a cast is of a tensor"
        if target == _dtype(source):
            return self.of(source)
        value = self.operand(source, ATOM)
        if target == torch.float32:
            return f"{value}.float()", ATOM
        return f"{value}.to({self.operand(target, 0)})", ATOM

    def size(self, node: Node) -> tuple[str, int]:
        tensor, dim = node.args
        assert isinstance(tensor, Node) and isinstance(dim, int), "sizes are of a tensor's dimension"
        last = dim == tensor.meta["val"].ndim - 1
        return f"{self.operand(tensor, ATOM)}.shape[{-1 if last else dim}]", ATOM

    def slice(self, node: Node) -> tuple[str, int]:
        tensor, dim, start, end, step = list(node.args) + [0, 0, None, 1][len(node.args) - 1 :]
        start_text = "" if start in (None, 0) else self.operand(start, 0)
        end_text = "" if end is None or (isinstance(end, int) and end >= 2**62) else self.operand(end, 0)
        step_text = "" if step == 1 else f":{self.operand(step, 0)}"
        if not (start_text or end_text or step_text):
            return self.of(tensor)
        return self.index(node, dim, f"{start_text}:{end_text}{step_text}")

    def select(self, node: Node) -> tuple[str, int]:
        return self.index(node, node.args[1], self.operand(node.args[2], 0))

    def index(self, node: Node, dim: Any, text: str) -> tuple[str, int]:
        tensor = node.args[0]
        assert isinstance(tensor, Node) and isinstance(dim, int), "an index is into a tensor's dimension"
        last = dim in (-1, tensor.meta["val"].ndim - 1)
        before = "..., " if last and tensor.meta["val"].ndim > 1 else ":, " * dim
        return f"{self.operand(tensor, ATOM)}[{before}{text}]", ATOM

    def reversed(self, node: Node) -> tuple[str, int]:
        return self.infix("-", SUM, (node.args[1], node.args[0]), node.kwargs)

    def negative(self, node: Node) -> tuple[str, int]:
        return f"-{self.operand(node.args[0], UNARY)}", UNARY

    def rms_norm(self, node: Node) -> tuple[str, int]:
        """F.rms_norm; the eps that it takes if it is given none depends on the dtype that it computes in."""
        given = self.call(node, "rms_norm").removesuffix(")")
        has_eps = len(node.args) > 3 and node.args[3] is not None
        return f"{given})" if has_eps else f"{given}, eps=torch.finfo(torch.float32).eps)", ATOM

    def instance_norm(self, node: Node) -> tuple[str, int]:
        x, weight, bias, mean, var, _, _, eps, *_ = node.args
        if mean is not None or var is not None:
            raise _unsupported(node, "aten.instance_norm keeps running statistics")
        given = {"weight": weight, "bias": bias}
        texts = [f"{name}={self.operand(value, 0)}" for name, value in given.items() if value is not None]
        return f"F.instance_norm({', '.join([self.operand(x, 0), *texts, f'eps={self.operand(eps, 0)}'])})", ATOM

    def batch_norm(self, node: Node) -> tuple[str, int]:
        x, weight, bias, mean, var, training, _, eps, *_ = node.args
        if training and (mean is not None or var is not None):
            raise _unsupported(node, "aten.batch_norm updates running statistics")
        statistics = [self.operand(value, 0) for value in (x, mean, var)]
        given = {"weight": weight, "bias": bias, "training": training or None, "eps": eps}
        texts = [f"{name}={self.operand(value, 0)}" for name, value in given.items() if value is not None]
        return f"F.batch_norm({', '.join([*statistics, *texts])})", ATOM


_SPECIAL = {
    "batch_norm": _Printer.batch_norm,
    "rms_norm": _Printer.rms_norm,
    "instance_norm": _Printer.instance_norm,
    "to": _Printer.cast,
    "_to_copy": _Printer.cast,
    "sym_size": _Printer.size,
    "slice": _Printer.slice,
    "select": _Printer.select,
    "rsub": _Printer.reversed,
    "neg": _Printer.negative,
}


def op_name(node: Node) -> str:
    """`mean` of aten.mean.dim, `mul` of operator.mul."""
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target).split(".")[1]
    return getattr(node.target, "__name__", "")


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _same_shape(a: Node, b: Any) -> bool:
    return str(a.meta["val"].shape) == str(b.meta["val"].shape)


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _unsupported(node: Node, what: str) -> Unsupported:
    file, line = source_line(node)
    where = f"node {node.name}" + (f", {Path(file).name}:{line}" if file else "")
    return Unsupported(what, where, "write the operation as a plain function in a file and give that file")
