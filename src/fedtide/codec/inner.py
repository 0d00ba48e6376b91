"""The codec inside a codec that wraps another, such as error feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtide.codec.base import Codec
from fedtide.core import parts
from fedtide.core.kinds import table
from fedtide.core.reading import is_own_file
from fedtide.errors import FedtideError


def inner_codec(wrapper: str, name: str, args: Mapping[str, Any] | None, filled: Mapping[str, Any]) -> Codec:
    """Make the codec that `wrapper` stands around; raise if it cannot be one. filled: the experiment's keys by name."""
    if is_own_file(name):
        raise FedtideError(
            f"codec={wrapper!r}: inner={name!r} names a file, whose content would not be known to belong to the run; name one "
            "of ours or package.module:name"
        )
    if parts.remembers(parts.find("codec", name, table("codec"))):
        raise FedtideError(f"codec={wrapper!r}: inner={name!r} has a memory of its own; name a codec without")
    codec: Codec = parts.part(
        "codec", name, args or {}, lambda key: filled[key] if key in filled else parts.nothing(key)
    )
    return codec
