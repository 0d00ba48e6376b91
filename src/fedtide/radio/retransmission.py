"""What becomes of a packet that did not arrive: it is dropped, sent again, or sent again and combined.

A retransmission is a callable (carried [r], before [r]) -> bits [r] that the server has of each packet after an attempt.
carried: what the link carried in its symbols this time; before: what the server had after the attempt before. The packet
arrives when that is all of it. What it says of itself:

    attempts = 4       a packet is sent so often at most; then it is dropped
    combines = True    a packet keeps its size; else it is encoded anew, for its new grant
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from fedtide.parts.arguments import arg
from fedtide.types import Floats

Retransmission: TypeAlias = Callable[[Floats, Floats], Floats]
Attempts: TypeAlias = Annotated[int, arg("largest number of transmissions of a packet", ge=1, le=10**6)]


@dataclass(frozen=True)
class Drop:
    """The paper's: a lost update is gone, and its device continues with the newest model."""

    attempts: ClassVar[int] = 1
    combines: ClassVar[bool] = False

    def __call__(self, carried: Floats, before: Floats) -> Floats:
        """Return what was carried [r]."""
        return carried


@dataclass(frozen=True)
class Resend:
    """ARQ: the device keeps its update and sends it again when it is picked again, encoded for its new grant."""

    attempts: Attempts = 4
    combines: ClassVar[bool] = False

    def __call__(self, carried: Floats, before: Floats) -> Floats:
        """Return what was carried this time [r]."""
        return carried


@dataclass(frozen=True)
class Harq:
    """Hybrid ARQ with incremental redundancy: what the attempts carry adds up until the packet is decoded."""

    attempts: Attempts = 4
    combines: ClassVar[bool] = True

    def __call__(self, carried: Floats, before: Floats) -> Floats:
        """Return what all attempts carried [r]."""
        return before + carried


RETRANSMISSIONS: Final[dict[str, Any]] = {"drop": Drop, "resend": Resend, "harq": Harq}


def max_attempts(retransmission: Any) -> int:
    """Return how often a packet is sent at most."""
    return int(getattr(retransmission, "attempts", 1))
