"""An update on its way: encoded by a device, decoded by the server. The one place where both are done and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.codec.base import Codec, Packet, checked_packet, most_bits
from fedtide.core import versioned
from fedtide.errors import TrainingError
from fedtide.parts import checks
from fedtide.rng import stream
from fedtide.types import Floats, Memory, Vector, Vectors, readonly_copy


def encode_update(
    codec: Codec, update: Vector, bits: float, seed: int, device: int, tick: int, memory: Memory | None = None
) -> tuple[Packet, Memory | None]:
    """Encode update [d] into the granted bits, with the stream of this device and tick.

    memory: what this device's codec remembers, None at its first upload. Returned with what it remembers now (None for a
    codec without memory). Raises if a user's codec returns something else than a packet, or more bits than were granted.
    """
    given = readonly_copy(update), bits, stream(seed, "compress", device, tick)
    found, memory = checks.call_part(codec, "codec", memory, len(update), given, method="encode")
    return _checked(codec, found, len(update), bits, device, tick), memory


def _checked(codec: Codec, found: Any, num_parameters: int, bits: float, device: int, tick: int) -> Packet:
    """Return what a codec encoded to; raise if it is no packet, or one of more bits than were granted."""
    label = checks.part_label("codec", codec)
    if not isinstance(found, Packet):
        raise TrainingError(f"{label} encoded to a {type(found).__name__}: return fedtide.codec.base.packet(...)")
    packet = checked_packet(found, num_parameters, label)
    if packet.bits > bits and packet.bits > most_bits(codec, num_parameters, bits, label):
        raise TrainingError(
            f"{label} encoded to {packet.bits} bits, and {bits:.1f} were granted to device {device} at aggregation "
            f"{tick}: keep to budget_bits"
        )
    return packet


class Packed(NamedTuple):
    """Encoded updates by device, and what these devices' codecs remember once the server has them."""

    sent: Mapping[int, Packet]
    memory: Mapping[int, Memory]


def encode_lot(
    codec: Codec,
    seed: int,
    tick: int,
    device: Sequence[int],
    granted: Floats,
    updates: Vectors,
    devices: Mapping[str, Mapping[int, Memory]],
    threads: int = 1,
) -> Packed:
    """Encode the updates [l d] of these devices into these bits [l] as simulated devices do, each with its own stream."""
    if _takes_many(codec):
        many: Any = codec
        rngs = [stream(seed, "compress", k, tick) for k in device]
        found = zip(device, many.encode_many(updates, granted.tolist(), rngs, threads), granted.tolist(), strict=True)
        return Packed({k: _checked(codec, each, len(updates[0]), bits, k, tick) for k, each, bits in found}, {})
    before = devices.get("codec", {})
    sent, memory = {}, {}
    for k, update, bits in zip(device, updates, granted.tolist(), strict=True):
        sent[k], after = encode_update(codec, update, bits, seed, k, tick, before.get(k))
        if after is not None:
            memory[k] = after
    return Packed(sent, memory)


def decode_lot(
    codec: Codec, lot: Packed, devices: Mapping[str, Mapping[int, Memory]], threads: int = 1
) -> tuple[list[Vector], Mapping[str, Mapping[int, Memory]]]:
    """Return the updates [l d] of a lot that arrived, and what devices remember then.

    A device's codec remembers an upload once the server has it: what is lost is not acknowledged.
    """
    packets = [*lot.sent.values()]
    if packets and _takes_many(codec):
        many: Any = codec
        return many.decode_many(packets, threads), devices
    if checks.is_ours(codec):
        updates = [codec.decode(packet) for packet in packets]
    else:
        updates = [decode_update(codec, packet, packet.num_parameters) for packet in packets]
    if not lot.memory:
        return updates, devices
    return updates, {**devices, "codec": versioned.versioned_dict(devices.get("codec", {})).after(lot.memory)}


def without(lot: Packed, lost: Collection[int]) -> Packed:
    """Return a lot without the packets that are lost, and without what their devices would remember."""
    sent = {k: packet for k, packet in lot.sent.items() if k not in lost}
    return Packed(sent, {k: memory for k, memory in lot.memory.items() if k in sent})


def _takes_many(codec: Any) -> bool:
    """Say whether a codec of ours takes several updates at once. It has to say so where it says how it encodes one."""
    return checks.is_ours(codec) and "encode_many" in vars(type(codec))


def decode_update(codec: Codec, packet: Packet, num_parameters: int) -> Vector:
    """Decode an update; raise if a codec returns something else than d finite numbers."""
    return checks.checked_vector(codec.decode(packet), num_parameters, checks.part_label("codec", codec))
