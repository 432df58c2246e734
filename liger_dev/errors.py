"""Every failure that a user can cause, as one small tree: what went wrong, where, and what to do next."""

from dataclasses import dataclass

PASSED = 0
KERNEL_FAILED = 1
BAD_INPUT = 2
PAUSED = 3
LIMIT_REACHED = 4
INTERRUPTED = 130


@dataclass(eq=False)
class LigerDevError(Exception):
    """An error for the user. `exit_code` is part of the command line's contract.

    Args:
        what: one sentence, what went wrong.
        where: a file and line, a field, a node of the graph; empty if there is no such place.
        todo: what the user can do next.
    """

    what: str
    where: str = ""
    todo: str = ""

    exit_code = BAD_INPUT

    def __str__(self) -> str:
        return "\n".join(
            line
            for line in (
                self.what,
                f"  where: {self.where}" if self.where else "",
                f"  do:    {self.todo}" if self.todo else "",
            )
            if line
        )


class BadInput(LigerDevError):
    """The source, an option or the environment can't be used."""


class Unsupported(BadInput):
    """The compiler can't express an operation; `where` names the node and its source line."""


class ProfileRefused(BadInput):
    """A reviewer's edit of a profile field can't be honoured; `where` names the field."""


class StaleWorkspace(LigerDevError):
    """A file changed on disk between rendering a change set and applying it."""


class HandEdited(BadInput):
    """A generated file was edited by hand and would be overwritten."""


class KernelFailed(LigerDevError):
    """The kernel failed validation."""

    exit_code = KERNEL_FAILED


class ModelFailed(LigerDevError):
    """An agent got no usable answer: no key, a refusal, a rate limit, a cut connection. The transcript is kept."""


class Paused(LigerDevError):
    """The run waits for a review."""

    exit_code = PAUSED


class LimitReached(LigerDevError):
    """A budget of time, steps, tokens or dollars is spent."""

    exit_code = LIMIT_REACHED
