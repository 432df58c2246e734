"""A text that was fetched as a stage: a person sees it before anything of it runs."""

import unicodedata

from typing import Any

from liger_dev.pipeline import Context
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View


def _fetched_inputs(context: Context) -> Any:
    return context.request["source"]


def _fetched(context: Context) -> Any:
    return {key: context.request["source"][key] for key in ("origin", "sha256", "text", "entry")}


def _fetched_views(context: Context, output: Any, brief: bool) -> list[View]:
    entry = output["entry"]
    use = f"'{entry}' is taken from it" if entry else "it is no Python, and an agent reads it as words"
    runs = "nothing of it has run yet; the analyzer imports it in a child process: look for what has no business there"
    about = [
        f"fetched from {output['origin']}",
        f"sha256 {output['sha256']}, {len(output['text'].splitlines())} lines; {use}",
        *([runs] if entry else []),
        "its licence is its author's: see whether it may be used here",
    ]
    return [
        View(output["origin"], visible(output["text"]), "python" if entry else "text"),
        View("What was fetched", "\n".join(about), "text"),
    ]


def visible(text: str) -> str:
    """A text with its control and formatting characters spelled out: they could hide a part of it on a terminal."""
    shown = (
        c
        if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp")
        else c.encode("unicode_escape").decode()
        for c in text.replace("\r\n", "\n")
    )
    return "".join(shown)


FETCHED = Stage("source", "looking at what was fetched", _fetched_inputs, _fetched, _fetched_views, flag="trust_url")
