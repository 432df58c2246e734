"""Where the tool's words go: results to stdout, progress to stderr; rich on a terminal, plain lines elsewhere."""

import re
import shutil
import sys
import textwrap

from typing import TYPE_CHECKING

from liger_dev.pipeline import View

if TYPE_CHECKING:
    from rich.status import Status


_LABEL = re.compile(r"\s*(liger-dev: |where: |do:    |then |or   |look )?")


def folded(text: str, width: int) -> str:
    """Lines of at most `width` columns, broken between words; what follows a label such as `do:` stays beside it."""
    lines = []
    for line in text.splitlines():
        label = _LABEL.match(line)
        indent = " " * (label.end() if label and label[1] != "liger-dev: " else 2)
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def tell(text: str) -> None:
    """Words on stdout, folded to a terminal's width; whole lines elsewhere, for programs to read."""
    print(folded(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text, flush=True)


def tell_error(text: str) -> None:
    """Words on stderr, folded to a terminal's width; whole lines elsewhere, for programs to read."""
    print(
        folded(text, shutil.get_terminal_size().columns) if sys.stderr.isatty() else text, file=sys.stderr, flush=True
    )


class Screen:
    """Shows views and progress. Its state is a running spinner, which `quiet` ends, and what views were about."""

    def __init__(self) -> None:
        self._spinner: "Status | None" = None
        self._line = ""
        self._shown: set[str] = set()

    def say(self, line: str) -> None:
        """One line of progress: a spinner until the next call on a terminal, a plain line elsewhere."""
        if not sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)
            return
        from rich.console import Console
        from rich.markup import escape

        self.quiet()
        self._line = line
        self._spinner = Console(stderr=True).status(escape(line))
        self._spinner.start()

    def quiet(self) -> None:
        """Ends the spinner and leaves its line behind."""
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None
            print(self._line, file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """Words to the person at the terminal, beside the results."""
        self.quiet()
        tell_error(text)

    def show(self, views: list[View], about: str = "") -> None:
        """Views on stdout: highlighted on a terminal, plain text under plain headings elsewhere."""
        self.quiet()
        self._shown.add(about)
        for view in views:
            if sys.stdout.isatty():
                _show_rich(view)
            else:
                _show_plain(view)

    def show_once(self, views: list[View], about: str) -> None:
        """The same, unless something about the same stage was shown already."""
        if about not in self._shown:
            self.show(views, about)


def _show_plain(view: View) -> None:
    heading = f"== {view.title} ==\n" if view.title else ""
    print(f"{heading}{view.text.rstrip()}\n", flush=True)


def _show_rich(view: View) -> None:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.syntax import Syntax
    from rich.text import Text

    console = Console()
    if view.title:
        console.rule(Text(view.title, style="bold"), align="left")
    match view.language:
        case "markdown":
            console.print(Markdown(view.text))
        case "text":
            console.print(Text(view.text.rstrip()))
        case language:
            console.print(Syntax(view.text.rstrip(), language, background_color="default", word_wrap=True))
    console.print()
