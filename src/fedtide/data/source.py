"""What a place to download a data set from is: a name for the record and one function.

The function is given the files wanted and returns them by name, gzipped or not; whoever asked checks them. It raises
DataError or OSError when it cannot serve, and soon: no source may hold up the next one for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from fedtide.data.idx import IdxFile, Raw

Fetch: TypeAlias = Callable[[Sequence[IdxFile]], Mapping[str, Raw]]


class Source(NamedTuple):
    """One place to get the files from."""

    name: str
    fetch: Fetch
