"""Who says what in a play: its text, as Project Gutenberg sets it, cut into the speaking roles.

A speech begins with the speaker's name on a line of its own behind an empty one: in capitals (HELENA. or HELENA), or, as some
plays have it, shortened (Ham.). Stage directions stand in square brackets, acts and scenes have headings; nobody says those.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

ALPHABET: Final = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's
OFTEN: Final = 3  # speeches from which a short line such as "Ham." is a name and no "Farewell."

_DIRECTION: Final = re.compile(r"[\[{][^\]}]{0,2000}[\]}]")  # here and there one begins with {
_HEADING: Final = re.compile(r"(ACT|SCENE)\b", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Z][A-Za-z' .-]{0,39}")


def roles(text: str) -> dict[str, str]:
    """Return what each role of a play says from its beginning to its end, by name, in the order in which they first speak.

    Lines and speeches are joined by single spaces. What stands before the first act (title, persons) is left out.
    """
    lines = [line.strip() for line in _DIRECTION.sub("", text).splitlines()]
    first = next((place for place, line in enumerate(lines) if _HEADING.match(line)), len(lines))
    lines = lines[first:]
    names = _names(lines)
    said: dict[str, list[str]] = {}
    speech: list[str] = []  # nobody's, until somebody speaks
    before = ""
    for line in lines:
        if not before and line in names:
            speech = said.setdefault(names[line], [])
        elif not before and _HEADING.match(line):
            speech = []
        elif line:
            speech.append(line)
        before = line
    return {name: " ".join(" ".join(speech).split()) for name, speech in said.items()}


def _names(lines: list[str]) -> dict[str, str]:
    """Return the lines that name a speaker, each with the name."""
    short = (line for before, line in zip(["", *lines], lines, strict=False) if not before and _NAME.fullmatch(line))
    found = Counter(line for line in short if not _HEADING.match(line))
    return {
        line: line.rstrip(".").upper()
        for line, times in found.items()
        if line.isupper() or (line.endswith(".") and times >= OFTEN)
    }
