"""An update on its way: encoded by a device, decoded by the server. The one place where both are done and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.codec.base import Codec, Packet, checked_packet, most_bits
from fedtide.core import versioned
from fedtide.engine import checks
from fedtide.engine.step import Received
from fedtide.errors import TrainingError
from fedtide.parts import registry, user_code
from fedtide.rng import stream
from fedtide.types import Floats, Memory, Vector, readonly_copy


def encode_update(
    codec: Codec, update: Vector, bits: float, seed: int, device: int, tick: int, memory: Memory | None = None
) -> tuple[Packet, Memory | None]:
    """Encode update [d] into the granted bits, with the stream of this device and tick.

    memory: what this device's codec remembers, None at its first upload. Returned with what it remembers now (None for a
    codec without memory). Raises if a user's codec returns something else than a packet, or more bits than were granted.
    """
    rng = stream(seed, "compress", device, tick)
    if registry.remembers(codec):
        label = user_code.part_label("codec", codec)
        before = checks.first_memory(codec, "codec", len(update)) if memory is None else memory
        call: Any = codec.encode
        found, memory = checks.checked_pair(
            call(checks.readonly_memory(before), readonly_copy(update), bits, rng), before, label
        )
    else:
        found, memory = codec.encode(readonly_copy(update), bits, rng), None
    return _checked(codec, found, len(update), bits, device, tick), memory


def _checked(codec: Codec, found: Any, num_parameters: int, bits: float, device: int, tick: int) -> Packet:
    """Return what a codec encoded to; raise if it is no packet, or one of more bits than were granted."""
    label = user_code.part_label("codec", codec)
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


def packed(
    codec: Codec,
    seed: int,
    tick: int,
    device: Sequence[int],
    granted: Floats,
    updates: Mapping[int, Vector],
    devices: Mapping[str, Mapping[int, Memory]],
    threads: int = 1,
) -> Packed:
    """Encode the updates of the picked devices [r] into these bits [r] as simulated devices do."""
    if device and _takes_many(codec):
        return Packed(_encoded_together(codec, seed, tick, device, granted, updates, threads), {})
    before = devices.get("codec", {})
    sent, memory = {}, {}
    for k, bits in zip(device, granted.tolist(), strict=True):
        sent[k], after = encode_update(codec, updates[k], bits, seed, k, tick, before.get(k))
        if after is not None:
            memory[k] = after
    return Packed(sent, memory)


def received(
    codec: Codec,
    lot: Packed,
    lost: Collection[int],
    devices: Mapping[str, Mapping[int, Memory]],
    threads: int = 1,
) -> Received:
    """Decode what was encoded, but for the lost packets.

    A device's codec remembers an upload once the server has it: what is lost is not acknowledged.
    """
    arriving = {k: packet for k, packet in lot.sent.items() if k not in lost}
    if arriving and _takes_many(codec):
        return Received(lot.sent, _decoded_together(codec, arriving, threads), devices)
    updates = {k: decode_update(codec, packet, packet.num_parameters) for k, packet in arriving.items()}
    memory = {k: each for k, each in lot.memory.items() if k in arriving}
    table = versioned.versioned_dict(devices.get("codec", {}))
    return Received(lot.sent, updates, {**devices, "codec": table.after(memory)} if memory else devices)


def _takes_many(codec: Any) -> bool:
    """Say whether a codec of ours takes several updates at once. It has to say so where it says how it encodes one."""
    return user_code.is_ours(codec) and "encode_many" in vars(type(codec))


def _encoded_together(
    codec: Any,
    seed: int,
    tick: int,
    device: Sequence[int],
    granted: Floats,
    updates: Mapping[int, Vector],
    threads: int,
) -> dict[int, Packet]:
    """Encode the updates of these devices [r], each with its own stream as `encoded` does, on so many threads."""
    bits, rngs = granted.tolist(), [stream(seed, "compress", k, tick) for k in device]
    found = codec.encode_many([updates[k] for k in device], bits, rngs, threads)
    each = zip(device, found, bits, strict=True)
    return {k: _checked(codec, packet, len(updates[k]), most, k, tick) for k, packet, most in each}


def _decoded_together(codec: Any, came: Mapping[int, Packet], threads: int) -> dict[int, Vector]:
    rows = codec.decode_many([*came.values()], threads)
    label = user_code.part_label("codec", codec)
    return {
        k: checks.vector(row, packet.num_parameters, label) for (k, packet), row in zip(came.items(), rows, strict=True)
    }


def decode_update(codec: Codec, packet: Packet, num_parameters: int) -> Vector:
    """Decode an update; raise if a user's codec returns something else than d numbers."""
    return checks.vector(codec.decode(packet), num_parameters, user_code.part_label("codec", codec))
