"""Mends for Triton's interpreter: `install()` applies those that the installed Triton needs and returns their names.

For tests and the grader alone. A mend is applied only if a probe of behaviour shows its fault, so that a Triton that
mended it itself is left alone. Call `install()` before kernels are imported: `from libdevice import tanh` binds early.
"""

import ast
import builtins
import contextlib
import functools
import importlib
import operator
import os
import types
import warnings

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from liger_dev.grading import interpreter_libdevice as libdevice
from liger_dev.grading import interpreter_numbers as numbers


@dataclass(frozen=True)
class Mend:
    """One fault of the interpreter. `seen_in` names the Triton versions in which the probe found it.

    `is_faulty` and `apply` take the module `triton.runtime.interpreter`.
    """

    name: str
    fault: str
    seen_in: str
    is_faulty: Callable[[ModuleType], bool]
    apply: Callable[[ModuleType], None]


def install(leave_out: Collection[str] = ()) -> tuple[str, ...]:
    """Applies the mends that are needed, once a process, and returns their names; () unless TRITON_INTERPRET is set.

    `leave_out` names mends to skip: a test uses it to show that a kernel fails without one.
    """
    if os.environ.get("TRITON_INTERPRET", "").lower() not in ("1", "true", "yes", "on", "y"):
        return ()
    up = importlib.import_module("triton.runtime.interpreter")
    if not hasattr(up, "_mended"):
        wanted = [mend for mend in MENDS if mend.name not in leave_out]
        needed = [mend for mend in wanted if mend.is_faulty(up)]
        for mend in needed:
            mend.apply(up)
        up._mended = tuple(mend.name for mend in needed)  # type: ignore[attr-defined]
    names: tuple[str, ...] = up._mended
    return names


def _scalar(up: ModuleType, value: Any, dtype: Any) -> Any:
    data = up.np.array([value]).astype(up._get_np_dtype(dtype))
    return up.tl.tensor(up.TensorHandle(data, dtype), dtype)


def _index_is_faulty(up: ModuleType) -> bool:
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


def _mend_index(up: ModuleType) -> None:
    original = up._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    up._patch_lang_tensor = patch  # type: ignore[attr-defined]


def _bool_is_faulty(up: ModuleType) -> bool:
    try:
        return up._implicit_cvt(True).dtype != up.tl.int1  # type: ignore[no-any-return]
    except ValueError:
        return True


def _mend_argument(up: ModuleType, kind: type, dtype: Any) -> None:
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


def _loops_are_faulty(up: ModuleType) -> bool:
    scope = up._LangPatchScope()
    up._patch_lang_core(up.tl, scope)
    try:
        return type(next(iter(up.tl.range(0, 2)))) is int
    finally:
        scope.restore()


def _mend_loops(up: ModuleType) -> None:
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


def _operators_are_faulty(up: ModuleType) -> bool:
    tree = up.FunctionRewriter.ast_transformer.visit(ast.parse("def f(a, b):\n    return a and b\n"))
    return any(isinstance(node, ast.BoolOp) for node in ast.walk(tree))


def _mend_operators(up: ModuleType) -> None:
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


def _around_launches(up: ModuleType, context: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
    original = up.GridExecutor.__call__

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        with context():
            return original(self, *args, **kwargs)

    up.GridExecutor.__call__ = launch


def _warns(up: ModuleType) -> bool:
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


def _list_grid_is_faulty(up: ModuleType) -> bool:
    try:
        up.GridExecutor(_empty_kernel(up), [], [1])()
    except TypeError:
        return True
    return False


def _mend_list_grid(up: ModuleType) -> None:
    original = up.GridExecutor.__init__

    def initialise(self: Any, fn: Any, arg_names: Any, grid: Any, *rest: Any) -> None:
        as_tuple = (lambda args: tuple(grid(args))) if callable(grid) else tuple(grid)
        original(self, fn, arg_names, as_tuple, *rest)

    up.GridExecutor.__init__ = initialise


def _leaks(up: ModuleType) -> bool:
    """Whether a call of a device function patches the language and does not put it back."""
    restored: list[bool] = []
    original = up._patch_lang
    up._patch_lang = lambda fn: types.SimpleNamespace(restore=lambda: restored.append(True))  # type: ignore[attr-defined]
    try:
        up.InterpretedFunction(_empty_kernel(up))()
    finally:
        up._patch_lang = original  # type: ignore[attr-defined]
    return not restored


def _mend_leak(up: ModuleType) -> None:
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
    _around_launches(up, patched_once)


MENDS = (
    Mend(
        "scalar_index",
        "range(n) with a runtime n converts a one-element array to an int, which numpy 2.4 refuses (before: warns)",
        "3.6.0",
        _index_is_faulty,
        _mend_index,
    ),
    Mend(
        "bool_argument",
        "a Python bool argument is stored as int32 under a one-bit type and rejected",
        "3.6.0",
        _bool_is_faulty,
        lambda up: _mend_argument(up, bool, up.tl.int1),
    ),
    Mend(
        "float_argument",
        "a Python float argument stays a float64 Python number, while a launch on a GPU passes a float32 scalar",
        "3.6.0 to 3.9.0",
        lambda up: isinstance(up._implicit_cvt(1.5), float),
        lambda up: _mend_argument(up, float, up.tl.float32),
    ),
    Mend(
        "loop_variable",
        "the variable of a for loop is a Python int: it has no .to() and never overflows int32",
        "3.6.0 to 3.9.0",
        _loops_are_faulty,
        _mend_loops,
    ),
    Mend(
        "python_operators",
        "and, or, not, min and max on blocks look at one truth value instead of every element",
        "3.6.0 to 3.9.0",
        _operators_are_faulty,
        _mend_operators,
    ),
    Mend(
        "nan_rules",
        "tl.maximum, tl.minimum and tl.clamp give NaN where a GPU gives the other operand",
        "3.6.0",
        numbers.nan_rules_are_faulty,
        numbers.mend_nan_rules,
    ),
    Mend(
        "fma",
        "tl.fma rounds twice",
        "3.6.0",
        numbers.fma_is_faulty,
        numbers.mend_fma,
    ),
    Mend(
        "bf16_conversion",
        "float32 to bfloat16 truncates, integers and float64 become wrong bits, constants are refused",
        "3.6.0 to 3.9.0",
        numbers.conversion_is_faulty,
        numbers.mend_conversion,
    ),
    Mend(
        "bf16_arithmetic",
        "arithmetic and comparisons on bfloat16 work on the bits as integers",
        "3.6.0 to 3.9.0",
        numbers.arithmetic_is_faulty,
        numbers.mend_arithmetic,
    ),
    Mend(
        "bf16_dot",
        "tl.dot multiplies the bits of bfloat16 operands as integers",
        "3.6.0 to 3.9.0",
        numbers.dot_is_faulty,
        numbers.mend_dot,
    ),
    Mend(
        "bf16_atomics",
        "tl.atomic_add and tl.atomic_xchg on bfloat16 are refused",
        "3.6.0 to 3.9.0",
        numbers.atomics_are_faulty,
        numbers.mend_atomics,
    ),
    Mend(
        "half_sums",
        "tl.sum adds the bits of bfloat16, and hides the rounding of float16 partial sums",
        "3.6.0 to 3.9.0",
        numbers.sums_are_faulty,
        numbers.mend_sums,
    ),
    Mend(
        "integer_sums",
        "a sum that leaves int32 raises, where a GPU wraps around",
        "3.6.0",
        numbers.integer_sums_are_faulty,
        numbers.mend_integer_sums,
    ),
    Mend(
        "float_warnings",
        "overflow, division by zero and invalid operands raise numpy warnings, which are errors in a strict test run",
        "3.6.0 to 3.9.0",
        _warns,
        lambda up: _around_launches(up, lambda: up.np.errstate(all="ignore")),
    ),
    Mend(
        "all_nan",
        "tl.max and tl.min of a row of NaN raise a numpy warning",
        "3.6.0 to 3.9.0",
        _warns,
        numbers.mend_all_nan,
    ),
    Mend(
        "libdevice",
        "libdevice functions return None or raise",
        "3.6.0 to 3.9.0",
        libdevice.is_faulty,
        libdevice.mend,
    ),
    Mend(
        "list_grid",
        "a grid given as a list is refused",
        "3.6.0 to 3.9.0",
        _list_grid_is_faulty,
        _mend_list_grid,
    ),
    Mend(
        "language_leak",
        "a device function patches triton.language anew at each call and leaves it patched after the launch",
        "3.6.0 to 3.9.0",
        _leaks,
        _mend_leak,
    ),
)
