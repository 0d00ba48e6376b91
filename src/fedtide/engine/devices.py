"""What devices do: train, encode and send. Simulated ones train when their update counts, and send over their tick's channel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedtide import testing
from fedtide.aggregate.base import needs_server_update
from fedtide.codec.base import Codec, Packet, Sent, checked_packet, max_packet_bits
from fedtide.core.memory_budget import require_memory
from fedtide.core.versioned import versioned_dict
from fedtide.core.yaml12 import shown
from fedtide.engine.exchange import Announced, Delivered, ReadyDevices
from fedtide.engine.loop import Stopwatch, score_model, trainer_label
from fedtide.engine.outcome import outcome_of
from fedtide.engine.step import (
    SCALE_BITS,
    ServerState,
    sending_in_step,
    step_attempt,
    step_candidates,
    step_learning_rates,
    step_links,
    step_snr,
    step_starts,
)
from fedtide.engine.system import System
from fedtide.engine.uplink import Attempt, sending_part
from fedtide.errors import DivergedError, TrainingError
from fedtide.learning.trainer import Trainer, work_is_equal, work_rows
from fedtide.parts import checks
from fedtide.radio.over_the_air import Access
from fedtide.rng import stream
from fedtide.runs import trainer_name
from fedtide.types import (
    Floats,
    Grant,
    Ints,
    Job,
    Link,
    LocalWork,
    Memory,
    Tick,
    Trained,
    Vector,
    Vectors,
    read_only,
    readonly_copy,
)

DeviceMemory: TypeAlias = Mapping[str, Mapping[int, Memory]]  # what devices remember, by kind of part and device

_DIVERGED_WEIGHT = 1e6  # no weight of a model that learns is as large as this
# Of the updates that are there at once: numbers in all, and how many per thread at the least and at the most, so that threads
# do not wait for each other at the end of every lot.
_HELD, _FEWEST, _MOST = 1 << 24, 4, 32


# Training, with what the trainer remembers of each device.


def train_jobs(trainer: Trainer, jobs: Sequence[Job], devices: DeviceMemory) -> tuple[Vector, DeviceMemory]:
    """Train jobs of different devices; return the updates [r d], and what devices remember then."""
    known, memory = devices.get("trainer", {}), dict[int, Memory]()
    for job in jobs if checks.part_remembers(trainer) else ():
        new = job.device not in known  # it is touched for the first time
        memory[job.device] = checks.first_part_memory(trainer, "trainer", len(job.start)) if new else known[job.device]
    lent = [
        job._replace(
            start=readonly_copy(job.start),
            indices=read_only(job.indices),
            memory=checks.copied_memory(memory[job.device]) if memory else None,
        )
        for job in jobs
    ]
    answer: Any = trainer.train(lent)
    if not updates_state_on_train(trainer):
        return _checked_updates(answer, jobs, trainer), devices
    label, given = trainer_label(trainer), answer.memory if isinstance(answer, Trained) else None
    if not isinstance(given, list | tuple) or len(given) != len(jobs):
        what = f"Trained with {shown(given)}" if isinstance(answer, Trained) else f"a {type(answer).__name__}"
        raise TrainingError(
            f"{label} has memory and returned {what}: return Trained(updates, memory), a row and a memory for each of the "
            f"{len(jobs)} jobs"
        )
    updates = _checked_updates(answer.updates, jobs, trainer)
    for job, after in zip(jobs, given, strict=True):
        memory[job.device] = checks.checked_memory(after, memory[job.device], label)
    return updates, {**devices, "trainer": versioned_dict(known).after(memory)}


def _checked_updates(answer: Any, jobs: Sequence[Job], trainer: Trainer) -> Vector:
    """Return what a trainer made as float32, which is what devices send, a row for each job; raise if it is something else."""
    shape, updates = (len(jobs), len(jobs[0].start)), checks.answer_as_array(answer)
    if updates.shape != shape or updates.dtype.kind not in "fiu":
        raise TrainingError(
            f"{trainer_label(trainer)} returned updates {updates.dtype}{list(updates.shape)}: it must give float32 "
            f"{list(shape)}, one row for each job"
        )
    with np.errstate(over="ignore"):
        made: Vector = updates.astype(np.float32, copy=False)
    return made


def updates_state_on_ack(trainer: Trainer) -> bool:
    """Say whether what a trainer remembers of a device goes on with what arrives, not with every training."""
    return checks.part_remembers(trainer) and callable(getattr(trainer, "arrived", None))


def updates_state_on_train(trainer: Trainer) -> bool:
    """Say whether a trainer has to train every ready device, picked or not, since its memory goes on with it."""
    return checks.part_remembers(trainer) and not updates_state_on_ack(trainer)


def acknowledge_devices(
    trainer: Trainer, devices: DeviceMemory, device: Sequence[int], updates: Vectors
) -> DeviceMemory:
    """Let a trainer that waits for it remember what arrived [l d]: only these devices' memory goes on."""
    if not updates_state_on_ack(trainer) or not device:
        return devices
    memory = versioned_dict(devices.get("trainer", {}))
    after = {
        k: device_memory_after_arrival(trainer, memory.get(k), update)
        for k, update in zip(device, updates, strict=True)
    }
    return {**devices, "trainer": memory.after(after)}


def device_memory_after_arrival(trainer: Any, memory: Memory | None, update: Vector) -> Memory:
    """Return what a trainer remembers of a device whose update [d] the server has, as it reads it."""
    before = checks.first_part_memory(trainer, "trainer", len(update)) if memory is None else memory
    answer = trainer.arrived(checks.copied_memory(before), readonly_copy(update))
    return checks.checked_memory(answer, before, trainer_label(trainer))


# Sending: encoded by a device, decoded by the server. The one place where both are done and checked.


class Packed(NamedTuple):
    """Encoded updates by device, and what these devices' codecs remember once the server has them."""

    sent: Mapping[int, Packet]
    memory: Mapping[int, Memory]


def encode_update(
    codec: Codec, update: Vector, bits: float, seed: int, device: int, tick: int, memory: Memory | None = None
) -> tuple[Packet, Memory | None]:
    """Encode update [d] into the granted bits, with the stream of this device and tick.

    memory: what this device's codec remembers, None at its first upload. Returned with what it remembers now (None for a
    codec without memory). Raises if a user's codec returns something else than a packet, or more bits than were granted.
    """
    given = readonly_copy(update), bits, stream(seed, "compress", device, tick)
    found, memory = checks.call_part(codec, "codec", memory, len(update), given, method="encode")
    return _fitting(codec, found, len(update), bits, device, tick), memory


def _fitting(codec: Codec, found: Any, num_parameters: int, bits: float, device: int, tick: int) -> Packet:
    """Return what a codec encoded to; raise if it is no packet, or one of more bits than were granted."""
    label = checks.part_label("codec", codec)
    if not isinstance(found, Packet):
        raise TrainingError(f"{label} encoded to a {type(found).__name__}: return fedtide.codec.base.packet(...)")
    packet = checked_packet(found, num_parameters, label)
    if packet.bits > bits and packet.bits > max_packet_bits(codec, num_parameters, bits, label):
        raise TrainingError(
            f"{label} encoded to {packet.bits} bits, and {bits:.1f} were granted to device {device} at aggregation "
            f"{tick}: keep to budget_bits"
        )
    return packet


def encode_lot(
    codec: Codec,
    seed: int,
    tick: int,
    device: Sequence[int],
    granted: Floats,
    updates: Vectors,
    devices: DeviceMemory,
    threads: int = 1,
) -> Packed:
    """Encode the updates [l d] of these devices into these bits [l] as simulated devices do, each with its own stream."""
    budgets, sent, memory = granted.tolist(), dict[int, Packet](), dict[int, Memory]()
    if many := _many(codec):
        found = many.encode_many(updates, budgets, [stream(seed, "compress", k, tick) for k in device], threads)
        for k, packet, bits in zip(device, found, budgets, strict=True):
            sent[k] = _fitting(codec, packet, len(updates[0]), bits, k, tick)
        return Packed(sent, memory)
    before = devices.get("codec", {})
    for k, update, bits in zip(device, updates, budgets, strict=True):
        sent[k], after = encode_update(codec, update, bits, seed, k, tick, before.get(k))
        if after is not None:
            memory[k] = after
    return Packed(sent, memory)


def decode_lot(codec: Codec, lot: Packed, devices: DeviceMemory, threads: int = 1) -> tuple[list[Vector], DeviceMemory]:
    """Return the updates [l d] of a lot that arrived, and what devices remember then.

    A device's codec remembers an upload once the server has it: what is lost is not acknowledged.
    """
    packets = [*lot.sent.values()]
    if packets and (many := _many(codec)):
        return many.decode_many(packets, threads), devices
    updates = [decode_update(codec, packet, packet.num_parameters) for packet in packets]
    if not lot.memory:
        return updates, devices
    return updates, {**devices, "codec": versioned_dict(devices.get("codec", {})).after(lot.memory)}


def decode_update(codec: Codec, packet: Packet, num_parameters: int) -> Vector:
    """Decode an update; raise if a user's codec returns something else than d finite numbers."""
    found = codec.decode(packet)
    if checks.is_ours(codec):
        return found
    return checks.checked_vector(found, num_parameters, checks.part_label("codec", codec))


def lot_without_lost(lot: Packed, lost: Collection[int]) -> Packed:
    """Return a lot without the packets that are lost, and without what their devices would remember."""
    sent = {k: packet for k, packet in lot.sent.items() if k not in lost}
    return Packed(sent, {k: memory for k, memory in lot.memory.items() if k in sent})


def _many(codec: Any) -> Any:
    """Return a codec of ours that takes several updates at once. It has to say so where it says how it encodes one."""
    return codec if checks.is_ours(codec) and "encode_many" in vars(type(codec)) else None


def aircomp_sum(access: Access, seed: int, tick: int, snr: Floats) -> Callable[[Vectors, Floats], Vector]:
    """Return (updates [r d], weights [r]) -> their weighted sum as the server hears it [d], received at these SNRs [r]."""

    def heard(updates: Vectors, weights: Floats) -> Vector:
        rows = np.stack(list(updates))
        answer = access(read_only(rows), readonly_copy(weights), readonly_copy(snr), stream(seed, "air", tick))
        return checks.checked_vector(answer, rows.shape[1], checks.part_label("access", access))

    return heard


def analog_packets(device: Sequence[int], updates: Vectors) -> dict[int, Packet]:
    """Return what each device [r] sends over the air: all of its d parameters, and no bit."""
    return {k: Packet(len(update), len(update), 0, b"") for k, update in zip(device, updates, strict=True)}


# Devices that are simulated.


class _Known(NamedTuple):
    """What is known of a tick's ready devices before the schedule is made."""

    updates: Vector | None  # if they had to be trained already [m d]
    devices: DeviceMemory  # what they remember then


class Lot(NamedTuple):
    """Devices that train and send together."""

    device: Ints  # [l]
    start: Ints  # version that each trained from [l]
    job: Ints | None  # number of that training [l]; None: nobody asks
    bits: Floats  # granted [l]
    updates: Vector | None = None  # if they are trained already [l d]
    packets: Packed | None = None  # of those that arrive, if they are encoded already


@dataclass(frozen=True)
class Simulated:
    """Plays the devices of a system. eager: train every ready device, scheduled or not (same results, more work)."""

    system: System
    trainer: Trainer
    eager: bool = False
    watch: Stopwatch = Stopwatch()  # noqa: RUF009 - one that nobody reads
    threads: int = 1  # of the codec

    def prepare(self, state: ServerState, tick: Tick) -> ServerState:
        """Let the time pass until a tick: of simulated devices nothing changes."""
        return state

    def refuse_dice(self, state: ServerState, tick: Tick | None) -> None:
        """Raise if a trainer of the user's own trains the first devices of a tick otherwise when it is asked again."""
        if tick is not None and not checks.is_ours(self.trainer):
            jobs = self._jobs(state, tick.ready[:2], tick.start[:2], _some(tick.job, slice(2)))
            testing.refuse_dice(self.trainer, jobs, trainer_label(self.trainer))

    def ready(self, state: ServerState, tick: Tick) -> ReadyDevices:
        """Look up who is ready and how the links are; train first what a scheduler or a trainer's memory asks for."""
        system, needs = self.system, self.system.policy.needs
        link, devices, updates = step_links(system, tick), state.devices, None
        wanted = self.eager or "update_sq_norm" in needs or "outcome" in needs
        if len(tick.ready) and (wanted or updates_state_on_train(self.trainer)):
            count, num_parameters = len(tick.ready), self._length(state)
            require_memory(
                8.0 * count * num_parameters,
                f"training all {count:,} ready devices before the schedule is made, {num_parameters:,} parameters each,",
                "take a scheduler that needs no updates, a trainer without memory, fewer devices or a smaller model",
            )
            updates, devices = train_jobs(self.trainer, self._jobs(state, tick.ready, tick.start, tick.job), devices)
            self.watch.lap("training")
        reports: dict[str, Floats] = {}
        if "update_sq_norm" in needs:
            reports["update_sq_norm"] = np.array([_sq_norm(update) for update in (() if updates is None else updates)])
        if "loss" in needs:
            reports["loss"] = np.array(
                [
                    score_model(self.trainer, job.start, job.samples.taken(job.indices)).loss
                    for job in self._jobs(state, tick.ready, tick.start, tick.job)
                ]
            )
            self.watch.lap("training")
        rows = step_candidates(system, tick, state.uploads, link, reports)
        found = ReadyDevices(rows, link, _Known(updates, devices))
        if "outcome" in needs:
            unwatched = replace(self, watch=Stopwatch())
            rows = rows._replace(outcome=outcome_of(system, self.trainer, unwatched, state, tick, found))
        self.watch.lap("scheduling")
        return found._replace(rows=rows)

    def landed(self, state: ServerState, tick: Tick, link: Link) -> ReadyDevices:
        """Return those whose uploads are in, over the links that they were sent [m]."""
        rows = step_candidates(self.system, tick, state.uploads, link)
        return ReadyDevices(rows, link, _Known(None, state.devices))

    def announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Divide those that send into lots; where the aggregator needs it, train on the server's own samples, too."""
        announced = self._announce(state, tick, ready, grant)
        if not needs_server_update(self.system.policy.aggregator) or not len(announced.arriving):
            return announced
        return announced._replace(server_update=self._server_update(state))

    def _announce(self, state: ServerState, tick: Tick, ready: ReadyDevices, grant: Grant) -> Announced:
        """Divide those that send into lots. A packet of more bits than its link carries is lost.

        Where that can be, who arrives is known when all are encoded: then all packets are held, which take together what the
        tick's symbols carry, and not their updates, R d numbers.
        """
        self.watch.lap("scheduling")
        system, known, link = self.system, ready.kept, ready.link
        assert link is not None
        if grant.silent is not None and not system.over_the_air:
            grant = sending_part(grant)
        sending = sending_in_step(system, link, grant)
        picked, bits = grant.picked[sending], grant.bits[sending]
        held = _HELD // self._length(state)
        size = max(_FEWEST * self.threads, min(_MOST * self.threads, held))
        size = max(len(picked), 1) if system.over_the_air else size  # all at once
        lots = []
        for first in range(0, len(picked), size):
            at = picked[first : first + size]
            updates = None if known.updates is None else known.updates[at]
            device, start, job = tick.ready[at], tick.start[at], _some(tick.job, at)
            lots.append(Lot(device, start, job, bits[first : first + size], updates))
        if system.over_the_air:
            heard = aircomp_sum(system.access, system.experiment.seed, tick.index, step_snr(link, grant)[sending])
            return Announced(picked, lots, known.devices, {}, heard, float(SCALE_BITS * len(picked)))
        kept = state.memory.get("retransmission")
        again = picked[:0] if kept is None else picked[kept["attempts"][tick.ready[picked]] > 0]
        tried = step_attempt(system, tick, link, grant, grant.bits, kept)
        if not tried.lost.any():
            return Announced(picked, lots, known.devices, again=again, memory=_kept(tried))
        state = state._replace(devices=known.devices)
        packed = [self._encode(state, tick, lot, self._trained(state, lot)) for lot in lots]
        sent = {k: _size(packet) for lot in packed for k, packet in lot.sent.items()}
        bits = np.array([sent[k].bits for k in tick.ready[picked].tolist()])
        tried = step_attempt(system, tick, link, grant, bits, kept)
        lost = set(tick.ready[picked[tried.lost]].tolist())
        left = [lot._replace(packets=lot_without_lost(each, lost)) for lot, each in zip(lots, packed, strict=True)]
        full = [lot for lot in left if lot.packets and lot.packets.sent]
        keeps, arriving = picked[tried.again], picked[~tried.lost]
        return Announced(arriving, full, known.devices, sent, again=again, keeps=keeps, memory=_kept(tried))

    def send(self, state: ServerState, tick: Tick, lot: Lot) -> Delivered:
        """Train, encode and decode a lot; over the air, train it."""
        packets, updates = lot.packets, lot.updates
        if packets is None:
            if updates is None:
                jobs = self._jobs(state, lot.device, lot.start, lot.job)
                updates, _ = train_jobs(self.trainer, jobs, state.devices)
            if self.system.over_the_air:
                self._check_finite(state, tick, lot, updates)
                device = lot.device.tolist()
                devices = acknowledge_devices(self.trainer, state.devices, device, updates)
                return Delivered(updates, analog_packets(device, updates), devices)
            packets = self._encode(state, tick, lot, updates)
        decoded, devices = decode_lot(self.system.codec, packets, state.devices, self.threads)
        devices = acknowledge_devices(self.trainer, devices, [*packets.sent], decoded)
        self.watch.lap("codec")
        return Delivered(decoded, {k: _size(packet) for k, packet in packets.sent.items()}, devices)

    def _server_update(self, state: ServerState) -> Vector:
        """Return the update of a training on held-out samples from the current model [d], as by one more device."""
        samples, version = self.system.dataset.held_out, state.version
        assert samples is not None
        rate = float(step_learning_rates(self.system, np.array([version]))[0])
        indices = np.arange(len(samples.labels))
        job = Job(len(state.held), version, state.models[version], rate, samples, indices)
        update: Vector = train_jobs(self.trainer, [job], {})[0][0]
        return update

    def _trained(self, state: ServerState, lot: Lot) -> Vector:
        """Return the updates of a lot [l d]."""
        if lot.updates is not None:
            return lot.updates
        return train_jobs(self.trainer, self._jobs(state, lot.device, lot.start, lot.job), state.devices)[0]

    def _encode(self, state: ServerState, tick: Tick, lot: Lot, updates: Vector) -> Packed:
        """Encode the updates of a lot [l d]."""
        self._check_finite(state, tick, lot, updates)
        codec, seed, device = self.system.codec, self.system.experiment.seed, lot.device.tolist()
        packed = encode_lot(codec, seed, tick.index, device, lot.bits, updates, state.devices, self.threads)
        self.watch.lap("codec")
        return packed

    def _check_finite(self, state: ServerState, tick: Tick, lot: Lot, updates: Vector) -> None:
        """Raise if an update of a lot holds NaN or infinity."""
        self.watch.lap("training")
        if np.isfinite(updates).all():
            return
        broken = lot.device[~np.isfinite(updates).all(axis=1)].tolist()
        some = ", ".join(map(str, broken[:8])) + (f" and {len(broken) - 8} more" if len(broken) > 8 else "")
        raise DivergedError(
            f"the update of device {some} at aggregation {tick.index} is not finite: training diverged; "
            f"{_remedy(self.system, self.trainer, state)} (everything up to the previous aggregation is saved)"
        )

    def _length(self, state: ServerState) -> int:
        """Return d, of what a device receives."""
        return len(state.models[state.version]) // (1 if self.system.edges is None else self.system.edges.count)

    def _jobs(self, state: ServerState, device: Ints, start: Ints, job: Ints | None) -> list[Job]:
        """Return the trainings of these devices from the versions they hold. job: their numbers [l]."""
        train_set, partition = self.system.dataset.train, self.system.fleet.partition
        rates, own = step_learning_rates(self.system, start), self.system.device_work
        work: list[LocalWork | None] = [None] * len(device)
        if not work_is_equal(own.part):
            columns, factors = own.of(device, job)
            work, rates = [*work_rows(columns, len(device))], rates if factors is None else rates * factors
        numbers: list[int | None] = [None] * len(device)
        if job is not None and self.system.experiment.learning.seed_by == "job":
            numbers = job.tolist()
        return [
            Job(k, version, model, rate, train_set, partition[k], work=each, number=number)
            for k, version, model, rate, each, number in zip(
                device.tolist(),
                start.tolist(),
                step_starts(self.system, state, device, start),
                rates.tolist(),
                work,
                numbers,
                strict=True,
            )
        ]


def _kept(tried: Attempt) -> dict[str, Memory]:
    """Return what the server has of packets that are not complete, by kind of part."""
    return {} if tried.memory is None else {"retransmission": tried.memory}


def _some(job: Ints | None, at: Any) -> Ints | None:
    """Return the numbers of some jobs, if there are any."""
    return None if job is None else job[at]


def _sq_norm(update: Vector) -> float:
    """Return ||u||^2, in double precision."""
    return float(np.square(update, dtype=np.float64).sum())


def _size(packet: Packet) -> Sent:
    """Return what is recorded of a packet."""
    return Sent(packet.num_kept, packet.bits, packet.overhead_bits)


def _remedy(system: System, trainer: Trainer, state: ServerState) -> str:
    """Say what most likely made the training diverge, and what to do."""
    learning = system.experiment.learning
    largest = max(float(np.abs(model).max()) for model in state.models.values())
    for kind, part in (("aggregator", system.policy.aggregator), ("codec", system.codec)):
        if largest > _DIVERGED_WEIGHT and not checks.is_ours(part):
            return f"the global model holds values up to {largest:.3g}: look at {checks.part_label(kind, part)}"
    if learning.proximal * learning.learning_rate >= 2 and learning.learning_rate <= 1:
        return (
            f"learning.proximal={learning.proximal:g} times learning.learning_rate={learning.learning_rate:g} is at least 2, "
            "with which every step overshoots more than the last; lower learning.proximal"
        )
    own = trainer_name(trainer) != learning.trainer.name
    return f"{f'look at {trainer_label(trainer)}, or ' if own else ''}lower learning.learning_rate={learning.learning_rate:g}"
