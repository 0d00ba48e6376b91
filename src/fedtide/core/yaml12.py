"""YAML files and values: text becomes plain data as it was meant, or is refused with one line that says where and why.

Scalars are those of YAML 1.2's core schema, plus 1_000: `010` is ten, and `yes`, `1:30` and `2026-01-01` are words, not a
truth, ninety and a date. A key comes once. Bombs (depth, aliases, digits) are refused as well.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, ClassVar, Final

import yaml

from fedtide.core.files import read_bytes
from fedtide.errors import FedtideError

_MOST_NODES: Final = 1_000_000  # values in one tree, those behind aliases counted each time
_DEEPEST: Final = 40  # groups within groups
_MOST_DIGITS: Final = 310  # of a number; more are beyond any float
_LONGEST: Final = 10_000  # characters of one text

# What no text holds: control characters but tab and line ends, halves of surrogate pairs, what turns the reading direction.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
_TAG: Final = "tag:yaml.org,2002:"
# The core schema: a plain scalar that matches none of these is a text.
_SCALARS: Final = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"(?!.{311})([-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+)",  # of more digits than any float
    "float": r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.([0-9]+(_[0-9]+)*)?)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": r"<<",
}


class ConfigSyntaxError(FedtideError, ValueError):
    """Why something cannot be read, in one line; whoever reads a file or a word adds its name."""


# ---- text to data


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader with the scalars of YAML 1.2, and every key once."""

    yaml_implicit_resolvers: ClassVar[dict[str | None, Any]] = {}  # none of YAML 1.1's

    def construct_mapping(self, node: Any, deep: bool = True) -> dict[Any, Any]:
        """Return a mapping; `<<` takes the keys of others that it does not have itself."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in lines:
                problem = f"the key {shown(key.value)} is there twice, first in line {lines[key.value]}; keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            lines |= {key.value: key.start_mark.line + 1} if isinstance(key, yaml.ScalarNode) else {}
        found: dict[Any, Any] = super().construct_mapping(node, deep=True)
        return found

    def construct_yaml_int(self, node: Any) -> int:
        """Return an integer; a leading 0 means nothing."""
        text = node.value.replace("_", "")
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)

    def construct_yaml_float(self, node: Any) -> float:
        """Return a float, which `plain_yaml_tree` refuses if it is not finite."""
        return float(re.sub(r"_|\.(?=[iInN])", "", node.value))


for _name in ("int", "float"):
    _Loader.add_constructor(_TAG + _name, getattr(_Loader, f"construct_yaml_{_name}"))


def parse_yaml(text: str, where: str = "") -> Any:
    """Return what a YAML text of one document says, as dict, list, str, int, float, bool and None. where: its key."""
    if found := _CONTROL.search(text):
        raise ConfigSyntaxError(f"line {text.count(chr(10), 0, found.start()) + 1}: {_strange(found[0])}")
    try:
        _check_events(text)
        tree = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        told = [str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part]
        raise ConfigSyntaxError(place + " ".join((", ".join(told) or str(error)).split())[:300]) from error
    return plain_yaml_tree(tree, where)


def _check_events(text: str) -> None:
    """Raise if there are tags, or groups so deep that the parser's own recursion would end the process."""
    depth, events = 0, yaml.parse(text, Loader=_Loader)
    event: Any
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            problem = f"nested more than {_DEEPEST} deep; nothing here needs that"
        elif tag := getattr(event, "tag", None):
            problem = f"the tag {_cut(tag)} is not read here; write the value without it"
        else:
            continue
        raise ConfigSyntaxError(f"line {event.start_mark.line + 1}: {problem}")


def read_yaml_file(path: Path, kind: str = "experiment") -> dict[str, Any]:
    """Read an experiment file (YAML), or one of another kind."""
    named = str(path) if str(path).isprintable() else shown(str(path))
    try:
        tree = parse_yaml(read_bytes(path).decode("utf-8-sig"))
    except FileNotFoundError as error:
        words = ", or give key=value words" if kind == "experiment" else ""
        raise FedtideError(f"{kind} file not found: {named}; name a YAML file{words}") from error
    except UnicodeDecodeError as error:
        raise FedtideError(f"the {kind} file {named} cannot be read: {error}; save it as UTF-8 text") from error
    except (OSError, ValueError) as error:  # ConfigSyntaxError is one of the latter
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise FedtideError(f"the {kind} file {named} cannot be read: {' '.join(reason.split())}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise FedtideError(f"the {kind} file {named} holds a {type(tree).__name__}; it must be a mapping of keys")
    return tree


def parse_yaml_word(word: str) -> tuple[str, Any]:
    """Return key and value of a `key=value` word (the value in YAML)."""
    name, equals, text = word.partition("=")
    name = name.strip()
    if not equals or not all(part and part.isprintable() for part in name.split(".")):
        raise FedtideError(f"{shown(word)} is not key=value; write for example policy.limit=8")
    if re.search(r"(?:^|\s)#", text) and not re.search("[\"']", text):
        raise FedtideError(f"{shown(word)}: in YAML a comment begins at #; put the value in quotes")
    try:
        return name, parse_yaml(text, name)
    except ConfigSyntaxError as error:
        raise FedtideError(f"{shown(word)} cannot be read: {error}") from error


# ---- data to text


class _Dumper(yaml.SafeDumper):
    """Writes what `parse_yaml` reads: a text that would be read as a number stands in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        return True


for _name, _pattern in _SCALARS.items():
    for _reader in (_Loader, _Dumper):
        _reader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)


def to_yaml(tree: Any) -> str:
    """Return plain data as YAML, keys in their order."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
    return text


def yaml_in_line(value: Any) -> str:
    """Return a value as YAML in one line, as a label shows it."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None  # with its line ends escaped
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, default_style=style, width=1e9)
    return text.splitlines()[0]


# ---- data from Python


def plain_yaml_tree(value: Any, where: str = "") -> Any:
    """Return nested data as plain dict, list, str, int, float, bool and None; raise with the key of what is none of them."""
    return _plain(value, where, 0, itertools.count())


def _plain(value: Any, where: str, depth: int, count: Iterator[int]) -> Any:
    """Return one value of a tree. count: the values so far."""
    named = f"{_cut(where)}: " if where else ""
    if depth > _DEEPEST:
        raise ConfigSyntaxError(f"{named}nested more than {_DEEPEST} deep (or holds itself); nothing here needs that")
    if next(count) > _MOST_NODES:
        raise ConfigSyntaxError(f"more than {_MOST_NODES:,} values, aliases counted; make it smaller")
    if hasattr(value, "model_dump"):  # a group of keys as an object
        value = value.model_dump(mode="json", exclude_unset=True)
    elif hasattr(value, "tolist") and not isinstance(value, float):  # NumPy's
        value = value.tolist()
    if isinstance(value, Mapping):
        for key in value:
            if problem := _wrong_text(key) if isinstance(key, str) else "put it in quotes if it is one":
                raise ConfigSyntaxError(f"{named}the key {shown(key)} is not a word; {problem}")
        return {
            key: _plain(inner, f"{where}.{key}" if where else key, depth + 1, count) for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(inner, f"{where}[{place}]", depth + 1, count) for place, inner in enumerate(value)]
    if isinstance(value, PurePath):
        value = str(value)
    if problem := _wrong_value(value):
        raise ConfigSyntaxError(f"{_cut(where)}{'=' if where else ''}{shown(value)}: {problem}")
    return value


def _wrong_value(value: Any) -> str | None:
    """Return why a value is no number, text, truth or null that may be written down."""
    if isinstance(value, str):
        return _wrong_text(value)
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        return f"a number of more than {_MOST_DIGITS} digits; no key takes such a one"
    if isinstance(value, float) and not math.isfinite(value):
        return "it must be a finite number"
    if value is None or isinstance(value, (int, float)):
        return None
    return f"it is a {type(value).__name__}; give a number, a text, a list or a mapping"


def _wrong_text(text: str) -> str | None:
    if len(text) > _LONGEST:
        return f"a text of {len(text):,} characters; the longest is {_LONGEST:,}"
    found = _CONTROL.search(text)
    return f"it holds {_strange(found[0])}" if found else None


def _strange(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # so Python hands over a byte of a file's name
        return f"the byte 0x{number - 0xDC00:02x}, which is not UTF-8; give the file or folder a name in UTF-8"
    return f"the character U+{number:04X}; remove it"


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
