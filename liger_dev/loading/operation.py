"""A loaded operation: something that can be called, with the tensors and scalars it takes."""

import importlib.util
import itertools
import sys
import traceback

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.torch_text import Traced

_SERIAL = itertools.count()

Bound = Callable[[dict[str, torch.Tensor]], Any]


@dataclass(frozen=True)
class Place:
    """Where the user's code stands: the file that the child runs, and what the user calls it."""

    shown: str
    path: Path = Path()

    def line(self, error: BaseException) -> str:
        """`op.py:12`, the innermost line of the user's file that an error passed through."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == self.path]
        return f"{self.shown}:{frames[-1].lineno}" if frames else self.shown


@dataclass(frozen=True)
class Operation:
    """A callable of tensors.

    `bind` takes values of scalars (defaults for those left out) and gives a callable of named tensors. `sizes` are
    the axes whose size the operation itself fixes, such as a module's hidden size, `trial` sizes that it runs with where
    it does not with the usual small ones. `graph` is the operation's graph
    where it was cut out of a larger one; others are traced when they are printed.
    """

    bind: Callable[[dict[str, Any]], Bound]
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    place: Place
    summary: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    trial: dict[str, int] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    graph: Traced | None = None


@contextmanager
def users_code(doing: str, place: Place, todo: str = "run it by itself in Python and mend it") -> Iterator[None]:
    """Turns whatever the user's code raises into a BadInput that names its line.

    The broad catch is meant: the code inside is the user's, and may raise anything.
    """
    try:
        yield
    except LigerDevError as error:
        raise type(error)(error.what, error.where or place.line(error), error.todo) from error
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        raise BadInput(
            f"module '{missing}' can't be imported",
            place.line(error),
            f"install {missing.split('.')[0]} or drop the import",
        ) from error
    except (Exception, SystemExit) as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise BadInput(f"{doing}: {type(error).__name__}: {first}", place.line(error), todo) from error


def import_file(text: str, path: Path) -> ModuleType:
    """Writes `text` to `path` and imports it from there: tracing reads source lines, so there has to be a file."""
    path.write_text(text, encoding="utf-8")
    name = f"_liger_dev_source_{path.stem}_{next(_SERIAL)}"  # torch keeps what it knows of a module by its name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
