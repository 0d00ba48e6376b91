"""Reading what a user hands over: files and key=value words. There is no other reader."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fedtide.core.files import read_bytes
from fedtide.core.yaml12 import ConfigSyntaxError, parse_yaml, shown
from fedtide.errors import FedtideError


def read_file(path: Path, kind: str = "experiment") -> dict[str, Any]:
    """Read an experiment file (YAML), or one of another kind."""
    named = str(path) if str(path).isprintable() else shown(str(path))
    try:
        tree = parse_yaml(read_bytes(path).decode("utf-8-sig"))
    except FileNotFoundError as error:
        words = ", or give key=value words" if kind == "experiment" else ""
        raise FedtideError(f"there is no {kind} file {named}; name a YAML file{words}") from error
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


def parse_word(word: str) -> tuple[str, Any]:
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


def is_own_file(name: str) -> bool:
    """Say whether a policy's name is that of a user's own file, `file.py:attribute`."""
    return name.rpartition(":")[0].endswith(".py")


def locate_file(place: str, folder: Path | None) -> Path:
    """Return where a user's own file is: in the working folder, or beside the file that names it.

    What is in neither comes out as it is. Two different files of one name are refused: nobody knows which was meant.
    """
    here = Path(place)
    there = here if folder is None else folder / here
    if os.path.isdir(there) and not os.path.exists(here):
        return there
    if not os.path.isfile(there):
        return here
    if os.path.isfile(here) and not here.samefile(there) and here.read_bytes() != there.read_bytes():
        raise FedtideError(
            f"{place} is there twice with different contents, in the working folder and as {there}; "
            "write the path of the one that is meant in full"
        )
    return here if os.path.isfile(here) else there


def files_beside(name: str, folder: Path) -> str:
    """Return a policy's name such that its file is found from anywhere, if it lies beside the experiment file alone."""
    place, _, attribute = name.rpartition(":")
    found = locate_file(place, folder) if is_own_file(name) else Path(place)
    return name if found == Path(place) else f"{os.path.abspath(found)}:{attribute}"
