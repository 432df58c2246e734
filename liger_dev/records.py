"""The values that stages hand to each other. All are frozen: a stage takes some and returns new ones."""

import base64
import hashlib
import json

from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from typing import Any


def digest(value: Any) -> str:
    """The sha256 of a value's canonical JSON (or of a string's UTF-8 bytes): the address of stage outputs."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Tensor:
    """A tensor argument of a reference.

    `shape` holds one axis name a dimension (`("B", "T", "H")`), or a number for a fixed size. `dtype` is
    `"float"` (float32, bfloat16 and float16), `"int"` or `"bool"`. `init` is how a module initialises it
    (`"ones"`, `"zeros"`, `"normal"`, `"full(0.5)"`), empty for inputs that are no parameters. `range` is the axis
    whose size an index stays below, empty if the tensor holds no indices.
    """

    name: str
    shape: tuple[str | int, ...]
    dtype: str = "float"
    optional: bool = False
    init: str = ""
    range: str = ""

    @property
    def is_mask(self) -> bool:
        """Whether it holds 0 and 1, as far as its name says: no reference tells what integers that pick nothing mean."""
        return "mask" in self.name


@dataclass(frozen=True)
class Scalar:
    """A Python number, flag or string argument of a reference, with its default (None: it has none).

    `choices` are the values that it may take, the default first, where each one gets kernels of its own; empty if it
    is an argument of the kernels.
    """

    name: str
    type: str
    default: Any = None
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Source:
    """What the user named, before anything of it ran.

    `kind` is `"function"` (`text` is a whole Python file, `entry` a function or class in it), `"expression"`
    (`text` is the expression) or `"import"` (`entry` is `module:qualname`, `text` is empty). `part` picks one of the
    parts that can be cut out of a module with linear layers, counted from 1; 0 picks the only one. `sha256` is the
    digest of a text that was fetched from a URL, empty for others.
    """

    kind: str
    text: str
    entry: str
    origin: str
    shapes: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    init: dict[str, Any] = field(default_factory=dict)
    part: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Reference:
    """A standalone PyTorch function: the correctness baseline, and all that the compiler reads.

    `text` is a file that depends on torch alone and defines the function `name`, whose parameters are `tensors`
    in order and then `scalars`. `outputs` names what it returns.
    """

    name: str
    text: str
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    origin: str
    summary: str = ""
    assumptions: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Reference":
        tensors = tuple(Tensor(**{**t, "shape": tuple(t["shape"])}) for t in data["tensors"])
        scalars = tuple(Scalar(**{**s, "choices": tuple(s.get("choices", ()))}) for s in data["scalars"])
        return cls(**{**data, "tensors": tensors, "scalars": scalars, "assumptions": tuple(data["assumptions"])})


@dataclass(frozen=True)
class Change:
    """One file of a change set. `base` is the sha256 of what was on disk when it was rendered ("" = no file).

    `content` is the file's text, or its bytes in base64 if `binary` (plots).
    """

    path: str
    content: str
    base: str
    binary: bool = False

    def data(self) -> bytes:
        return base64.b64decode(self.content, validate=True) if self.binary else self.content.encode()


@dataclass(frozen=True)
class ChangeSet:
    """All files that one stage wants written, in the order in which they are put in place (exports last).

    `said` is what the reviewer is told of them: by an agent, or about the contest of two kernels.
    """

    changes: tuple[Change, ...]
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ChangeSet":
        return cls(tuple(Change(**change) for change in data["changes"]), data.get("said", ""))
