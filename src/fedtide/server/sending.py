"""An update on its way: encoded by a device, decoded by the server. The one place where both are done and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedtide.codec.base import Codec, Packet, checked_packet, most_bits
from fedtide.core import parts
from fedtide.errors import TrainingError
from fedtide.rng import stream
from fedtide.server import border
from fedtide.server.step import Received
from fedtide.types import Grant, Memory, Vector, lent


def encoded(
    codec: Codec, update: Vector, bits: float, seed: int, device: int, tick: int, memory: Memory | None = None
) -> tuple[Packet, Memory | None]:
    """Encode update [d] into the granted bits, with the stream of this device and tick.

    memory: what this device's codec remembers, None at its first upload. Returned with what it remembers now (None for a
    codec without memory). Raises if a user's codec returns something else than a packet, or more bits than were granted.
    """
    rng, label = stream(seed, "compress", device, tick), parts.label("codec", codec)
    if parts.remembers(codec):
        before = border.first_memory(codec, "codec", len(update)) if memory is None else memory
        call: Any = codec.encode
        found, memory = border.pair(call(border.lent_memory(before), lent(update), bits, rng), before, label)
    else:
        found, memory = codec.encode(lent(update), bits, rng), None
    if not isinstance(found, Packet):
        raise TrainingError(f"{label} encoded to a {type(found).__name__}: return fedtide.codec.base.packet(...)")
    packet = checked_packet(found, len(update), label)
    if packet.bits > bits and packet.bits > most_bits(codec, len(update), bits, label):
        raise TrainingError(
            f"{label} encoded to {packet.bits} bits, and {bits:.1f} were granted to device {device} at aggregation "
            f"{tick}: keep to budget_bits"
        )
    return packet, memory


def upload(
    codec: Codec,
    seed: int,
    tick: int,
    device: Sequence[int],
    grant: Grant,
    updates: Mapping[int, Vector],
    lost: Collection[int],
    devices: Mapping[str, Mapping[int, Memory]],
) -> Received:
    """Send the updates of the picked devices [r] as simulated devices do. lost: those that do not arrive.

    A device's codec remembers an upload once the server has it: what is lost is not acknowledged.
    """
    memory = dict(devices.get("codec", {}))
    sent, came = {}, {}
    for k, bits in zip(device, grant.bits.tolist(), strict=True):
        sent[k], after = encoded(codec, updates[k], bits, seed, k, tick, memory.get(k))
        if k in lost:
            continue
        came[k] = decoded(codec, sent[k], len(updates[k]))
        if after is not None:
            memory[k] = after
    return Received(sent, came, {**devices, "codec": memory} if memory else devices)


def decoded(codec: Codec, packet: Packet, num_parameters: int) -> Vector:
    """Decode an update; raise if a user's codec returns something else than d numbers."""
    return border.vector(codec.decode(packet), num_parameters, parts.label("codec", codec))
