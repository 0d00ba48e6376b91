"""Codecs around another codec: error feedback and EF21."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedtide.codec.base import Codec, Packet
from fedtide.core.reading import is_own_file
from fedtide.errors import FedtideError
from fedtide.parts import checks, registry
from fedtide.parts.arguments import arg
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Memory, Rng, Vector

# The codec inside a codec that wraps another, such as error feedback.


def inner_codec(wrapper: str, name: str, args: Mapping[str, Any] | None, filled: Mapping[str, Any]) -> Codec:
    """Make the codec that `wrapper` stands around; raise if it cannot be one. filled: the experiment's keys by name."""
    if is_own_file(name):
        raise FedtideError(
            f"codec={wrapper!r}: inner={name!r} names a file, whose content would not be known to belong to the run; name one "
            "of ours or package.module:name"
        )
    if checks.remembers(registry.find_part("codec", name, builtin_parts("codec"))):
        raise FedtideError(f"codec={wrapper!r}: inner={name!r} has a memory of its own; name a codec without")
    codec: Codec = registry.part(
        "codec", name, args or {}, lambda key: filled[key] if key in filled else registry.nothing(key)
    )
    return codec


# Error feedback around any codec (Seide et al. 2014; EF-SGD, Karimireddy, Rebjock, Stich and Jaggi 2019).
#
#     p  = u + e         e: what earlier packets left out, e = 0 at first
#     sent: C(p)
#     e' = p - C(p)
#
# So what arrived and what is left add up to what was trained: sum_t C(p_t) + e_T = sum_t u_t. It needs a C that takes
# something away from p, |p - C(p)| < |p|: `top_k`, `dead_zone`, `sign`. Of one that is unbiased and noisy
# (`sparse_quantized`, `qsgd` at few bits) the error is larger than p, and e grows without bound. A packet that is lost
# changes nothing of e: its update is lost, too.


@dataclass(frozen=True)
class ErrorFeedback:
    """Add what earlier packets left out to the next update, around any codec.

    Memory: e [d] of each device. Packets are those of the inner codec, which decides what a small budget carries.
    """

    inner: Annotated[str, arg("the codec C, by name")] = "top_k"
    inner_args: Annotated[dict[str, Any] | None, arg("its arguments")] = None
    num_levels: Annotated[int, arg("nu, if C has it", key="codec.num_levels", ge=1, le=32_767)] = 4
    element_bits: Annotated[int | None, arg("bits per kept element, if C has it", key="codec.element_bits", le=64)] = (
        None
    )
    _codec: Codec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        filled = {"codec.num_levels": self.num_levels, "codec.element_bits": self.element_bits}
        object.__setattr__(self, "_codec", inner_codec("error_feedback", self.inner, self.inner_args, filled))

    @property
    def planned_bits(self) -> Any:
        """The method of C, if it has it."""
        inner: Any = self._codec
        return inner.planned_bits

    def init(self, num_parameters: int) -> Memory:
        """Return e = 0."""
        return {"error": np.zeros(num_parameters, np.float32)}

    def encode(self, memory: Memory, update: Vector, budget_bits: float, rng: Rng) -> tuple[Packet, Memory]:
        """Send C(u + e)."""
        wanted = update + memory["error"]
        packet = self._codec.encode(wanted, budget_bits, rng)
        return packet, {"error": wanted - self._codec.decode(packet)}

    def decode(self, packet: Packet) -> Vector:
        """Return C(u + e)."""
        return self._codec.decode(packet)

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return what C keeps."""
        return self._codec.num_kept(num_parameters, budget_bits)


# EF21 (Richtarik, Sokolov and Fatkhullin 2021): each device sends how its update differs from what the server has of it.
#
#     sent: c_k = C(u_k - g_k)     g_k: what the server has of device k, g_k = 0 at first
#     g_k' = g_k + c_k
#     server: G' = G + (1/N) sum_k c_k,  x' = x + rate G'     which is policy.aggregator=ef21
#
# What decode returns is the difference c_k, not the update: the server has no memory of a device there, and needs none,
# since it adds all differences up. It belongs together with the aggregator `ef21`; others of ours, which would take differences
# for updates, are refused.
# With some of the devices at a time this is EF21-PP (Fatkhullin et al. 2021). C must take something away,
# |p - C(p)| < |p|, as for `error_feedback`.


@dataclass(frozen=True)
class Ef21:
    """Send how an update differs from what the server has of the device; goes with policy.aggregator=ef21.

    Memory: g_k [d] of each device. It goes on with what arrived, as the server's sum does. Packets are the inner codec's.
    """

    inner: Annotated[str, arg("the codec C, by name")] = "top_k"
    inner_args: Annotated[dict[str, Any] | None, arg("its arguments")] = None
    num_levels: Annotated[int, arg("nu, if C has it", key="codec.num_levels", ge=1, le=32_767)] = 4
    element_bits: Annotated[int | None, arg("bits per kept element, if C has it", key="codec.element_bits", le=64)] = (
        None
    )
    _codec: Codec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        filled = {"codec.num_levels": self.num_levels, "codec.element_bits": self.element_bits}
        object.__setattr__(self, "_codec", inner_codec("ef21", self.inner, self.inner_args, filled))

    @property
    def planned_bits(self) -> Any:
        """The method of C, if it has it."""
        inner: Any = self._codec
        return inner.planned_bits

    def init(self, num_parameters: int) -> Memory:
        """Return g = 0."""
        return {"known": np.zeros(num_parameters, np.float32)}

    def encode(self, memory: Memory, update: Vector, budget_bits: float, rng: Rng) -> tuple[Packet, Memory]:
        """Send C(u - g)."""
        packet = self._codec.encode(update - memory["known"], budget_bits, rng)
        return packet, {"known": memory["known"] + self._codec.decode(packet)}

    def decode(self, packet: Packet) -> Vector:
        """Return C(u - g), what has to be added to g."""
        return self._codec.decode(packet)

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return what C keeps."""
        return self._codec.num_kept(num_parameters, budget_bits)
