"""A request of the loop in, the model's message as JSON out: the one place that talks to Anthropic's API, by its SDK.

The SDK does retries, streaming, token counts and the API's types. None of this has been tried against a live model:
the tests run it over HTTP against a server of their own that speaks the Messages API.
"""

import os

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2

from liger_dev.agents.seat import DEFAULT_MODEL
from liger_dev.agents.seat import KEY
from liger_dev.agents.seat import check_key
from liger_dev.errors import BadInput
from liger_dev.errors import ModelFailed

# The SDK waits as `retry-after` says, else up to 8 s. A stream that breaks is not retried by it, but here.
RETRIES = 4
CUTS = 2
_TIMEOUT = 600.0
_RESUME = "go on later, nothing is lost: liger-dev resume RUN"

# The server takes old tool results out of what the model reads; the transcript and what is sent stay whole, as a
# conversation with thinking in it may not be edited.
_CLEARING_HEADER = "context-management-2025-06-27"
_CLEARING = {
    "edits": [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 100_000},
            "keep": {"type": "tool_uses", "value": 8},
        }
    ]
}


@dataclass(frozen=True)
class _Abilities:
    """What the models list says of a model; the defaults are for a server without such a list."""

    strict: bool = False
    clears: bool = False
    longest: int = 0


class Claude:
    """A client for one model, at ANTHROPIC_BASE_URL or Anthropic's own address, with the key in ANTHROPIC_API_KEY.

    Raises:
        ModelFailed: there is no key.
        BadInput: the server has no such model; the message names those that it has.
    """

    def __init__(self, model: str = DEFAULT_MODEL, say: Callable[[str], None] = lambda line: None) -> None:
        check_key("claude")
        self.model = model
        self._say = say
        self._client = anthropic.Anthropic(api_key=os.environ[KEY], max_retries=RETRIES, timeout=_TIMEOUT)
        self._known: _Abilities | None = None

    def close(self) -> None:
        """Gives the connections back."""
        self._client.close()

    def count(self, request: dict[str, Any]) -> int:
        """The input tokens of a request, as the API counts them."""
        with _explained(self.model):
            return int(
                self._client.messages.count_tokens(
                    model=self.model,
                    system=request["system"],
                    tools=request["tools"],
                    messages=request["messages"],
                ).input_tokens
            )

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The model's message, streamed, so that a long one does not run into a timeout. A cut stream is asked again.

        What was streamed before a cut is billed, and not in the usage that the run adds up.
        """
        for cut in range(CUTS + 1):
            try:
                with _explained(self.model):
                    return self._stream(request)
            except _Cut as error:
                if cut == CUTS:
                    raise ModelFailed(f"the answer was cut off {cut + 1} times: {error}", "", _RESUME) from None
                self._say("an answer did not arrive whole; asking again")
        raise AssertionError("the last try returns or raises")

    def _stream(self, request: dict[str, Any]) -> dict[str, Any]:
        able = self._abilities()
        options: dict[str, Any] = {}
        if able.clears:
            options = {"betas": [_CLEARING_HEADER], "context_management": _CLEARING}
        stream = self._client.beta.messages.stream(
            model=self.model,
            max_tokens=min(request["max_tokens"], able.longest or request["max_tokens"]),
            system=request["system"],
            tools=[_strict(tool) for tool in request["tools"]] if able.strict else request["tools"],
            messages=request["messages"],
            cache_control={"type": "ephemeral"},
            **options,
        )
        with stream as events:
            try:
                message = events.get_final_message()
            except ValueError as error:  # the SDK's word for a tool's input that is no JSON
                raise _Cut(str(error)) from None
            except AssertionError:  # and for a stream that ended before its first event
                raise _Cut("the stream ended before the answer began") from None
        if message.stop_reason is None:
            raise _Cut("the stream ended before the answer did")
        return dict(message.model_dump(mode="json", exclude_none=True, exclude={"context_management", "container"}))

    def _abilities(self) -> _Abilities:
        if self._known is None:
            self._known = self._look_up()
        return self._known

    def _look_up(self) -> _Abilities:
        try:
            info = self._client.models.retrieve(self.model)
        except anthropic.NotFoundError:
            return self._without_entry()
        able = info.capabilities
        if able is None:
            return _Abilities(longest=info.max_tokens or 0)
        clears = able.context_management.supported
        return _Abilities(able.structured_outputs.supported, clears, info.max_tokens or 0)

    def _without_entry(self) -> _Abilities:
        """A gateway may have no models list, and then says nothing of the model; one that has a list must name it."""
        try:
            names = [info.id for info in self._client.models.list(limit=100)]
        except anthropic.NotFoundError:
            return _Abilities()
        raise BadInput(f"the server has no model '{self.model}'", "--model", f"it has {', '.join(names)}")


def _strict(tool: dict[str, Any]) -> Any:
    """A tool whose arguments the API holds to the schema, in that part of JSON schema which it can hold to."""
    return {**tool, "strict": True, "input_schema": anthropic.transform_schema(tool["input_schema"])}


class _Cut(Exception):
    """An answer that did not arrive whole."""


# The first row that fits; an error within a stream has the status 200, so its type is looked at too.
_STATUSES: tuple[tuple[tuple[int, ...], str, str, str], ...] = (
    ((401, 403), "authentication_error", "the server refused the key", f"check {KEY}, and what it may be used for; then liger-dev resume RUN"),
    ((402,), "billing_error", "the account has no credit", "add credit, then liger-dev resume RUN"),
    ((429,), "rate_limit_error", f"the rate limit holds on after {RETRIES} retries", _RESUME),
    ((529, 503), "overloaded_error", f"the server is overloaded, also after {RETRIES} retries", _RESUME),
    ((413,), "request_too_large", "the conversation is too large for the server", "start a new run"),
    ((404,), "not_found_error", "the server does not know the model or the address", "check --model and ANTHROPIC_BASE_URL; then liger-dev resume RUN"),
    ((400, 422), "invalid_request_error", "the server does not take the request", "report it; a new run may help"),
)  # fmt: skip


@contextmanager
def _explained(model: str) -> Iterator[None]:
    """Turns the SDK's errors into ModelFailed; its own messages carry no key."""
    try:
        yield
    except anthropic.APIStatusError as error:
        said = (error.api_message or error.message or "").strip()
        for statuses, kind, what, todo in _STATUSES:
            if error.status_code in statuses or error.type == kind:
                raise ModelFailed(f"{what}: {said}", model, todo) from None
        raise ModelFailed(f"the server failed with status {error.status_code}: {said}", model, _RESUME) from None
    except anthropic.APITimeoutError:
        raise ModelFailed(f"the server did not answer within {_TIMEOUT:g} s", model, _RESUME) from None
    except anthropic.APIConnectionError as error:
        reason = str(error.__cause__ or error)
        raise ModelFailed(f"the server can't be reached: {reason}", model, f"check the network; {_RESUME}") from None
    except httpx2.HTTPError as error:
        raise _Cut(str(error) or type(error).__name__) from None
