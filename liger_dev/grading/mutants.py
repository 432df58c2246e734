"""An op file's text in, seeded bugs of it out: each changes one place of the syntax tree, or what the op returns.

Equivalent changes are not made, or are told apart by a reason: a mutant that no test on a CPU can kill says nothing
about the tests.
"""

import ast
import copy
import itertools

from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass

from liger_dev.grading.static_reading import is_kernel


@dataclass(frozen=True)
class Mutation:
    """A changed text. `excluded` is why it is equivalent as far as a test on a CPU can tell; empty if it is not.
    `kernel` is the kernel that holds the change, if one does."""

    operator: str
    line: int
    change: str
    text: str
    excluded: str = ""
    kernel: str = ""


Edit = Callable[[ast.AST], None]
Site = tuple[str, ast.AST, str, Edit, str]

_CASTS = ("float32", "float16", "bfloat16", "int64")
_OTHER_FUNCTION = {"exp": "exp2", "log": "log2", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "rsqrt": "sqrt",
                   "sqrt": "rsqrt", "sigmoid": "exp", "sum": "max", "erf": "sigmoid", "cos": "sin", "sin": "cos", "abs": "exp"}  # fmt: skip


def mutations(text: str, class_name: str) -> tuple[Mutation, ...]:
    """All bugs that can be planted in an op file, null candidates first."""
    tree = ast.parse(text)
    found, original = list(_nulls(text, tree, class_name)), ast.unparse(tree)
    kernels = [node for node in tree.body if isinstance(node, ast.FunctionDef) and is_kernel(node)]
    for index, (operator, node, change, _, excluded) in enumerate(_sites(tree)):
        # A tree of the same text: the same walk finds the same places.
        changed = ast.parse(text)
        _, target, _, edit, _ = next(itertools.islice(_sites(changed), index, None))
        edit(target)
        new = ast.unparse(ast.fix_missing_locations(changed))
        if new != original:
            line = getattr(node, "lineno", 0)
            inside = next((kernel.name for kernel in kernels if kernel.lineno <= line <= (kernel.end_lineno or 0)), "")
            found.append(Mutation(operator, line, change, new, excluded, inside))
    return tuple(found)


# --- what the op returns -------------------------------------------------------------------------------------------

_NULL = """

_true_{phase} = {name}.{phase}
_last = []


def _each(values, change):
    several = values if isinstance(values, tuple) else (values,)
    changed = tuple(change(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in several)
    return changed if isinstance(values, tuple) else changed[0]


@staticmethod
def _null(ctx, *args):
    true = _true_{phase}(ctx, *args)
{body}


{name}.{phase} = _null
"""
_NULLS = {
    ("returns zeros", "forward"): "return _each(true, torch.zeros_like)",
    ("returns ones", "forward"): "return _each(true, torch.ones_like)",
    (
        "returns its input",
        "forward",
    ): "return _each(true, lambda y: args[0].clone() if args[0].shape == y.shape else torch.zeros_like(y))",
    (
        "returns the mean",
        "forward",
    ): "return _each(true, lambda y: torch.full_like(y, y.float().nanmean().item()) if y.numel() > 1 else y)",
    ("returns the last call's output", "forward"): (
        "_last.append(_each(true, torch.clone))\n"
        "    same = len(_last) > 1 and _fits(_last[-2], true)\n"
        "    return _each(_last[-2], torch.clone) if same else true"
    ),
    ("returns no NaN", "forward"): "return _each(true, torch.nan_to_num)",
    ("returns zero gradients", "backward"): "return _each(true, torch.zeros_like)",
    ("returns scaled gradients", "backward"): "return _each(true, lambda dx: dx * 1.25)",
    ("gradient as if dY were 1", "backward"): "return _true_backward(ctx, *(torch.ones_like(dy) for dy in args))",
    ("returns the upstream gradient", "backward"): (
        "return _each(true, lambda dx: args[0].clone() if args[0].shape == dx.shape else torch.zeros_like(dx))"
    ),
}
_FITS = """

def _fits(one, other):
    pairs = zip(one if isinstance(one, tuple) else (one,), other if isinstance(other, tuple) else (other,))
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
"""


def _nulls(text: str, tree: ast.Module, class_name: str) -> Iterator[Mutation]:
    owner = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name), None)
    if owner is None:
        return
    lines = {node.name: node.lineno for node in owner.body if isinstance(node, ast.FunctionDef)}
    for (operator, phase), body in _NULLS.items():
        extra = _NULL.format(name=class_name, phase=phase, body=f"    {body}") + (_FITS if "_fits" in body else "")
        yield Mutation(operator, lines.get(phase, owner.lineno), f"after {class_name}.{phase}", text + extra)


# --- one place of the syntax tree ----------------------------------------------------------------------------------


def _sites(tree: ast.Module) -> Iterator[Site]:
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        body = [node for statement in function.body for node in ast.walk(statement)]
        yield from _kernel_sites(body) if is_kernel(function) else _host_sites(function, body)


def _kernel_sites(body: list[ast.AST]) -> Iterator[Site]:
    for node in body:
        match node:
            case ast.Compare(ops=[ast.Lt()]):
                yield "mask one too wide", node, f"{_text(node)}: <=", _set_compare, ""
            case ast.BinOp(op=ast.BitAnd()):
                yield "part of a mask dropped", node, _text(node), _keep_left, ""
            case ast.BinOp(op=ast.Add() | ast.Sub()) if not _is_address(node):
                yield "term dropped", node, _text(node), _keep_left, ""
                yield "first term dropped", node, _text(node), _keep_right, ""
                yield "sign changed", node, _text(node), _flip_sign, ""
            case ast.BinOp(op=ast.Mult()) if not _is_address(node):
                yield "factor dropped", node, _text(node), _keep_left, _same_factors(node)
            case ast.BinOp(op=ast.Div()):
                yield "divisor dropped", node, _text(node), _keep_left, ""
            case ast.AugAssign(op=ast.Add()):
                yield "accumulator overwritten", node, _text(node), _no_sum, ""
            case ast.Call():
                yield from _call_sites(node)


def _call_sites(node: ast.Call) -> Iterator[Site]:
    name = ast.unparse(node.func)
    short = name.rpartition(".")[2]
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if short == "to" and len(node.args) == 1:
        wanted = ast.unparse(node.args[0])
        if wanted.endswith("int64"):
            reason = "offsets of 32 bits differ only beyond 2**31 elements, which no test on a CPU reaches"
            yield "int32 offset", node, _text(node), _no_cast, reason
        elif wanted.endswith("float32"):
            yield "arithmetic in the inputs' dtype", node, _text(node), _no_cast, ""
        elif wanted.endswith("element_ty"):
            yield "rounding step left out", node, _text(node), _no_cast, ""
    elif name == "tl.cast" and "int64" in _text(node):
        reason = "offsets of 32 bits differ only beyond 2**31 elements, which no test on a CPU reaches"
        yield "int32 offset", node, _text(node), _first_argument, reason
    elif name == "tl.store":
        yield "store left out", node, _text(node), _store_nothing, ""
        yield "store without a mask", node, _text(node), _no_mask, "" if "mask" in keywords else "it has none"
    elif name == "tl.load":
        if "other" in keywords:
            yield "another value where masked", node, _text(node), _other_seven, ""
        yield "load one element off", node, _text(node), _shift_address, ""
    elif name in ("tl.range", "range") and len(node.args) > 1:
        yield "last rows left out of a loop", node, _text(node), _shorter_loop, ""
    elif name == "tl.where":
        yield "select always", node, _text(node), _second_argument, ""
    elif name.startswith(("tl.", "libdevice.")) and short in _OTHER_FUNCTION and node.args:
        yield "another function", node, f"{_text(node)}: {_OTHER_FUNCTION[short]}", _other_function, ""
        if short == "sum" and "axis" in keywords:
            yield "reduction in bfloat16", node, _text(node), _sum_in_bfloat16, ""


def _host_sites(function: ast.FunctionDef, body: list[ast.AST]) -> Iterator[Site]:
    capped = [n for n in body if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "min"]
    persistent = {part for call in capped for part in ast.walk(call)}
    for node in body:
        match node:
            case ast.Call(func=ast.Attribute(attr="contiguous")):
                yield "strides ignored", node, _text(node), _no_cast, ""
            case ast.Call(func=ast.Attribute(attr="sum"), args=[_]):
                yield "last partial result left out", node, _text(node), _drop_last, ""
            case ast.Call(func=ast.Name(id="sum_partials"), args=[_, _]):
                yield "last partial result left out", node, _text(node), _drop_last, ""
            case ast.Call(func=ast.Name(id="sum_each"), args=[_, _, *_]):
                yield "last partial result left out", node, _text(node), _drop_last_of_each, ""
            case ast.Call(func=ast.Name(id=name)) if name.startswith("check_"):
                yield "check left out", node, _text(node), lambda call: _replace(call, ast.Constant(None)), ""
            case ast.Call(func=ast.Attribute(attr="cdiv") | ast.Name(id="cdiv"), args=[_, _]):
                others = "the programs of a persistent kernel take the rows of one that is missing"
                yield "programs left out", node, _text(node), _floor, others if node in persistent else ""
            case ast.Call(func=ast.Attribute(attr="empty_like")):
                yield "writes into its input", node, _text(node), _first_argument, ""
            case ast.Subscript(value=ast.Attribute(attr="needs_input_grad")):
                yield "gradient flag ignored", node, _text(node), lambda flag: _replace(flag, ast.Constant(False)), ""
            case ast.Return(value=ast.Tuple(elts=[_, _, *_] as values)) if function.name == "backward":
                if not any(isinstance(value, ast.Constant) for value in values[:2]):
                    yield "gradients swapped", node, _text(node), _swap, ""


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) < 80 else f"{text[:77]}..."


def _is_address(node: ast.BinOp) -> bool:
    """Offsets and block starts: their bugs are planted by loads and masks, where they can be told."""
    text = ast.unparse(node)
    return (
        any(part in text for part in ("_ptr", "program_id", "arange", "n_cols + ", "BLOCK_ROWS +", "stride"))
        and "tl.load" not in text
    )


def _same_factors(node: ast.BinOp) -> str:
    return "" if ast.unparse(node.right) != "1.0" else "times one"


def _replace(node: ast.AST, new: ast.AST) -> None:
    """Makes `node` the other one, in place: whoever holds it sees the change."""
    new = copy.deepcopy(new)
    node.__class__ = new.__class__
    node.__dict__ = {**new.__dict__}


def _keep_left(node: ast.AST) -> None:
    assert isinstance(node, ast.BinOp), "a site of its own kind"
    _replace(node, node.left)


def _keep_right(node: ast.AST) -> None:
    assert isinstance(node, ast.BinOp), "a site of its own kind"
    _replace(node, node.right)


def _set_compare(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare), "a site of its own kind"
    node.ops = [ast.LtE()]


def _flip_sign(node: ast.AST) -> None:
    assert isinstance(node, ast.BinOp), "a site of its own kind"
    node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()


def _no_sum(node: ast.AST) -> None:
    assert isinstance(node, ast.AugAssign), "a site of its own kind"
    _replace(node, ast.Assign([node.target], node.value))


def _no_cast(node: ast.AST) -> None:
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute), "a site of its own kind"
    _replace(node, node.func.value)


def _first_argument(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    _replace(node, node.args[0])


def _second_argument(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    _replace(node, node.args[1])


def _store_nothing(node: ast.AST) -> None:
    _set_keyword(node, "mask", ast.parse("tl.program_id(0) < 0", mode="eval").body)


def _no_mask(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    node.keywords = [keyword for keyword in node.keywords if keyword.arg != "mask"]


def _other_seven(node: ast.AST) -> None:
    _set_keyword(node, "other", ast.Constant(7.0))


def _set_keyword(node: ast.AST, name: str, value: ast.expr) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    node.keywords = [keyword for keyword in node.keywords if keyword.arg != name] + [ast.keyword(name, value)]


def _shift_address(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    node.args[0] = ast.BinOp(node.args[0], ast.Add(), ast.Constant(1))


def _shorter_loop(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    node.args[1] = ast.BinOp(node.args[1], ast.Sub(), ast.Constant(1))


def _other_function(node: ast.AST) -> None:
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute), "a site of its own kind"
    node.func.attr = _OTHER_FUNCTION[node.func.attr]


def _sum_in_bfloat16(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    node.args[0] = ast.parse(f"({ast.unparse(node.args[0])}).to(tl.bfloat16).to(tl.float32)", mode="eval").body


def _drop_last(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    if isinstance(node.func, ast.Attribute):
        node.func.value = _without_last(node.func.value)
    else:
        node.args[0] = _without_last(node.args[0])


def _drop_last_of_each(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    node.args[0] = ast.parse(f"({ast.unparse(node.args[0])})[:, :-1].contiguous()", mode="eval").body


def _without_last(node: ast.expr) -> ast.expr:
    return ast.parse(f"({ast.unparse(node)})[:-1]", mode="eval").body


def _floor(node: ast.AST) -> None:
    assert isinstance(node, ast.Call), "a site of its own kind"
    _replace(node, ast.parse(f"max({_text_of(node.args[0])} // {_text_of(node.args[1])}, 1)", mode="eval").body)


def _text_of(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"


def _swap(node: ast.AST) -> None:
    assert isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple), "a site of its own kind"
    values = node.value.elts
    values[0], values[1] = values[1], values[0]
