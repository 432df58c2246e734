"""A kernel file's text in, what in it is not allowed out, each with its line and the reason. Nothing is run.

Denies by default: a name, attribute, import, statement or decorator passes only if `allowed.py` holds it, or if the
file itself binds it. This is evidence that a candidate can't tamper with. It does not say that a kernel is right.
"""

import ast
import builtins

from collections.abc import Collection
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from liger_dev.grading import allowed

_STATEMENTS = (
    ast.FunctionDef, ast.ClassDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.With,
    ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.Expr, ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
# A bug and no danger: what has it is graded all the same.
OVERFLOWS = "offsets in 32 bits"
_BASES = ("torch.autograd.Function", "object")


@dataclass(frozen=True)
class Finding:
    """One thing that is refused. `subject` is what `--allow` takes to accept it."""

    file: str
    line: int
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.subject}: {self.reason}"


def read_files(path: Path, root: Path | None) -> tuple[Finding, ...]:
    """Findings in a kernel file and in the files of its own package that it imports.

    Args:
        root: the folder that holds the package `kernels`; None if the file stands alone.
    """
    found: list[Finding] = []
    waiting, seen = [path], set()
    while waiting:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        text = current.read_text()
        shown = current.relative_to(root).as_posix() if root and current.is_relative_to(root) else current.name
        found += read_text(text, shown)
        waiting += [own for own in _own_files(text, root) if own.is_file()] if root else []
    return tuple(found)


def read_text(text: str, shown: str) -> tuple[Finding, ...]:
    """Findings in one file's text, in the order of lines, each once a line."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return (Finding(shown, error.lineno or 0, "syntax", error.msg),)
    reader = _Reader(tree)
    found = [Finding(shown, line, subject, reason) for line, subject, reason in reader.findings()]
    return tuple(sorted(set(found), key=lambda finding: (finding.line, finding.subject)))


def launched_kernels(text: str) -> tuple[str, ...]:
    """Names of the `@triton.jit` functions that a file defines."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return tuple(node.name for node in functions if is_kernel(node))


def is_kernel(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(item).startswith(("triton.jit", "jit")) for item in node.decorator_list)


def _own_files(text: str, root: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(text)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            if module.startswith(allowed.OWN_PACKAGES):
                yield root / f"{module.replace('.', '/')}.py"


Found = tuple[int, str, str]


class _Reader:
    """Reads one tree; `bound` are the names that the file gives a meaning itself."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.modules = dict(_modules(tree))
        self.bound = _bound(tree)
        self.own_attributes = {
            n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        }
        self.own_attributes |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        self.kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_kernel(node)]
        self.in_kernels = {id(node) for kernel in self.kernels for node in ast.walk(kernel)}
        self.roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self.imported = {
            a.asname or a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
        }
        self.local = dict(_locals(tree))

    def findings(self) -> Iterator[Found]:
        yield from self._module_level()
        for kernel in self.kernels:
            yield from _narrow_offsets(kernel)
        chains: set[int] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
                yield node.lineno, _statement(node), _why(node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from _import(node)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield from self._definition(node)
            elif isinstance(node, ast.Attribute):
                if id(node) not in chains:
                    chains |= (
                        {id(inner) for inner in ast.walk(node.value) if isinstance(inner, ast.Attribute)}
                        if _chain(node)
                        else set()
                    )
                    yield from self._attribute(node)
            elif isinstance(node, ast.Name):
                yield from self._name(node)
            elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
                yield node.lineno, "@", "multiplies matrices with PyTorch's own kernels"
            elif isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
                yield from self._odd(node)

    def _module_level(self) -> Iterator[Found]:
        for node in self.tree.body:
            plain = isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if plain or docstring or (isinstance(node, ast.Assign | ast.AnnAssign) and self._constant(node.value)):
                continue
            yield (
                node.lineno,
                "code at import",
                "runs when the file is imported; only definitions and constants may stand there",
            )

    def _constant(self, value: ast.expr | None) -> bool:
        """A constant that can't remember anything: no list, dictionary or set that a call could fill."""
        if value is None or isinstance(value, ast.Constant | ast.Name | ast.Attribute):
            return True
        if isinstance(value, ast.Tuple):
            return all(self._constant(item) for item in value.elts)
        if isinstance(value, ast.BinOp):
            return self._constant(value.left) and self._constant(value.right)
        if isinstance(value, ast.UnaryOp):
            return self._constant(value.operand)
        if isinstance(value, ast.Call) and ast.unparse(value) == "contextlib.nullcontext()":
            return True  # without an argument it holds nothing
        harmless = ("tl.constexpr", "triton.language.constexpr", "float", "math.log", "math.sqrt")
        return (
            isinstance(value, ast.Call) and ast.unparse(value.func) in harmless and all(map(self._constant, value.args))
        )

    def _definition(self, node: ast.FunctionDef | ast.ClassDef) -> Iterator[Found]:
        for item in node.decorator_list:
            name = ast.unparse(item.func if isinstance(item, ast.Call) else item)
            if name not in allowed.DECORATORS:
                yield item.lineno, f"@{name}", "is no decorator that kernels need"
            elif name in allowed.CACHES and isinstance(node, ast.FunctionDef) and not _without_tensors(node):
                yield (
                    item.lineno,
                    f"@{name}",
                    "remembers results; annotate its arguments with types that hold no tensor",
                )
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and not self._constant(statement.value):
                    yield statement.lineno, "class attribute", "remembers results from call to call"
            for base in node.bases:
                if ast.unparse(base) not in _BASES:
                    yield node.lineno, f"class of {ast.unparse(base)}", "only an autograd.Function may be defined"
        elif any(
            not isinstance(value, ast.Constant | ast.Attribute | ast.Name | ast.UnaryOp | ast.Tuple)
            for value in _defaults(node)
        ):
            yield node.lineno, "default value", "a default that is no constant can remember results from call to call"

    def _attribute(self, node: ast.Attribute) -> Iterator[Found]:
        chain = _chain(node)
        root = chain.partition(".")[0] if chain else ""
        full = f"{self.modules[root]}{chain[len(root) :]}" if root in self.modules else ""
        if isinstance(node.ctx, ast.Store | ast.Del):
            if not isinstance(node.value, ast.Name) or node.value.id not in ("ctx", "self"):
                yield node.lineno, f"{ast.unparse(node)} =", "sets an attribute of something other than ctx"
        elif full.startswith("torch."):
            yield from _listed(node, full, full.removeprefix("torch."), allowed.TORCH)
        elif full.startswith("triton.language"):
            rest = full.removeprefix("triton.language.").split(".")
            if rest[0] in allowed.TL_REFUSED and rest[:2] != ["extra", "libdevice"]:
                yield node.lineno, full, _reason(full)
        elif full.startswith("triton."):
            yield from _listed(node, full, full.removeprefix("triton."), allowed.TRITON)
        elif full:
            if any(part.startswith("_") for part in full.split(".")[1:]):
                yield node.lineno, full, _reason(full)
        elif node.attr.startswith("__") or (
            node.attr not in allowed.ATTRIBUTES | self.own_attributes and id(node) not in self.in_kernels
        ):
            yield node.lineno, f".{node.attr}", _reason(node.attr)

    def _name(self, node: ast.Name) -> Iterator[Found]:
        if not isinstance(node.ctx, ast.Load):
            if node.id in ("ctx", "self") or node.id in self.imported:
                yield node.lineno, f"{node.id} =", "gives a name that the rules rely on another meaning"
        elif node.id in self.imported and id(node) not in self.roots:
            yield node.lineno, f"{node.id} as a value", "hands a module on, out of sight of these rules"
        elif node.id in allowed.BUILTINS or node.id in self.local.get(id(node), ()):
            return
        elif node.id not in self.bound or hasattr(builtins, node.id):
            yield node.lineno, node.id, _reason(node.id)

    def _odd(self, node: ast.expr) -> Iterator[Found]:
        if isinstance(node, ast.Yield) and any(
            "contextmanager" in ast.unparse(d)
            for f in ast.walk(self.tree)
            if isinstance(f, ast.FunctionDef)
            for d in f.decorator_list
        ):
            return
        yield node.lineno, type(node).__name__.lower(), "is nothing that a kernel needs"


def _listed(node: ast.expr, full: str, name: str, names: Collection[str]) -> Iterator[Found]:
    # A value's own attributes may follow a dtype or a device: torch.finfo(...).eps is a call and not seen here.
    if name not in names:
        yield node.lineno, full, _reason(full)


def _reason(name: str) -> str:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in allowed.REASONS:
            return allowed.REASONS[".".join(parts[:end])]
    if name.startswith("torch."):
        return "computes with PyTorch's own kernels, or is nothing that a kernel needs"
    return "is not on the list of what a kernel may use"


def _import(node: ast.Import | ast.ImportFrom) -> Iterator[Found]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in allowed.IMPORTS and not _is_own(alias.name):
                yield node.lineno, f"import {alias.name}", _reason(alias.name)
        return
    module = node.module or ""
    if node.level or (module not in allowed.IMPORTS and not _is_own(module)):
        yield node.lineno, f"import {'.' * node.level}{module}", _reason(module)
        return
    for alias in node.names:
        own = _is_own(module) or f"{module}.{alias.name}" in allowed.IMPORTS
        if alias.name == "*" or (module in allowed.FROM and alias.name not in allowed.FROM[module] and not own):
            yield node.lineno, f"import {module}.{alias.name}", _reason(f"{module}.{alias.name}")


def _is_own(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in allowed.OWN_PACKAGES)


def _modules(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that stand for modules, with the module's own name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _bound(tree: ast.Module) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return frozenset(names)


def _locals(tree: ast.Module) -> Iterator[tuple[int, frozenset[str]]]:
    """For each node in a function, the names that this function or one around it binds."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        inner = list(ast.walk(function))
        names = {node.arg for node in inner if isinstance(node, ast.arg)}
        names |= {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in inner:
            if isinstance(node, ast.Name):
                yield id(node), frozenset(names)


def _defaults(node: ast.FunctionDef) -> list[ast.expr]:
    return [*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)]


def _narrow_offsets(kernel: ast.FunctionDef) -> Iterator[Found]:
    """Products of a program's number in 32 bits, where no number of partial results bounds them."""
    narrow = set(_narrow_names(kernel))
    for statement in (node for node in ast.walk(kernel) if isinstance(node, ast.Assign | ast.Expr | ast.AugAssign)):
        if "int64" in ast.unparse(statement):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                sides = ast.unparse(node.left), ast.unparse(node.right)
                counted = narrow & set(sides) or (
                    "program_id" in "".join(sides) and any(side.isupper() for side in sides)
                )
                if counted:
                    text = f"`{ast.unparse(node)}` overflows beyond 2**31 elements: widen with .to(tl.int64)"
                    yield node.lineno, OVERFLOWS, text


def _narrow_names(kernel: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if "program_id" in ast.unparse(node.value) and "int64" not in ast.unparse(node.value):
                yield node.targets[0].id
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and "program_id" in ast.unparse(node.iter):
            yield node.target.id


def _without_tensors(node: ast.FunctionDef) -> bool:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return all(a.annotation is not None and ast.unparse(a.annotation) in allowed.CACHED_ANNOTATIONS for a in arguments)


def _chain(node: ast.Attribute) -> str:
    """`a.b.c` as written, empty if it does not begin with a name."""
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return ast.unparse(node) if isinstance(value, ast.Name) else ""


def _statement(node: ast.stmt) -> str:
    return {"Try": "try", "TryStar": "try", "Global": "global", "Nonlocal": "nonlocal", "Delete": "del"}.get(
        type(node).__name__, type(node).__name__
    )


def _why(node: ast.stmt) -> str:
    if isinstance(node, ast.Try):
        return "hides a launch that fails, or falls back to something else"
    if isinstance(node, ast.Global | ast.Nonlocal):
        return "remembers results from call to call"
    return "is nothing that a kernel needs"
