"""Error feedback around any codec (Seide et al. 2014; EF-SGD, Karimireddy, Rebjock, Stich and Jaggi 2019).

    p  = u + e         e: what earlier packets left out, e = 0 at first
    sent: C(p)
    e' = p - C(p)

So what arrived and what is left add up to what was trained: sum_t C(p_t) + e_T = sum_t u_t. It needs a C that takes
something away from p, |p - C(p)| < |p|: `top_k`, `dead_zone`, `sign`. Of one that is unbiased and noisy (`sparse_quantized`,
`qsgd` at few bits) the error is larger than p, and e grows without bound. A packet that is lost changes nothing of e: its
update is lost, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedtide.codec.base import Codec, Packet
from fedtide.codec.inner import inner_codec
from fedtide.core.arguments import arg
from fedtide.types import Memory, Rng, Vector


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
