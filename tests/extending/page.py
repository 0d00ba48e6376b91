"""docs/extending.md as a table of cases: every heading with its files and the command that uses them.

A ```python block whose first line is a comment `# name.py` (or a ```text block with `# name.csv`) is a file. The words after
`fedtide run` in a ```sh block of the same section are the experiment that uses it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"# (\S+\.\w+)\s*$")


class Case(NamedTuple):
    """One example."""

    title: str
    files: dict[str, str]
    words: list[str]

    def write(self, folder: Path) -> None:
        """Put its files into a folder."""
        for name, text in self.files.items():
            (folder / name).write_text(text)


def cases() -> list[Case]:
    """Return the examples of the page that have a command."""
    found = []
    for section in re.split(r"^(?=#{2,3} )", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]:
        title = section.splitlines()[0].lstrip("# ")
        files, words = {}, []
        for language, text in BLOCK.findall(section):
            first, _, rest = text.partition("\n")
            if (named := NAME.fullmatch(first)) and language in ("python", "text"):
                files[named[1]] = text if language == "python" else rest
            if language == "sh":
                commands = [line for line in text.splitlines() if line.startswith("fedtide run ")]
                words += [word for line in commands[:1] for word in shlex.split(line, comments=True)[2:]]
        if words:
            found.append(Case(title, files, words))
    return found
