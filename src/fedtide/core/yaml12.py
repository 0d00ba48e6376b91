"""Forms: text becomes plain data as it was meant, or is refused with one line that says where and why.

Scalars are those of YAML 1.2's core schema, plus 1_000: `010` is ten, and `yes`, `1:30` and `2026-01-01` are words, not a
truth, ninety and a date. A key comes once. Whoever sends a bomb (depth, aliases, digits) gets a line as well.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import yaml

_MOST_NODES: Final = 1_000_000  # values in one form, those behind aliases counted each time
_DEEPEST: Final = 40  # groups within groups
_MOST_DIGITS: Final = 310  # of a number; more are beyond any float
_LONGEST: Final = 10_000  # characters of one text

_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?\d+(?:_\d+)*", re.ASCII)
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?)(?:[eE][-+]?\d+)?", re.ASCII)
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# What no text holds: control characters but tab and line ends, halves of surrogate pairs, what turns the reading direction.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


class ConfigSyntaxError(ValueError):
    """Why something is no form, in one line; whoever reads it adds what was read."""


# ---- text to data


def parse_yaml(text: str) -> Any:
    """Return what a YAML text of one document says, as dict, list, str, int, float, bool and None."""
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigSyntaxError(f"line {line}: {_strange(found[0])}")
    try:
        return _Reader(text).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        told = (str(each) for each in (getattr(error, "context", None), getattr(error, "problem", None)) if each)
        reason = " ".join((", ".join(told) or str(error)).split())[:300]
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ConfigSyntaxError(place + reason) from error


class _Reader:
    """Data from a parser's events, within bounds. The parser (libyaml where there is one) knows no schema: that is ours."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._count = 0  # values so far, those behind aliases counted each time
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # value and count; None while it is not at its end

    def document(self) -> Any:
        value, is_read = None, False
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if is_read:
                    raise _problem(event, "a second document begins; keep one")
                value, is_read = self._value(next(self._events), 0), True
        return value

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None:
            raise _problem(event, f"the tag {_cut(event.tag)} is not read here; write the value without it")
        before = self._count
        self._add(1, event)
        self._anchors |= {event.anchor: None} if event.anchor else {}
        if isinstance(event, yaml.ScalarEvent):
            line = _line(event)
            value = _scalar(event.value, line) if event.implicit[0] else _text(event.value, line)
        elif depth >= _DEEPEST:
            raise _problem(event, f"nested more than {_DEEPEST} deep; nothing here needs that")
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [self._value(inner, depth + 1) for inner in self._until(yaml.SequenceEndEvent)]
        else:
            value = self._mapping(depth)
        self._anchors |= {event.anchor: (value, self._count - before)} if event.anchor else {}
        return value

    def _until(self, end: type) -> Iterator[Any]:
        return itertools.takewhile(lambda event: not isinstance(event, end), self._events)

    def _add(self, count: int, event: Any) -> None:
        self._count += count
        if self._count > _MOST_NODES:
            raise _problem(event, f"more than {_MOST_NODES:,} values, aliases counted; make it smaller")

    def _alias(self, event: Any) -> Any:
        name = _cut(event.anchor)
        if event.anchor not in self._anchors:
            raise _problem(event, f"the alias *{name} has no anchor &{name} before it")
        if (found := self._anchors[event.anchor]) is None:
            raise _problem(event, f"the alias *{name} stands inside what it names; write the values out")
        self._add(found[1], event)
        return found[0]

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[Any] = []
        for event in self._until(yaml.MappingEndEvent):
            if isinstance(event, yaml.AliasEvent):
                self._alias(event)  # raises if it names nothing
                raise _problem(event, "an alias stands for a key; write the key out")
            if not isinstance(event, yaml.ScalarEvent):
                raise _problem(event, "a key is a list or a mapping; a key is a word")
            key = self._value(event, depth)
            if not isinstance(key, str):
                raise _problem(event, f"the key {_cut(str(key))} is not a word; put it in quotes if it is meant as one")
            if key in lines:
                first = f"first in line {lines[key]}"
                raise _problem(event, f"the key {shown(key)} is there twice, {first}; keep one, or put both together")
            lines[key] = _line(event)
            value = self._value(next(self._events), depth + 1)
            if key != "<<" or not event.implicit[0]:
                found[key] = value
                continue
            merged = value if isinstance(value, list) else [value]
            if not all(isinstance(each, dict) for each in merged):
                raise _problem(event, f"<< takes the keys of a mapping; {shown(value)} is none")
        below = [
            item for each in reversed(merged) for item in each.items()
        ]  # what is named first wins, then the mapping
        return {**dict(below), **found}


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _problem(event: Any, reason: str) -> ConfigSyntaxError:
    return ConfigSyntaxError(f"line {_line(event)}: {reason}")


def _scalar(text: str, line: int) -> Any:
    """Return what an unquoted scalar stands for."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if len(text) > _MOST_DIGITS and re.fullmatch(r"[-+]?[\d_.]+(?:[eE][-+]?\d+)?|0[ox][0-9a-fA-F]+", text, re.ASCII):
        raise ConfigSyntaxError(
            f"line {line}: a number of {len(text):,} characters ({_cut(text)}); no key takes such a one"
        )
    if _DECIMAL.fullmatch(text):
        return int(text.replace("_", ""))
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return _float(text, line)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", ""))
    return _text(text, line)


def _float(text: str, line: int) -> float:
    value = float(text.replace("_", ""))
    mantissa = re.split("[eE]", text)[0]
    if math.isinf(value) or (value == 0 and re.search("[1-9]", mantissa)):
        raise ConfigSyntaxError(f"line {line}: {_cut(text)} is beyond what a number can hold (1e-323 to 1.8e308)")
    return value


def _text(text: str, line: int) -> str:
    if problem := wrong_text(text):
        raise ConfigSyntaxError(f"line {line}: {problem}")
    return text


def wrong_text(text: str) -> str | None:
    """Return why a text is none that may be written down; None if it is one."""
    if len(text) > _LONGEST:
        return f"a text of {len(text):,} characters ({_cut(text)}); the longest is {_LONGEST:,}"
    found = _CONTROL.search(text)
    return f"{shown(text)} holds {_strange(found[0])}" if found else None


def _strange(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # so Python hands over a byte of a file's name
        return f"the byte 0x{number - 0xDC00:02x}, which is not UTF-8; give the file or folder a name in UTF-8"
    return f"the character U+{number:04X}; remove it"


# ---- data to text


class _Dumper(yaml.SafeDumper):
    """Writes what `parse` reads: a text that would be read as a number stands in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"(?:{_DECIMAL.pattern}|{_BASED.pattern})$"), None)


def to_yaml(tree: Any) -> str:
    """Return plain data as YAML, keys in their order."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
    return text


def in_line(value: Any) -> str:
    """Return a value as YAML in one line, as a label shows it."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None  # with its line ends escaped
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, default_style=style, width=1e9)
    return text.splitlines()[0]


# ---- data from Python


def plain_tree(value: Any, where: str = "", depth: int = 0) -> Any:
    """Return nested data as parse() would give it; raise NotAForm with the key of what no form can hold."""
    if depth > _DEEPEST:
        raise ConfigSyntaxError(
            f"{_cut(where)} is nested more than {_DEEPEST} deep (or holds itself); nothing here needs that"
        )
    if hasattr(value, "model_dump"):  # a group of keys as an object
        value = value.model_dump(mode="json", exclude_unset=True)
    elif hasattr(value, "tolist") and not isinstance(value, float):  # NumPy's
        value = value.tolist()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or wrong_text(key):
                raise ConfigSyntaxError(f"{f'{where}: ' if where else ''}the key {shown(key)} is not a word")
        return {key: plain_tree(each, f"{where}.{key}" if where else key, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_tree(each, f"{where}[{place}]", depth + 1) for place, each in enumerate(value)]
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str):
        if problem := wrong_text(value):
            raise ConfigSyntaxError(f"{_cut(where)}: {problem}")
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**_MOST_DIGITS:
        raise ConfigSyntaxError(
            f"{_cut(where)} is a number of more than {_MOST_DIGITS} digits; no key takes such a one"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigSyntaxError(f"{_cut(where)}={value}: it must be a finite number")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise ConfigSyntaxError(
        f"{_cut(where)}={shown(value)} is a {type(value).__name__}; give a number, a text, a list or a mapping"
    )


# ---- for messages


def shown(value: Any, most: int = 80) -> str:
    """Return a value's representation in one line, cut where it gets long."""
    try:
        text = repr(value if not isinstance(value, str) else value[: most + 1])
    except Exception as error:  # whatever a stranger's __repr__ raises, or an integer too long to print
        return f"a {type(value).__name__} ({type(error).__name__})"
    return _cut(text, most)


def _cut(text: str, most: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
