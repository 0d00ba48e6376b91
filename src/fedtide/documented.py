"""What help() shows of a class of plain values: its docstring, and the comment beside each field, which is written once."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any, TypeVar

T = TypeVar("T")
_FOR_TOOLS = re.compile(r"\s*(type: ignore(\[[^\]]*\])?|noqa(: ?\w+)?)")


def documented(cls: type[T]) -> type[T]:
    """Let a class's docstring list its fields with their types and comments; the source is read when it is asked for."""
    cls.__doc__ = _Doc(cls.__doc__ or "")  # type: ignore[assignment]  # Python calls a descriptor here as anywhere
    return cls


class _Doc:
    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, _: object, cls: type[Any]) -> str:
        try:
            source = textwrap.dedent(inspect.getsource(cls))
        except (OSError, TypeError):  # there is no source here, or this is another class that inherits the docstring
            return self.text
        return f"{inspect.cleandoc(self.text)}\n\nFields:\n" + "".join(_fields(source))


def _fields(source: str) -> list[str]:
    """Return a line for each field of a class: name, type, default, and what the comments above and beside it say."""
    lines, parsed = source.splitlines(), ast.parse(source).body[0]
    found = []
    for node in parsed.body if isinstance(parsed, ast.ClassDef) else []:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        last = node.end_lineno or node.lineno
        beside = lines[last - 1][node.end_col_offset :]
        first = node.lineno - 1
        while lines[first - 1].strip().startswith("#"):
            first -= 1
        words = [*(line.strip(" #") for line in lines[first : node.lineno - 1]), *_comments(beside)]
        default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
        about = " ".join(words)
        head = f"    {node.target.id}: {ast.unparse(node.annotation)}{default}"
        found.append(f"{head}\n" + (f"        {about}\n" if about else ""))
    return found


def _comments(beside: str) -> list[str]:
    """Return the comments at the end of a line that are meant for readers."""
    parts = [_FOR_TOOLS.sub("", part).strip() for part in beside.split("#")[1:]]
    return [part for part in parts if part]
