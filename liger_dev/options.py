"""The arguments and options that commands share, each declared once."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Engine(str, Enum):
    """Who fills the agents' seats."""

    auto = "auto"
    builtin = "builtin"
    claude = "claude"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The operation's name, such as rms_norm.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")]
RootDir = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The workspace. [default: found upwards]")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="FILE.py[:NAME], MODULE:NAME, an expression, https://…/FILE.py[:NAME] or - (standard input); "
        "else the catalogue.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Approve all reviews; the report says so.")]
Pause = Annotated[bool, typer.Option("--pause", help="Stop with exit code 3 at the first review.")]
StageName = Annotated[str, typer.Option("--stage", metavar="STAGE", help="source, analyze, generate or validate.")]
NoBenchmark = Annotated[bool, typer.Option("--no-benchmark", help="Leave the benchmark out.")]
Ncu = Annotated[bool, typer.Option("--ncu", help="Profile with ncu.")]
Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="x=B,T,H", help="A tensor's axes; repeatable.")]
Init = Annotated[list[str] | None, typer.Option("--init", metavar="k=v", help="A module's init argument; repeatable.")]
Part = Annotated[int, typer.Option("--part", metavar="N", min=0, help="Which part to cut out of a module.")]
TrustUrl = Annotated[bool, typer.Option("--trust-url", help="Run a text from a URL before a person has seen it.")]
EngineName = Annotated[
    Engine,
    typer.Option(
        "--engine", help="builtin: the compiler, no key; claude: agents; auto: agents where builtin can't and a key is."
    ),
]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="The agents' model. [default: claude-opus-5-5]")]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", metavar="DOLLARS", help="What a run's agents may cost at most.")
]
Transcript = Annotated[bool, typer.Option("--transcript", help="What the run's agents said and did, and the cost.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", "--force", help="Also replace generated files that were edited by hand.")
]
