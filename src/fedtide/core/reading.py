"""Reading what a user hands over: files and key=value words. There is no other reader of forms."""

from __future__ import annotations

import codecs
import json
import os
import re
from pathlib import Path
from typing import Any

from fedtide.core.files import read_bytes
from fedtide.core.yaml12 import ConfigSyntaxError, parse_yaml, shown, wrong_text
from fedtide.errors import FedtideError


def read_file(path: Path, kind: str = "experiment") -> dict[str, Any]:
    """Read an experiment file (YAML), or one of another kind."""
    named = str(path) if str(path).isprintable() else shown(str(path))
    try:
        tree = parse_yaml(_text(path))
    except FileNotFoundError as error:
        words = ", or give key=value words" if kind == "experiment" else ""
        raise FedtideError(f"there is no {kind} file {named}; name a YAML file{words}") from error
    except (OSError, ValueError) as error:  # NotAForm is one of the latter
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise FedtideError(f"the {kind} file {named} cannot be read: {' '.join(reason.split())}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise FedtideError(f"the {kind} file {named} holds a {type(tree).__name__}; it must be a mapping of keys")
    return tree


def _text(path: Path) -> str:
    """Return a file's text; OSError or NotAForm say why it cannot be had."""
    content = read_bytes(path)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigSyntaxError("it is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigSyntaxError(
            f"line {line}: byte 0x{content[error.start]:02x} is not UTF-8; save it as UTF-8 text"
        ) from error


def parse_word(word: str) -> tuple[str, Any]:
    """Return key and value of a `key=value` word (the value in YAML)."""
    name, equals, text = word.partition("=")
    name = name.strip()
    if not equals or not all(part and part.isprintable() for part in name.split(".")):
        raise FedtideError(f"{shown(word)} is not key=value; write for example policy.limit=8")
    return name, _value(word, text)


def _value(word: str, text: str) -> Any:
    """Return what the right side of a word says."""
    if re.search(r"(?:^|\s)#", text) and not re.search("[\"']", text):
        raise FedtideError(f"{shown(word)}: in YAML a comment begins at #; put the value in quotes")
    if problem := wrong_text(text):
        raise FedtideError(f"{word.partition('=')[0]}: {problem}")
    try:
        value = parse_yaml(text)
    except ConfigSyntaxError as error:
        reason = re.sub(r"^line 1(, column \d+)?: ", "", str(error))
        raise FedtideError(f"{shown(word)}: the value is not YAML ({reason}); quote it") from error
    if value is None and text.strip() not in ("", "~", "null", "Null", "NULL"):
        raise FedtideError(f"{shown(word)} gives no value; put it in quotes")
    return value


def is_file(path: Path) -> bool:
    """Say whether there is a file; a path that the system cannot take has none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_own_file(name: str) -> bool:
    """Say whether a policy's name is that of a user's own file, `file.py:attribute`."""
    return name.rpartition(":")[0].endswith(".py")


def locate_file(place: str, folder: Path | None) -> Path:
    """Return where a user's own file is: in the working folder, or in that of the form that names it.

    What is in neither comes out as it is. Two different files of one name are refused: nobody knows which was meant.
    """
    here = Path(place)
    there = here if folder is None else folder / here
    if os.path.isdir(there) and not os.path.exists(here):
        return there
    if not is_file(there):
        return here
    if is_file(here) and not here.samefile(there) and here.read_bytes() != there.read_bytes():
        raise FedtideError(
            f"{place} is there twice with different contents, in the working folder and as {there}; "
            "write the path of the one that is meant in full"
        )
    return here if is_file(here) else there


def files_beside(name: str, folder: Path) -> str:
    """Return a policy's name such that its file is found from anywhere, if it lies beside the form alone."""
    place, _, attribute = name.rpartition(":")
    found = locate_file(place, folder) if is_own_file(name) else Path(place)
    return name if found == Path(place) else f"{os.path.abspath(found)}:{attribute}"


# JSON that was copied between machines and edited by hand: read as it is meant, or refused with the reason.


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text (bytes: of UTF-8) says; raise ValueError for NaN, a field twice, or nesting beyond reason."""
    words = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        return json.loads(words, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        raise ValueError("it has a field twice")
    return tree
