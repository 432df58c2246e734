"""A workspace and a kernel's name in; what an agent may read and write of it as tools, in memory, never on the disk."""

import contextlib
import re
import shutil

from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from pydantic import Field

from liger_dev import sources
from liger_dev import workspace
from liger_dev.agents.prompts import fence
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Nothing
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.scratch import KernelCopy
from liger_dev.scratch import kernel_copy
from liger_dev.scratch import own_folder

# All that an agent is ever shown of a workspace: no dot files, no runs, nothing beside the kernels.
_READABLE = re.compile(
    r"(kernels/(ops|modules|reference)/\w+\.py|kernels/functional\.py|profiles/\w+\.yaml|test/utils\.py"
    r"|test/kernels/\w+\.py|benchmark/scripts/\w+\.py|catalog/\w+\.py)\Z"
)
_FOLDERS = ("kernels", "profiles", "test/kernels", "benchmark/scripts")
_CATALOG = "catalog/"
_HITS = 6


class ReadFile(Arguments):
    path: str = Field(
        description="relative to the workspace, e.g. kernels/ops/utils.py; catalog/NAME.py for a reference"
    )


class WriteFile(Arguments):
    path: str
    content: str = Field(description="the whole new content")


class EditFile(Arguments):
    path: str
    old: str = Field(description="text that occurs exactly once in the file")
    new: str


class Search(Arguments):
    query: str = Field(description="words, such as an operation or a Triton function")


@dataclass(frozen=True)
class Staging:
    """The staging tree: the workspace's files, with `files` on top of them. `writable` are the only paths to write."""

    root: Path
    name: str
    writable: frozenset[str]
    files: dict[str, str] = field(default_factory=dict)
    base: Mapping[str, str] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """A file as the agent sees it: as it has written it, else as the stage proposes it, else as on the disk.

        Raises Refused for a path that is not the agent's to see, or that has no file.
        """
        if not _READABLE.match(path):
            raise Refused(f"{path} can't be read: only kernels, profiles, tests, benchmark scripts and catalog/ can")
        if path in self.files or path in self.base:
            return self.files.get(path) or self.base[path]
        if path.startswith(_CATALOG):
            found = sources.CATALOG / path.removeprefix(_CATALOG)
            text = found.read_text(encoding="utf-8") if found.is_file() else None
        else:
            text = workspace.read(self.root, path)
        if text is None:
            raise Refused(f"there is no file {path}; list_files shows what there is")
        return text

    def write(self, path: str, content: str) -> None:
        if path not in self.writable:
            raise Refused(f"{path} is locked: you may write {', '.join(sorted(self.writable))} and nothing else")
        self.files[path] = content

    def paths(self) -> list[str]:
        """All readable paths, the catalogue's left out."""
        on_disk = (
            path.relative_to(self.root).as_posix()
            for folder in _FOLDERS
            for path in (self.root / folder).rglob("*")
            if path.is_file()
        )
        return sorted({path for path in (*on_disk, *self.base, *self.files, "test/utils.py") if _READABLE.match(path)})

    @contextlib.contextmanager
    def copy(self) -> Iterator[KernelCopy]:
        """A scratch copy of the kernel with all that is staged, for children; it is gone afterwards."""
        with own_folder(self.root, f"agent-{self.name}") as scratch:
            for path in ("kernels", "benchmark/scripts", "test/kernels", "profiles"):
                if (self.root / path).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
                    shutil.copytree(self.root / path, scratch / path, ignore=ignored)
            for path in ("pyproject.toml", "test/__init__.py", "test/utils.py"):
                if (self.root / path).is_file():
                    (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self.root / path, scratch / path)
            for path, text in {**self.base, **self.files}.items():
                (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                (scratch / path).write_text(text, encoding="utf-8")
            with kernel_copy(self.name, scratch) as copy:
                yield copy

    def reading(self) -> tuple[Tool, ...]:
        """The tools that change nothing."""
        return (
            Tool("list_files", "Lists the files that can be read.", Nothing, lambda _: "\n".join(self.paths())),
            Tool("read_file", "Shows a file.", ReadFile, lambda given: fence(self.text(given.path), given.path)),
            Tool(
                "search_gallery",
                "Finds kernels and references, of the workspace and the catalogue, that contain the words.",
                Search,
                lambda given: self._search(given.query),
            ),
        )

    def writing(self) -> tuple[Tool, ...]:
        """The tools that change what is staged. They refuse every path that is not writable."""
        return (
            Tool("write_file", "Gives a file new content.", WriteFile, self._write),
            Tool("edit_file", "Replaces a text that occurs once in a file.", EditFile, self._edit),
        )

    def _write(self, given: WriteFile) -> str:
        self.write(given.path, given.content)
        return f"{given.path} has {len(given.content.splitlines())} lines now"

    def _edit(self, given: EditFile) -> str:
        if given.path not in self.writable:
            self.write(given.path, "")  # says why not
        text = self.text(given.path)
        if text.count(given.old) != 1:
            raise Refused(f"the text to replace occurs {text.count(given.old)} times in {given.path}, not once")
        self.write(given.path, text.replace(given.old, given.new))
        return f"{given.path} was edited"

    def _search(self, query: str) -> str:
        words = [word.lower() for word in re.findall(r"\w+", query)]
        catalogue = [f"{_CATALOG}{path.name}" for path in sorted(sources.CATALOG.glob("[a-z]*.py"))]
        kernels = [path for path in self.paths() if path.startswith(("kernels/ops/", "kernels/reference/"))]
        scored = [
            (sum(self.text(path).lower().count(word) > 0 for word in words), path) for path in kernels + catalogue
        ]
        hits = sorted(((score, path) for score, path in scored if score), key=lambda hit: (-hit[0], hit[1]))[:_HITS]
        lines = [f"{path}: {_first_line(self.text(path))}" for _, path in hits]
        return fence("\n".join(lines), "gallery") if lines else "nothing in the gallery contains these words"


def _first_line(text: str) -> str:
    return next((line.strip('" ') for line in text.splitlines() if line.strip('" ')), "")
