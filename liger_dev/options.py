"""The arguments and options that commands share, each declared once; and records of those that come together.

A command takes such a record as one parameter, and `spread` gives it the record's fields as options.
"""

import inspect

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import fields
from dataclasses import is_dataclass
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated
from typing import Any
from typing import get_type_hints

import typer

from liger_dev.errors import BadInput


class Engine(str, Enum):
    """Who fills the agents' seats."""

    auto = "auto"
    builtin = "builtin"
    claude = "claude"


class Dtype(str, Enum):
    """What kernels are measured with."""

    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The operation's name, such as rms_norm.")]
NameOrWords = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The operation's name, such as rms_norm; or its description, for an agent."),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")]
RootDir = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The workspace. [default: found upwards]")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="FILE.py[:NAME], MODULE:NAME, an expression, https://…/FILE.py[:NAME], - (standard input), or words "
        "(agents only); else the catalogue.",
    ),
]
Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="x=B,T,H", help="A tensor's axes; repeatable.")]
Init = Annotated[list[str] | None, typer.Option("--init", metavar="k=v", help="A module's init argument; repeatable.")]
StageName = Annotated[str, typer.Option("--stage", metavar="STAGE", help="source, analyze, generate or validate.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.")]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", metavar="DOLLARS", help="What a run's agents may cost at most.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", "--force", help="Also replace generated files that were edited by hand.")
]


@dataclass(frozen=True)
class SourceOptions:
    """Where an operation comes from, and what its text leaves open."""

    source: From = None
    shape: Shape = None
    init: Init = None
    part: Annotated[int, typer.Option("--part", metavar="N", min=0, help="Which part to cut out of a module.")] = 0
    trust_url: Annotated[
        bool, typer.Option("--trust-url", help="Run a text from a URL before a person has seen it.")
    ] = False


@dataclass(frozen=True)
class ReviewOptions:
    """Who reviews."""

    yes: Annotated[bool, typer.Option("--yes", help="Approve all reviews; the report says so.")] = False
    pause: Annotated[bool, typer.Option("--pause", help="Stop with exit code 3 at the first review.")] = False

    @property
    def mode(self) -> str:
        """`yes`, `pause` or `ask`. Raises BadInput where both are given."""
        if self.yes and self.pause:
            raise BadInput("--yes and --pause exclude each other", "", "give one of them")
        return "yes" if self.yes else "pause" if self.pause else "ask"


@dataclass(frozen=True)
class ValidateOptions:
    """What a validation leaves out or takes in."""

    no_benchmark: Annotated[bool, typer.Option("--no-benchmark", help="Leave the benchmark out.")] = False
    ncu: Annotated[bool, typer.Option("--ncu", help="Profile with ncu.")] = False
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="NAME:METRIC", help="Accept that speed or memory is catastrophically worse."),
    ] = None

    def to_request(self) -> dict[str, Any]:
        """Raises BadInput for an acceptance that names no kernel or no metric."""
        for text in self.accept or ():
            name, _, metric = text.partition(":")
            if not name or metric not in ("speed", "memory"):
                raise BadInput(f"'{text}' accepts nothing", "--accept", "write NAME:speed or NAME:memory")
        return {"benchmark": not self.no_benchmark, "ncu": self.ncu, "accept": list(self.accept or ())}


@dataclass(frozen=True)
class AgentOptions:
    """Who works on a stage, and what it may cost."""

    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="builtin: the compiler, no key; claude: agents; auto: agents where builtin can't and a key is.",
        ),
    ] = Engine.auto
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="The agents' model. [default: claude-opus-5-5]")
    ] = ""
    max_cost: MaxCost = None

    def to_request(self) -> dict[str, Any]:
        """Refuses a budget that can't be kept and a missing key before anything begins."""
        if self.max_cost is not None or self.engine is Engine.claude:
            from liger_dev.agents import seat

            seat.check_budget(seat.model_of({"model": self.model}), self.max_cost)
            seat.check_key(self.engine.value)
        return {"engine": self.engine.value, "model": self.model, "max_cost": self.max_cost}


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: in place of each parameter that is a record, the record's fields.

    A record's fields take their defaults from the parameter's own default, if it has one.
    """
    # Not get_type_hints: before Python 3.11 it hides the hint of what is None by default in an Optional.
    given_parameters = inspect.signature(command, eval_str=True).parameters
    records: dict[str, Any] = {n: p.annotation for n, p in given_parameters.items() if is_dataclass(p.annotation)}
    parameters = []
    for name, parameter in given_parameters.items():
        if name not in records:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        given = records[name]() if parameter.default is parameter.empty else parameter.default
        for field, hint in get_type_hints(records[name], include_extras=True).items():
            default = getattr(given, field)
            parameters.append(inspect.Parameter(field, parameter.KEYWORD_ONLY, default=default, annotation=hint))

    @wraps(command)
    def spread_out(**values: Any) -> None:
        made = {
            name: record(**{field.name: values.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        command(**values, **made)

    vars(spread_out)["__signature__"] = inspect.Signature(parameters)
    spread_out.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread_out
