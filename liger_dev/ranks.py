"""A reference in, whether it takes tensors of other ranks than its SHAPES name, or of several dtypes, out: read from
its text."""

import ast

from collections.abc import Mapping

from liger_dev.records import Reference


def accepts_any_rank(reference: Reference) -> bool:
    """Whether the reference counts its dimensions from the end, so that any number of batch axes will do.

    Read from the text: a dimension counted from the front, a shape that is unpacked, or a call whose meaning depends
    on the rank makes it False, be it in a function that the reference calls.
    """
    tree = ast.parse(reference.text)
    numbers = _numbers(tree)
    # The bodies alone: `tuple[Tensor, Tensor]` in a signature is no indexing.
    return not any(
        _depends_on_rank(node, numbers)
        for function in _called(tree, reference.name)
        for statement in function.body
        for node in ast.walk(statement)
    )


def _called(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    """The function of this name, and those of the text that it calls."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = [functions[name]]
    for function in found:
        names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        found += [other for other in functions.values() if other.name in names and other not in found]
    return found


def _numbers(tree: ast.Module) -> dict[str, ast.expr]:
    """What the text calls by a name of its own, where that is a number: constants, defaults of arguments."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int()) as value):
                found[name] = value
            case ast.arguments():
                after = [*node.posonlyargs, *node.args][len(node.posonlyargs) + len(node.args) - len(node.defaults) :]
                pairs = [*zip(after, node.defaults), *zip(node.kwonlyargs, node.kw_defaults)]
                found |= {argument.arg: value for argument, value in pairs if isinstance(value, ast.Constant)}
    return found


def accepts_mixed_dtypes(reference: Reference) -> bool:
    """Whether the reference takes parameters in another dtype than its inputs, on every device."""
    calls = (node for node in ast.walk(ast.parse(reference.text)) if isinstance(node, ast.Call))
    names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    return not names & {*_ONE_DTYPE_CALLS}


_DIMENSION_ARGUMENTS = ("dim", "axis", "start_dim", "end_dim", "dim0", "dim1", "dims")
_DIMENSION_CALLS = ("mean", "sum", "amax", "amin", "max", "min", "softmax", "log_softmax", "logsumexp", "unsqueeze",
                    "squeeze", "cumsum", "norm", "var", "std", "prod", "argmax", "size", "chunk", "split", "cat",
                    "flatten")  # fmt: skip
_RANK_CALLS = ("view", "reshape", "permute", "transpose", "t", "einsum", "movedim", "swapaxes", "bmm", "group_norm",
               "instance_norm", "batch_norm", "channel_shuffle", "cross_entropy", "nll_loss",
               "multi_margin_loss", "prelu")  # fmt: skip
# They refuse parameters of another dtype than the input's, on some devices at least.
_ONE_DTYPE_CALLS = ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "prelu", "linear")
# They go over dimension 1 unless they are told another one.
_SECOND_BY_DEFAULT = ("cosine_similarity", "normalize")


def _depends_on_rank(node: ast.AST, numbers: Mapping[str, ast.expr]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            counted = [keyword.value for keyword in node.keywords if keyword.arg in _DIMENSION_ARGUMENTS]
            positional = node.args if name in _DIMENSION_CALLS else []
            second = name in _SECOND_BY_DEFAULT and not counted and len(node.args) < 3
            counted = [
                numbers.get(value.id, value) if isinstance(value, ast.Name) else value
                for value in [*counted, *positional]
            ]
            return second or name in _RANK_CALLS or any(map(_from_the_front, counted))
        case ast.Constant(value="batchmean"):
            return True
        case ast.Assign(targets=[ast.Tuple()], value=ast.Attribute(attr="shape")):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=index):
            return _from_the_front(index)
        case ast.Subscript(slice=ast.Tuple(elts=[first, *_])):  # x[:, None], but not x[..., None]
            return not (isinstance(first, ast.Constant) and first.value is Ellipsis)
    return False


def _from_the_front(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Constant) and type(part.value) is int for part in _unsigned(node))


def _unsigned(node: ast.expr) -> list[ast.expr]:
    """The items of an expression, tuple or slice that carry no minus sign."""
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            pass
        case ast.Slice(lower=lower, upper=upper):
            items = [bound for bound in (lower, upper) if bound is not None]
        case _:
            items = [node]
    return [item for item in items if not (isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub))]
