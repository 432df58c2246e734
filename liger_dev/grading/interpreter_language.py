"""The language and launches of Triton's interpreter: takes its module, mends arguments, loops, operators and grids."""

import ast
import builtins
import contextlib
import functools
import operator
import types
import warnings

from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any


def _scalar(up: ModuleType, value: Any, dtype: Any) -> Any:
    data = up.np.array([value]).astype(up._get_np_dtype(dtype))
    return up.tl.tensor(up.TensorHandle(data, dtype), dtype)


def index_is_faulty(up: ModuleType) -> bool:
    scope = up._LangPatchScope()
    up._patch_lang_tensor(up.tl.tensor, scope)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return operator.index(_scalar(up, 3, up.tl.int32)) != 3
    except (TypeError, DeprecationWarning):
        return True
    finally:
        scope.restore()


def mend_index(up: ModuleType) -> None:
    original = up._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    up._patch_lang_tensor = patch  # type: ignore[attr-defined]


def bool_is_faulty(up: ModuleType) -> bool:
    try:
        return up._implicit_cvt(True).dtype != up.tl.int1  # type: ignore[no-any-return]
    except ValueError:
        return True


def mend_argument(up: ModuleType, kind: type, dtype: Any) -> None:
    original = up._implicit_cvt

    def convert(arg: Any) -> Any:
        return _scalar(up, arg, dtype) if isinstance(arg, kind) else original(arg)

    up._implicit_cvt = convert  # type: ignore[attr-defined]


class _Loops(ast.NodeTransformer):
    """`for i in range(n)` -> `for i in _loop_values(n)`; `tl.static_range` keeps Python integers, as on a GPU."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        call = node.iter
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) == "range":
            call.func = ast.copy_location(ast.Name("_loop_values", ast.Load()), call.func)
        return node


class _Operators(ast.NodeTransformer):
    """`and`, `or`, `not`, `min` and `max` -> calls that take blocks element by element, as the compiler does."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
            return node
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        name = "_block_and" if isinstance(node.op, ast.And) else "_block_or"
        return self._call(name, [ast.Lambda(args=nothing, body=value) for value in node.values], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("_block_not", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            # The name may be a kernel's own, or triton.language's max: what it means is looked up at the call.
            return self._call("_block_extreme", [node.func, *node.args], node, node.keywords)
        return node

    @staticmethod
    def _call(name: str, args: list[Any], node: ast.AST, keywords: list[ast.keyword] | None = None) -> ast.AST:
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), args, keywords or []), node)


@dataclass(frozen=True)
class _Then:
    """Two syntax tree transformers, one after the other, with the interface that the interpreter calls."""

    first: Any
    second: Any

    def visit(self, tree: ast.AST) -> ast.AST:
        rewritten: ast.AST = self.second.visit(self.first.visit(tree))
        return rewritten


def _rewrite_first(up: ModuleType, transformer: ast.NodeTransformer) -> None:
    up.FunctionRewriter.ast_transformer = _Then(transformer, up.FunctionRewriter.ast_transformer)


def loops_are_faulty(up: ModuleType) -> bool:
    scope = up._LangPatchScope()
    up._patch_lang_core(up.tl, scope)
    try:
        return type(next(iter(up.tl.range(0, 2)))) is int
    finally:
        scope.restore()


def mend_loops(up: ModuleType) -> None:
    tl = up.tl

    def is_wide(bound: Any) -> bool:
        if isinstance(bound, tl.tensor):
            return bool(bound.dtype.primitive_bitwidth > 32)
        return not -(2**31) <= operator.index(bound) < 2**31

    def loop_values(arg1: Any, arg2: Any = None, step: Any = 1, **options: Any) -> Iterator[Any]:
        bounds = (0, arg1, step) if arg2 is None else (arg1, arg2, step)
        dtype = tl.int64 if any(is_wide(bound) for bound in bounds) else tl.int32
        for value in range(*(operator.index(bound) for bound in bounds)):
            yield _scalar(up, value, dtype)

    # The interpreter copies its own globals into those of each kernel that it rewrites.
    up._loop_values = loop_values  # type: ignore[attr-defined]
    _rewrite_first(up, _Loops())


def operators_are_faulty(up: ModuleType) -> bool:
    tree = up.FunctionRewriter.ast_transformer.visit(ast.parse("def f(a, b):\n    return a and b\n"))
    return any(isinstance(node, ast.BoolOp) for node in ast.walk(tree))


def mend_operators(up: ModuleType) -> None:
    tl = up.tl

    def decide(method: str, ends_at: bool, *values: Callable[[], Any]) -> Any:
        tensors, last = [], None
        for evaluate in values:
            last = evaluate()
            if isinstance(last, tl.tensor):
                tensors.append(last)
            elif bool(last) is ends_at:
                return last
        return functools.reduce(lambda a, b: getattr(a, method)(b), tensors) if tensors else last

    def extreme(named: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        elementwise = {builtins.min: "minimum", builtins.max: "maximum"}.get(named)
        if elementwise is None or not any(isinstance(arg, tl.tensor) for arg in args):
            return named(*args, **kwargs)
        return functools.reduce(functools.partial(getattr(tl, elementwise), **kwargs), args)

    def negate(value: Any) -> Any:
        return value == 0 if isinstance(value, tl.tensor) else not value

    up._block_and = functools.partial(decide, "logical_and", False)  # type: ignore[attr-defined]
    up._block_or = functools.partial(decide, "logical_or", True)  # type: ignore[attr-defined]
    up._block_not = negate  # type: ignore[attr-defined]
    up._block_extreme = extreme  # type: ignore[attr-defined]
    _rewrite_first(up, _Operators())


def around_launches(up: ModuleType, context: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
    original = up.GridExecutor.__call__

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        with context():
            return original(self, *args, **kwargs)

    up.GridExecutor.__call__ = launch


def warns(up: ModuleType) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            up.interpreter_builder.create_exp(_scalar(up, 1000.0, up.tl.float32).handle)
        except RuntimeWarning:
            return True
    return False


def _empty_kernel(up: ModuleType) -> Callable[[], None]:
    scope: dict[str, Any] = {"tl": up.tl}
    exec("def nothing():\n    pass\n", scope)
    kernel: Callable[[], None] = scope["nothing"]
    return kernel


def list_grid_is_faulty(up: ModuleType) -> bool:
    try:
        up.GridExecutor(_empty_kernel(up), [], [1])()
    except TypeError:
        return True
    return False


def mend_list_grid(up: ModuleType) -> None:
    original = up.GridExecutor.__init__

    def initialise(self: Any, fn: Any, arg_names: Any, grid: Any, *rest: Any) -> None:
        as_tuple = (lambda args: tuple(grid(args))) if callable(grid) else tuple(grid)
        original(self, fn, arg_names, as_tuple, *rest)

    up.GridExecutor.__init__ = initialise


def leaks(up: ModuleType) -> bool:
    """Whether a call of a device function patches the language and does not put it back."""
    restored: list[bool] = []
    original = up._patch_lang
    up._patch_lang = lambda fn: types.SimpleNamespace(restore=lambda: restored.append(True))  # type: ignore[attr-defined]
    try:
        up.InterpretedFunction(_empty_kernel(up))()
    finally:
        up._patch_lang = original  # type: ignore[attr-defined]
    return not restored


def mend_leak(up: ModuleType) -> None:
    original = up._patch_lang
    everything = types.SimpleNamespace(__globals__={"tl": up.tl, "core": up.tl.core})
    launches: list[Any] = []

    def patch(fn: Any) -> Any:
        return up._LangPatchScope() if launches else original(fn)

    @contextlib.contextmanager
    def patched_once() -> Iterator[None]:
        scope = patch(everything)
        launches.append(scope)
        try:
            yield
        finally:
            launches.pop()
            scope.restore()

    up._patch_lang = patch  # type: ignore[attr-defined]
    around_launches(up, patched_once)
