"""One judge for all tables of wrong inputs and faults: one clear line, a documented exit code, and nothing lost."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from fedtide.cli.main import app

SMALL = (
    "data.name=synthetic", "data.num_train=200", "data.num_test=50", "data.num_shards=20", "fleet.num_devices=6",
    "policy.limit=2", "timeline.horizon=2", "learning.model=softmax", "learning.local_epochs=1",
)  # fmt: skip
CODES = {2, 3, 4, 5, 6, 130}  # what a refusal may exit with; 1 is a crash


class Wrong(NamedTuple):
    """One wrong input: the words of the command line, what the line must say (a regular expression), the exit code."""

    words: tuple[str, ...]
    says: str
    code: int = 2

    def __str__(self) -> str:
        return " ".join(self.words)[:80]


def wrong(*words: str, says: str, code: int = 2) -> Wrong:
    """Write a row of a table."""
    return Wrong(words, says, code)


def refused(case: Wrong) -> str:
    """Run the command line in this process and return its one line; raise if it is not refused as it should be."""
    found = CliRunner().invoke(app, list(case.words))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    line = one_line(found.stderr)
    assert found.exit_code == case.code, f"exit {found.exit_code}: {found.output[-500:]}"
    assert case.code in CODES
    assert re.search(case.says, line, re.IGNORECASE), f"{line!r} does not say {case.says!r}"
    return line


def one_line(stderr: str) -> str:
    """Return the single line that begins with `error:`; raise if there is none, several, or a traceback."""
    assert "Traceback (most recent call last)" not in stderr, stderr
    lines = [line for line in stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, f"{len(lines)} lines begin with error: {stderr[-500:]!r}"
    assert len(lines[0]) < 1000, f"{len(lines[0])} characters are no clear line: {lines[0][:200]}"
    return lines[0]


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder, to see that a refusal changed nothing."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
