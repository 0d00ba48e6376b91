"""A codec around another codec, and error feedback, which is one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedtide.codec.base import Codec, Packet
from fedtide.core.reading import is_own_file
from fedtide.errors import FedtideError
from fedtide.parts import checks, registry
from fedtide.parts.arguments import arg
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Memory, Rng, Vector


@dataclass(frozen=True)
class CodecAround:
    """A codec with memory around one without, C, whose packets it sends; a subclass has `init` and `encode`."""

    wrapper: ClassVar[str]  # its own name

    inner: Annotated[str, arg("the codec C, by name")] = "top_k"
    inner_args: Annotated[dict[str, Any] | None, arg("its arguments")] = None
    num_levels: Annotated[int, arg("nu, if C has it", key="codec.num_levels", ge=1, le=32_767)] = 4
    element_bits: Annotated[int | None, arg("bits per kept element, if C has it", key="codec.element_bits", le=64)] = (
        None
    )

    def __post_init__(self) -> None:
        self.codec  # noqa: B018  # raises at once if it cannot be made

    @functools.cached_property
    def codec(self) -> Codec:
        """C; it gets the experiment's keys that it asks for."""
        if is_own_file(self.inner):
            raise FedtideError(
                f"codec={self.wrapper!r}: inner={self.inner!r} names a file, whose content would not be known to belong to the "
                "run; name one of ours or package.module:name"
            )
        if checks.remembers(registry.find_part("codec", self.inner, builtin_parts("codec"))):
            raise FedtideError(
                f"codec={self.wrapper!r}: inner={self.inner!r} has a memory of its own; name a codec without"
            )
        keys = {"codec.num_levels": self.num_levels, "codec.element_bits": self.element_bits}
        made: Codec = registry.part(
            "codec",
            self.inner,
            self.inner_args or {},
            lambda key: keys.get(key) if key in keys else registry.nothing(key),
        )
        return made

    @property
    def planned_bits(self) -> Any:
        """The method of C, if it has it."""
        inner: Any = self.codec
        return inner.planned_bits

    def decode(self, packet: Packet) -> Vector:
        """Return what C reads."""
        return self.codec.decode(packet)

    def num_kept(self, num_parameters: int, budget_bits: float) -> int:
        """Return what C keeps."""
        return self.codec.num_kept(num_parameters, budget_bits)


@dataclass(frozen=True)
class ErrorFeedback(CodecAround):
    """Add what earlier packets left out, e, to the next update (Seide et al. 2014; Karimireddy et al. 2019).

    p = u + e; C(p) is sent; e' = p - C(p). So sum_t C(p_t) + e_T = sum_t u_t: what arrived and what is left add up to what was
    trained. It needs a C that takes something away, |p - C(p)| < |p|, else e grows without bound. A packet that is lost changes
    nothing of e: its update is lost, too. Memory: e [d] of each device.
    """

    wrapper: ClassVar[str] = "error_feedback"

    def init(self, num_parameters: int) -> Memory:
        """Return e = 0."""
        return {"error": np.zeros(num_parameters, np.float32)}

    def encode(self, memory: Memory, update: Vector, budget_bits: float, rng: Rng) -> tuple[Packet, Memory]:
        """Send C(u + e)."""
        wanted = update + memory["error"]
        packet = self.codec.encode(wanted, budget_bits, rng)
        return packet, {"error": wanted - self.codec.decode(packet)}
