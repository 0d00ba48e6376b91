"""What help() shows: the fields of plain values and the keys of an experiment, each documented once."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# What help() shows of a class of plain values: its docstring, and the comment beside each field, which is written once.


Cls = TypeVar("Cls")
_FOR_TOOLS = re.compile(r"\s*(type: ignore(\[[^\]]*\])?|noqa(: ?\w+)?)")


def documented(cls: type[Cls]) -> type[Cls]:
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


# Every key of an experiment as the text that help() shows.


def document(experiment: type[BaseModel]) -> None:
    """Let the docstring of an experiment, and that of each of its groups, list the keys with default and meaning."""
    own = {name: field for name, field in experiment.model_fields.items() if not _is_group(field)}
    groups = {name: field.annotation for name, field in experiment.model_fields.items() if _is_group(field)}
    text = [experiment.__doc__ or "", "", "Keys with their defaults; times are in the unit of fleet.max_duration:", ""]
    text += _lines(own, "")
    for name, group in groups.items():
        assert isinstance(group, type)  # _is_group says so
        assert issubclass(group, BaseModel)
        lines = _lines(group.model_fields, f"{name}.")
        text += ["", f"{name}: {group.__doc__ or ''}", *lines]
        group.__doc__ = "\n".join([group.__doc__ or "", "", *lines])
    experiment.__doc__ = "\n".join(text)


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _lines(fields: Mapping[str, FieldInfo], before: str) -> list[str]:
    found = []
    for name, field in fields.items():
        value: Any = getattr(field.default, "entry", field.default)  # of a part, its name
        found += [f"    {before}{name} = {value!r}", f"        {field.description or ''}".rstrip()]
    return found
