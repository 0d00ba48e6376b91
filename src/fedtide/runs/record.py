"""What is recorded of one aggregation: who took part, what it cost, how the model does; and how that is written."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from fedtide.core.yaml12 import shown
from fedtide.devices.energy import Energy, energy_is_counted, energy_of_bits
from fedtide.engine.step import Info, granted_rates
from fedtide.engine.system import MODEL_BITS, System
from fedtide.learning.trainer import DeviceWork
from fedtide.radio.allocation import symbols_per_packet
from fedtide.radio.downlink import downlink_is_shared
from fedtide.radio.over_the_air import is_not_over_the_air
from fedtide.schedule.label_variance import label_variance
from fedtide.types import Candidates, Floats, Ints, Tick, documented

ROUND_FORMAT: Final = 1
SHORT_COLUMN_ENTRIES: Final = 256  # entries; up to here a JSON list is as good, and can be read
MOST_COLUMN_ENTRIES: Final = 2**24  # entries; no fleet has more devices
_LEVEL: Final = 6  # of zlib: the same bytes every time
_PACKED = re.compile(r"(<[if]8):([A-Za-z0-9+/=]*)")
_EXACT: Final = 2**63  # whole numbers below it fit
PER_UPLOAD: Final = ("age", "capacity", "symbols", "budget_bits", "sent_bits", "overhead_bits", "num_kept", "weight")
PER_UPLOAD_IF_ANY: Final = ("cell", "interference", "edge")  # empty where a run has no such thing
_COLUMNS: Final = ("ready", "picked", *PER_UPLOAD, *PER_UPLOAD_IF_ANY, "lost", "retransmitted")


@documented
class Ledger(NamedTuple):
    """What the run has spent so far, whether it arrived or not. Symbols that were granted and not sent cost nothing."""

    symbols: float = 0.0  # granted
    bits: float = 0.0
    samples_used: int = 0  # visited in trainings whose updates were sent
    samples_trained: int = 0  # visited by all ready devices; the rest of it was wasted
    control_bits: float = 0.0  # for statistics that devices reported before scheduling
    bits_down: float = 0.0  # of new models to the devices that were ready; a shared transmission counts once
    air_time: float = 0.0  # of the symbols sent, at radio.symbol_rate; 0: not counted
    joules: float = 0.0  # of training and of the symbols sent; 0: not counted
    # that packets took, of those granted; None in runs of older versions, whose air_time and joules count the symbols granted
    symbols_sent: float | None = None
    co2_grams: float | None = None  # of these joules; None: not counted

    @property
    def counts_sent(self) -> bool:
        """Do air_time and joules count what was sent? Else they count what was granted."""
        return self.symbols_sent is not None or not self.symbols


@documented
class RoundRecord(NamedTuple):
    """One aggregation. Lists run over the picked devices, ascending."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    time: float
    ready: list[int]
    picked: list[int]
    age: list[int]
    capacity: list[float]  # bit/symbol
    symbols: list[float]
    budget_bits: list[float]
    sent_bits: list[int | float]  # payloads, at most the budget
    overhead_bits: list[int]  # headers and checksums, which no budget counts
    num_kept: list[int]
    label_variance: float
    proved_minimal: bool | None
    weight: list[float]
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    ledger: Ledger
    # The defaults are shared by all records and never changed, as their types say.
    lost: Sequence[int] = []  # those picked whose update was sent and did not arrive
    metrics: Mapping[str, FiniteFloat] = {}  # whatever else was measured, by name
    unnamed: Annotated[int, Field(ge=0)] = 0  # ready devices besides those in `ready`: all of them in a large fleet
    retransmitted: Sequence[int] = []  # those picked that sent a lost packet once more
    edge: Sequence[int] = []  # edge server that each was sent to; empty: there is one server
    cell: Sequence[int] = []  # that each sent to, if there are several
    interference: Sequence[FiniteFloat] = []  # that each met there, in times the noise, if there are several

    @property
    def num_ready(self) -> int:
        """How many devices were ready."""
        return len(self.ready) + self.unnamed

    @property
    def silent(self) -> list[int]:
        """The picked devices that sent nothing: too weak, gone, or with room for a header only."""
        sent, lost = zip(self.picked, self.num_kept, self.sent_bits, strict=True), set(self.lost)
        return [device for device, kept, bits in sent if not kept and not bits and device not in lost]

    @property
    def num_arrived(self) -> int:
        """How many updates arrived: of those picked, all that were neither lost nor silent."""
        return len(self.picked) - len(self.lost) - len(self.silent)

    def to_json(self) -> str:
        """Return one line of JSON."""
        tree: dict[str, Any] = {"format": ROUND_FORMAT, **self._asdict(), "ledger": self.ledger._asdict()}
        tree |= {name: _write_column(tree[name]) for name in _COLUMNS}
        for name in ("retransmitted", *PER_UPLOAD_IF_ANY):
            if not tree[name]:
                del tree[name]
        for name in ("symbols_sent", "co2_grams"):
            if tree["ledger"][name] is None:
                del tree["ledger"][name]
        return json.dumps(tree, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str, num_devices: int = MOST_COLUMN_ENTRIES) -> RoundRecord:
        """Read one line of JSON; raise ValueError if it is no round of so many devices."""
        tree = json.loads(line)
        if not isinstance(tree, dict):
            raise ValueError(f"a round is a mapping, not a {type(tree).__name__}")
        kind = tree.pop("format", None)
        if kind != ROUND_FORMAT or type(kind) is not int:
            raise ValueError(f"a round of format {shown(kind, 40)}; this fedtide reads format {ROUND_FORMAT}")
        tree |= {name: _read_column(tree[name], num_devices) for name in _COLUMNS if name in tree}
        try:
            record = _reader().validate_python(tree)
        except ValidationError as error:
            raise ValueError(record_problem(error)) from None
        record._check(num_devices)
        return record

    def _check(self, num_devices: int) -> None:
        """Raise ValueError if columns differ in length or name devices that there are not."""
        for name in (*PER_UPLOAD, *(name for name in PER_UPLOAD_IF_ANY if getattr(self, name))):
            if len(getattr(self, name)) != len(self.picked):
                raise ValueError(
                    f"a round has {len(getattr(self, name))} entries of {name} and {len(self.picked)} uploads"
                )
        for name in ("ready", "picked", "lost", "retransmitted"):
            devices = getattr(self, name)
            if devices and not 0 <= min(devices) <= max(devices) < num_devices:
                raise ValueError(f"a round's {name} has a device that is not one of {num_devices:,}")
        if self.num_ready > num_devices:
            raise ValueError(f"a round has {self.num_ready:,} ready devices, and there are {num_devices:,}")


@functools.cache
def _reader() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord, config=ConfigDict(strict=True))


def record_problem(error: ValidationError) -> str:
    """Say in one line what is wrong with a stored value: the first thing that was found."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}={shown(first['input'], 40)}: {first['msg']}"


@dataclass(frozen=True)
class Costs:
    """What the parts of an aggregation cost."""

    work: DeviceWork  # what each device does in a local training
    seed: int
    model_bits: float  # of a model on its way to a device
    shared: bool  # one transmission serves all who receive a model
    symbol_rate: float  # symbols per unit of time; 0: time on the air is not counted
    energy: Energy | None  # None: not counted
    at_once: bool = False  # who sends does so on all symbols of the tick, together with the others
    num_samples: Ints | None = None  # |S_k| [N]; None: no training is ever given up

    def after(self, spent: Ledger, info: Info, bits: float, sending: Sequence[int]) -> Ledger:
        """Return what is spent after an aggregation. bits: of the payloads; sending: positions of those who sent one.

        All who are ready have trained and receive the new model, picked or not. A run that was begun by an older version goes
        on counting what is granted.
        """
        grant, tick, counts_sent = info.grant, info.tick, spent.counts_sent
        samples, symbols = self._samples(tick, info.rows), float(grant.symbols.sum())
        sent = self._symbols_sent(info) if counts_sent or self.at_once else grant.symbols
        on_air = (float(sent.max(initial=0.0)) if self.at_once else math.fsum(sent)) if counts_sent else symbols
        receivers = len(info.rows.device) if tick.num_receivers is None else tick.num_receivers
        receivers = min(receivers, 1) if self.shared else receivers
        ready, rows = info.ready
        trained = samples if info.waiting is None else self._samples(ready, rows)
        trained = trained if ready.fresh is None else trained * ready.fresh  # who waits to be picked trained before
        given_up = 0 if ready.dropped is None else int(self._dropped(ready)[1].sum())
        first = [at for at in sending if at not in info.again]  # whose update was not sent before
        joules = self._joules(info, trained, sent)
        co2_grams = getattr(self.energy, "co2_grams", None)
        return Ledger(
            symbols=spent.symbols + symbols,
            bits=spent.bits + bits,
            samples_used=spent.samples_used + int(samples[first].sum()),
            samples_trained=spent.samples_trained + int(trained.sum()) + given_up,
            control_bits=spent.control_bits + info.control_bits,
            bits_down=spent.bits_down + self.model_bits * receivers,
            air_time=spent.air_time + (on_air / self.symbol_rate if self.symbol_rate else 0.0),
            joules=spent.joules + joules,
            symbols_sent=(spent.symbols_sent or 0.0) + on_air if counts_sent else None,
            co2_grams=None if co2_grams is None else (spent.co2_grams or 0.0) + co2_grams(info.time, joules),
        )

    def _dropped(self, tick: Tick) -> tuple[Ints, Ints, Floats]:
        """Return whose trainings were given up before a tick, of how many samples, at which speed: they count whole."""
        device, job, speed = (np.zeros((0, 3)) if tick.dropped is None else tick.dropped).T
        assert self.num_samples is not None
        who = device.astype(np.int64)
        return who, self.work.samples(who, job.astype(np.int64), self.num_samples[who]), speed

    def _samples(self, tick: Tick, rows: Candidates) -> Ints:
        """Return how many samples the devices of a tick have visited in their last training [m]."""
        return self.work.samples(rows.device, tick.job, rows.num_samples)

    def _symbols_sent(self, info: Info) -> Floats:
        """Return the symbols that each picked device sent [r]: those that its packet takes, or all of them if all send at once."""
        grant, rows = info.grant, info.rows
        if self.at_once:  # those that stay silent send nothing
            return np.where(np.isin(grant.picked, info.arrived), grant.symbols.sum(), 0.0)
        bits = self._bits_sent(info)
        return symbols_per_packet(bits, granted_rates(rows, grant), grant.symbols)

    def _bits_sent(self, info: Info) -> Floats:
        """Return the bits of the packet that each picked device sent [r]; none if all send at once, uncoded."""
        packets = [info.sent.get(device) for device in info.rows.device[info.grant.picked].tolist()]
        return np.array([packet.bits if packet and not self.at_once else 0 for packet in packets], np.float64)

    def _joules(self, info: Info, samples: Ints, sent: Floats) -> float:
        if self.energy is None:
            return 0.0
        device = info.rows.device[info.grant.picked]
        of_bits = math.fsum(energy_of_bits(self.energy, self.seed, device, self._bits_sent(info)))
        return of_bits + self._joules_of_work(self.energy, info, samples, sent)

    def _joules_of_work(self, energy: Energy, info: Info, samples: Ints, sent: Floats) -> float:
        """Return what trainings and symbols take in J."""
        symbols = np.zeros(len(info.rows.device))
        symbols[info.grant.picked] = sent if info.grant.power is None else sent * info.grant.power
        tick, rows = info.ready
        given_up = 0.0
        if tick.dropped is not None:
            device, visited, speed = self._dropped(tick)
            given_up = math.fsum(energy(self.seed, device, visited * speed**2, np.zeros(len(device))))  # type: ignore[arg-type]
        if tick.speed is not None:  # the energy of a cycle grows with the square of the frequency
            samples = samples * tick.speed**2  # type: ignore[assignment]
        if info.waiting is None:
            return given_up + math.fsum(energy(self.seed, rows.device, samples, symbols))  # in any order the same
        trained = energy(self.seed, rows.device, samples, np.zeros(len(samples)))
        landed = energy(self.seed, info.rows.device, np.zeros(len(symbols), np.int64), symbols)
        return given_up + math.fsum([*trained, *landed])


def record_costs(system: System, num_parameters: int) -> Costs:
    """Return the costs of a system whose models have so many parameters."""
    return Costs(
        work=system.device_work,
        seed=system.experiment.seed,
        model_bits=MODEL_BITS * num_parameters,
        shared=downlink_is_shared(system.downlink),
        symbol_rate=system.experiment.radio.symbol_rate,
        energy=system.energy if energy_is_counted(system.energy) else None,
        at_once=not is_not_over_the_air(system.access),
        num_samples=system.fleet.num_samples,
    )


class Scores(NamedTuple):
    """How the model after an aggregation does; None where it was not evaluated, or the loss is not finite."""

    accuracy: float | None = None
    loss: float | None = None
    train_loss: float | None = None
    metrics: Mapping[str, float] = {}  # what else was measured, by name


def round_record(info: Info, scores: Scores, ledger: Ledger, costs: Costs, names_ready: bool = True) -> RoundRecord:
    """Return the record. ledger: what was spent before. names_ready: False for a large fleet, which only counts them.

    A picked device that sent nothing has no bits; one whose update did not arrive weighs nothing.
    """
    rows, grant = info.rows, info.grant
    picked = rows.device[grant.picked].tolist()
    packets = [info.sent.get(device) for device in picked]
    weight = dict(zip(rows.device[info.arrived].tolist(), info.weights.tolist(), strict=True))
    sending = [position for position, packet in zip(grant.picked.tolist(), packets, strict=True) if packet]
    return RoundRecord(
        index=info.tick.index,
        time=info.time,
        ready=rows.device.tolist() if names_ready else [],
        picked=picked,
        age=rows.age[grant.picked].tolist(),
        capacity=(rows.capacity[grant.picked] if grant.rate is None else grant.rate).tolist(),
        symbols=grant.symbols.tolist(),
        budget_bits=grant.bits.tolist(),
        sent_bits=[packet.bits if packet else 0 for packet in packets],
        overhead_bits=[packet.overhead_bits if packet else 0 for packet in packets],
        num_kept=[packet.num_kept if packet else 0 for packet in packets],
        label_variance=label_variance(rows.label_counts[grant.picked]),
        proved_minimal=grant.proved_minimal,
        weight=[weight.get(device, 0.0) for device in picked],
        test_accuracy=scores.accuracy,
        test_loss=scores.loss,
        train_loss=scores.train_loss,
        ledger=costs.after(ledger, info, sum(packet.bits for packet in packets if packet), sending),
        lost=[device for device in picked if device in info.sent and device not in weight],
        metrics={**grant.metrics, **scores.metrics} if scores.metrics else grant.metrics,
        unnamed=0 if names_ready else len(rows.device),
        retransmitted=rows.device[info.again].tolist(),
        edge=[] if info.edge is None else info.edge[grant.picked].tolist(),
        cell=[] if grant.cell is None else grant.cell.tolist(),
        interference=[] if grant.interference is None else grant.interference.tolist(),
    )


# Columns as text: numbers, one per device, in a fraction of what a JSON list of them takes, and exact.
#
# A packed column is `<i8:` or `<f8:` (NumPy's names for its numbers) and base64 of zlib of its bytes. Whole numbers are
# written as their differences, so that ascending devices are small ones; bytes of one significance lie together in a plane,
# so that zlib finds them alike.


def _write_column(values: Sequence[Any]) -> Sequence[Any] | str:
    """Return a list as a record has it: packed if it is long and of one kind of number, else as it is."""
    if len(values) <= SHORT_COLUMN_ENTRIES:
        return values
    kinds = set(map(type, values))
    if kinds == {float}:
        return _pack_column(np.array(values, np.float64))
    if kinds == {int} and min(values) >= -_EXACT and max(values) < _EXACT:
        return _pack_column(np.array(values, np.int64))
    return values


def _pack_column(values: npt.NDArray[Any]) -> str:
    """Return a column [m] of int64 or float64 as text."""
    whole = values.dtype.kind == "i"
    numbers = (_differences(values) if whole else values).astype("<i8" if whole else "<f8")
    table = numbers.view(np.uint8).reshape(len(values), 8)  # [m bytes]
    # Z_RLE: runs of one byte are all that the planes repeat, and looking for more makes them longer.
    zipper = zlib.compressobj(_LEVEL, strategy=zlib.Z_RLE)
    content = zipper.compress(table.T.tobytes()) + zipper.flush()
    return f"{numbers.dtype.str}:{base64.b64encode(content).decode()}"


def _read_column(value: Any, most: int = MOST_COLUMN_ENTRIES) -> list[Any]:
    """Return the list that `_write_column` was given; raise ValueError if it is none, or longer than `most`."""
    found: list[Any] = value if isinstance(value, list) else _unpack_column(value, most).tolist()
    if len(found) > most:
        raise ValueError(f"a column has {len(found):,} entries, and {most:,} are the most")
    return found


def _unpack_column(text: Any, most: int = MOST_COLUMN_ENTRIES) -> npt.NDArray[Any]:
    """Return a packed column [m]; raise ValueError if it is none, or longer than `most`: a bomb is not unpacked."""
    found = _PACKED.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("a column is neither a list of numbers nor a packed one")
    unzip = zlib.decompressobj()
    try:
        content = unzip.decompress(base64.b64decode(found[2], validate=True), 8 * most + 1)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"a packed column is broken: {error}") from None
    if len(content) > 8 * most:
        raise ValueError(f"a packed column has more than {most:,} entries")
    if not unzip.eof or unzip.unused_data or len(content) % 8:
        raise ValueError("a packed column is broken: it ends too early or too late")
    table = np.frombuffer(content, np.uint8).reshape(8, -1)
    numbers = np.ascontiguousarray(table.T).reshape(-1).view(found[1])
    return _sums(numbers) if found[1] == "<i8" else numbers.astype(np.float64)


def _differences(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each number less the one before, modulo 2^64, the sign in the lowest bit: 0, -1, 1, -2 become 0, 1, 2, 3."""
    steps = np.diff(values, prepend=np.int64(0))
    return np.asarray((steps << 1) ^ (steps >> 63))


def _sums(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Undo `_differences`."""
    unsigned = steps.astype(np.uint64)
    return np.cumsum((unsigned >> np.uint64(1)) ^ -(unsigned & np.uint64(1)), dtype=np.uint64).view(np.int64)
