"""A model's name and the tokens of an answer in, dollars out; None where no price is known."""

import re

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens. `write` is what it costs to put input into the cache for five minutes."""

    input: float
    output: float
    write: float
    read: float


# Anthropic's list prices as read on 2026-11-30 in platform.claude.com/docs/en/about-claude/pricing and the models' own
# pages. Where a price has tiers or two pages differ, the higher figure stands: a budget must not be overrun.
PRICES = {
    "claude-fable-5-1": Price(10.0, 50.0, 12.5, 0.25),
    "claude-fable-5": Price(10.0, 50.0, 12.5, 1.0),
    "claude-opus-5-5": Price(4.0, 20.0, 5.0, 0.2),
    "claude-opus-5": Price(5.0, 25.0, 6.25, 0.5),
    "claude-opus-4-8": Price(5.0, 25.0, 6.25, 0.5),
    "claude-opus-4-7": Price(5.0, 25.0, 6.25, 0.5),
    "claude-opus-4-6": Price(5.0, 25.0, 6.25, 0.5),
    "claude-opus-4-5": Price(5.0, 25.0, 6.25, 0.5),
    "claude-sonnet-5-5": Price(2.0, 10.0, 2.5, 0.2),
    "claude-sonnet-5": Price(2.0, 10.0, 2.5, 0.2),
    "claude-sonnet-4-6": Price(3.0, 15.0, 3.75, 0.3),
    "claude-sonnet-4-5": Price(3.0, 15.0, 3.75, 0.3),
    "claude-haiku-5-5": Price(0.5, 2.5, 0.625, 0.05),
    "claude-haiku-4-5": Price(1.0, 5.0, 1.25, 0.1),
}


def price_of(model: str) -> Price | None:
    """The price of a model; a dated name (`…-20251101`) has its model's."""
    return PRICES.get(re.sub(r"-\d{8}$", "", model))


def tokens_of(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Input tokens (read, cached and written) and output tokens of an answer's usage."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(int(usage.get(name) or 0) for name in names), int(usage.get("output_tokens") or 0)


def dollars_of(model: str, usage: Mapping[str, Any]) -> float | None:
    """What an answer cost; None if the model's price is not known."""
    price = price_of(model)
    if price is None:
        return None
    parts = (
        (price.input, "input_tokens"),
        (price.write, "cache_creation_input_tokens"),
        (price.read, "cache_read_input_tokens"),
        (price.output, "output_tokens"),
    )
    return sum(rate * int(usage.get(name) or 0) for rate, name in parts) / 1e6
