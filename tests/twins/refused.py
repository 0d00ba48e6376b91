"""What is wrong with a payload, as native/codec.h numbers it."""

from __future__ import annotations

NORM, SET, LEVELS, CODE_LENGTH, MAGNITUDE, GOES_ON, CODE = range(1, 8)


class Refused(Exception):
    """A payload that is malformed."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason
