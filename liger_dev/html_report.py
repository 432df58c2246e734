"""A Results report in Markdown, its pictures and the kernel's files in; one HTML file that needs nothing else out."""

import re

from collections.abc import Iterator
from collections.abc import Mapping

from liger_dev import render

TEMPLATE = "benchmark/results/{{ operation_name }}.html.jinja"
_HEAD = re.compile(r"# Results: .*\n+\*\*(PASSED|FAILED)\*\*: (.*)\n")


def html_report(name: str, markdown: str, pictures: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """The report as a page of its own.

    Args:
        pictures: PNG files in base64, by their path in the workspace, which the report refers to.
        texts: what stands folded at its end, by title: the diff, the profile, the reference, the kernel.
    """
    head = _HEAD.match(markdown)
    assert head, "a report begins with its title and its verdict"
    body, sections = _with_anchors(_html(markdown[head.end() :]))
    values = {
        "operation_name": name,
        "passed": head[1] == "PASSED",
        "verdict": _html(head[2]).strip().removeprefix("<p>").removesuffix("</p>"),
        "sections": [*sections, ("files", "Files")],
        "body": _with_pictures(body, pictures),
        "texts": [(title, list(_marked(title, text))) for title, text in texts.items()],
    }
    return render.render(TEMPLATE, values)


def _html(markdown: str) -> str:
    # Of rich's own requirements: rich shows the same text on a terminal with it.
    from markdown_it import MarkdownIt

    # A report quotes what tests and kernels print: none of it may become a tag, but for the line breaks of a table.
    html: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    html = html.replace("&lt;br&gt;", "<br>")
    return html.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")


def _with_anchors(html: str) -> tuple[str, list[tuple[str, str]]]:
    """The page's sections get a name each, for the links at its top."""
    sections = []

    def anchor(match: re.Match[str]) -> str:
        name = re.sub(r"\W+", "-", match[1].lower())
        sections.append((name, match[1]))
        return f'<h2 id="{name}">{match[1]}</h2>'

    return re.sub(r"<h2>(.*?)</h2>", anchor, html), sections


def _with_pictures(html: str, pictures: Mapping[str, str]) -> str:
    """Links to pictures become the pictures; those that are not there become their names."""

    def inline(match: re.Match[str]) -> str:
        data = pictures.get(match[1])
        return f'<img src="data:image/png;base64,{data}" alt="{match[2]}">' if data else match[2]

    html = re.sub(r'<img src="\.\./\.\./([^"]*)" alt="([^"]*)" />', inline, html)
    return re.sub(r"<p>((?:<img [^>]*>\s*)+)</p>", r'<div class="plots">\1</div>', html)


def _marked(title: str, text: str) -> Iterator[tuple[str, str]]:
    """Lines with the class that a diff's line has."""
    diff = title.startswith("Diff")
    for line in text.rstrip().splitlines():
        kind = {"+": "add", "-": "del"}.get(line[:1], "") if diff else ""
        yield kind, line
