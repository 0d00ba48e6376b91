"""Prose with numbers: Markdown templates whose places are filled from the stored runs, and what the pages share.

`{key}` and `{key:+.3f}` are places; a page module computes the values. A comparison is written as its mean and interval, with
"not resolved" or "no difference above" the margin where it is not resolved; with a format, as its mean alone.
`<!-- if: key = higher -->` states what the text after it stands on, by =, !=, > or <. A place without a value and a condition
that does not follow from the runs are errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.config import nested_to_dotted
from fedtide.core import write_output
from fedtide.errors import FedtideError
from fedtide.studies import EQUIVALENT, Comparison

_PLACE = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_CONDITION = re.compile(r"<!-- if: (.+?) (!=|=|>|<) (.+?) -->\s*")


def fill_prose(template: str, values: Mapping[str, Any], source: str) -> str:
    """Return a template with its places filled; raise if a place has no value, or a condition does not follow.

    source: the template's file, for errors.
    """

    def value(key: str) -> Any:
        try:
            return values[key]
        except KeyError:
            raise FedtideError(
                f"{source}: there is no value {{{key}}} in these runs; correct the place, or run what it needs"
            ) from None

    for condition in _CONDITION.finditer(template):
        key, relation, expected = condition.groups()
        found = value(key)
        if not _follows(found, relation, expected, source):
            raise FedtideError(
                f"{source}: '{key} {relation} {expected}' does not follow from the runs ({key}: {_written(found)}); "
                "rewrite what stands on it"
            )
    return _PLACE.sub(lambda place: _written(value(place[1]), place[2] or "", source), _CONDITION.sub("", template))


def _follows(found: Any, relation: str, expected: str, source: str) -> bool:
    if relation in (">", "<"):
        number = found.mean if isinstance(found, Comparison) else found
        try:
            return bool(number > float(expected) if relation == ">" else number < float(expected))
        except (TypeError, ValueError):
            raise FedtideError(f"{source}: '{found} {relation} {expected}' compares no numbers; use = or !=") from None
    word = found.verdict if isinstance(found, Comparison) else str(found)
    return (word == expected) == (relation == "=")


def _written(value: Any, form: str = "", source: str = "") -> str:
    if isinstance(value, Comparison):
        if not form:
            return resolved_prose(value)
        value = value.mean
    try:
        return format(value, form)
    except (TypeError, ValueError):
        raise FedtideError(f"{source}: {value!r} cannot be written as {form!r}; use another format") from None


def gain_words(found: Comparison | None) -> str:
    """Write a gain with its interval; nothing for None."""
    if found is None:
        return ""
    if not math.isfinite(found.low):
        return f"{found.mean:+.3f} (one seed)"
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def resolved_prose(found: Comparison | None) -> str:
    """Write a gain with its interval, and where it is not resolved, that it is not, or that no difference is above a margin."""
    verdict = found.verdict if found is not None else ""
    return gain_words(found) + f", {verdict}" * verdict.startswith(("not resolved", EQUIVALENT))


def prose_sections(text: str) -> dict[str, str]:
    """Return the sections of a Markdown file by their headings of the second level."""
    parts = re.split(r"^## (.+)\n", text, flags=re.M)[1:]
    return {heading: body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)}


def packaged_prose(name: str) -> str:
    """Read a template of this package."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def prose_findings(folder: Path, values: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return the sections of findings.md beside the results, filled; empty ones where a store has no such file.

    names: the sections that the page shows. Keys are `findings NAME`.
    """
    file = folder / "findings.md"
    written = prose_sections(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {f"findings {name}": fill_prose(written.get(name, ""), values, str(file)) for name in names}


def prose_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(heads)}", *lines[1:]])


def folded_prose(summary: str, text: str) -> str:
    """Return a text that opens with a click."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def key_words(tree: Mapping[str, Any], between: str = " ") -> str:
    """Return a tree of keys as `key=value` words."""
    return between.join(f"`{word}`" for word in flat_prose_keys(tree))


def flat_prose_keys(tree: Mapping[str, Any]) -> list[str]:
    """Return a tree of keys as key=value words."""
    return [f"{key}={value}" for key, value in nested_to_dotted(tree).items()]


def write_prose_page(page: Path, text: str, command: str) -> None:
    """Write a page, unless another file is in its place. command: the one that writes it."""
    page.parent.mkdir(parents=True, exist_ok=True)
    content = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    write_output(page, content.encode(), rf"# .*fedtide {command}".encode(), f"a page of `fedtide {command}`")
