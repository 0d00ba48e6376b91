"""The small values that pass between the stages. Shapes: N devices, m ready, r picked, c labels, d parameters."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Vector: TypeAlias = npt.NDArray[np.float32]  # a model or an update [d], or several [r d]
Vectors: TypeAlias = Sequence[Vector] | Vector  # several [r d], as rows or as one array
Rng: TypeAlias = np.random.Generator
Memory: TypeAlias = dict[str, npt.NDArray[Any]]  # what a part remembers, by name; names, shapes and types never change
DType = TypeVar("DType", bound=np.dtype[Any])
Cls = TypeVar("Cls")


def documented(cls: type[Cls]) -> type[Cls]:
    """Let help() show the fields of a class with their comments, which stand between its docstring and its methods."""
    cls.__doc__ = _FieldsDoc(cls.__doc__ or "")  # type: ignore[assignment]  # Python calls a descriptor here as anywhere
    return cls


class _FieldsDoc:
    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, _: object, cls: type[Any]) -> str:
        try:
            body = textwrap.dedent(inspect.getsource(cls)).split('"""', 2)[2]
        except (OSError, TypeError, IndexError):  # there is no source here, or another class inherits the docstring
            return self.text
        fields = re.sub(r" *# (type: ignore|noqa)\S*", "", re.split(r"\n    (?:@|def )", body)[0])
        return f"{inspect.cleandoc(self.text)}\n\nFields:\n{fields.strip(chr(10))}\n"


def read_only(array: np.ndarray[Any, DType]) -> np.ndarray[Any, DType]:
    """Return a view that cannot be written to: what a policy is given belongs to the server.

    Cannot by mistake: `torch.from_numpy` takes no notice. What is needed afterwards is lent.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def readonly_copy(array: np.ndarray[Any, DType]) -> np.ndarray[Any, DType]:
    """Return a copy that cannot be written to: whoever finds a way to, changes nothing of ours."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@documented
class Samples(NamedTuple):
    """Labelled images, normalised. Images are float32, or bytes with a table of their values (a quarter of the memory)."""

    images: npt.NDArray[Any]  # float32, or uint8 with `values` [n channels height width], C-contiguous
    labels: npt.NDArray[np.uint8]  # label of each image [n]
    values: npt.NDArray[np.float32] | None = (
        None  # the value of each byte in each channel [channels 256]; None: images are float32
    )

    def taken(self, which: Any) -> Samples:
        """Return some of the samples, by sample numbers [m] or a slice."""
        return Samples(np.ascontiguousarray(self.images[which]), self.labels[which], self.values)

    def floats(self) -> npt.NDArray[np.float32]:
        """Return the images as float32 [n channels height width]; for bytes, a copy."""
        if self.values is None:
            return self.images
        channel = np.arange(self.images.shape[1])[:, None, None]
        return np.ascontiguousarray(self.values[channel, self.images])


@documented
class Dataset(NamedTuple):
    """A data set: training samples for the devices, test samples for the server."""

    name: str
    train: Samples  # training samples
    test: Samples  # test samples
    num_labels: int  # number of labels
    source: str  # origin of the data, kept in the run's record
    owners: Ints | None = None  # natural owner of each training sample, 0, 1, ... [n]; None: no owners
    held_out: Samples | None = None  # samples for schedulers that look ahead, used neither for training nor for testing

    def lent(self) -> Dataset:
        """Return the same with views that cannot be written to: what a user's part is given belongs to the run."""
        train, test, *held = (
            Samples(
                read_only(part.images), read_only(part.labels), None if part.values is None else read_only(part.values)
            )
            for part in (self.train, self.test, self.held_out)
            if part is not None
        )
        owners = None if self.owners is None else read_only(self.owners)
        return self._replace(train=train, test=test, owners=owners, held_out=held[0] if held else None)


@documented
class Tick(NamedTuple):
    """One aggregation of a timeline. Ticks count from 1; the model before tick t is version t."""

    index: int  # type: ignore[assignment]  # t; hides tuple.index
    time: float  # simulated time, in the unit of fleet.max_duration
    ready: Ints  # K(t), device numbers of the ready devices, ascending [m]
    start: Ints  # s_k(t), the model version that each of them trained from [m]
    # the version that each continues with, t or t+1, and when it received it [m]; None: all receive t+1 now
    received: tuple[Ints, Floats] | None = None
    job: Ints | None = None  # the number of the training that each has finished, 1, 2, ... [m]; None: not needed
    # of a world that reacts:
    landed: Ints | None = (
        None  # devices whose uploads arrived since the last tick, ascending; None: the server waits for all uploads
    )
    fresh: npt.NDArray[np.bool_] | None = None  # whether each ready device finished since the last tick [m]; None: all
    dropped: Floats | None = None  # device, job and speed of trainings that were aborted since the last tick [n 3]
    num_receivers: int | None = None  # number of models sent out since the last tick; None: one per ready device
    speed: Floats | None = None  # speed at which each trained, relative to its nominal frequency [m]; None: 1
    began: Floats | None = None  # when each received its model [m]
    ended: Floats | None = None  # when each had its update [m]
    battery: Floats | None = None  # remaining energy in J [m]; None: no batteries


@documented
class Clock(NamedTuple):
    """What a timeline knows about the devices: their number, and how long each training takes."""

    num_devices: int  # N
    horizon: float  # total simulated time
    # (device [m], job [m], time [m]) -> duration until each is ready, if it receives a model at that time [m];
    elapsed: Callable[..., Floats]  # takes a fourth argument, speed [m], if not all speeds are 1
    # (device [m], time [m]) -> when each is next available, at that time or later [m]; None: always available
    next_available: Callable[[Ints, Floats], Floats] | None = None
    # as `elapsed`, without the time during which a device is away; None: the same
    work: Callable[..., Floats] | None = None


@documented
class Signal(NamedTuple):
    """The SNRs of some uplinks at one tick, and the server's estimates."""

    snr: Floats  # SNR, linear and not in dB [m], or in every resource block [m b]
    estimated_snr: Floats  # the server's estimate, in the same form


@documented
class Link(NamedTuple):
    """The uplinks of some devices at one tick. A packet with more bits than its link can carry does not arrive."""

    capacity: Floats  # C_k in bit/symbol [m]
    estimated_capacity: Floats  # the server's estimate in bit/symbol, which scheduler and allocation see [m]
    signal: Signal | None = (
        None  # the SNRs from which a modem computed the capacities; None: the channel gave capacities
    )


def per_link(modem: Callable[[Floats], Any], snr: Floats) -> Floats:
    """Ask a modem, which knows columns only, for links in several blocks [m b]."""
    return np.asarray(modem(np.ravel(snr))).reshape(np.shape(snr))


def packet_error_chance(modem: Any, snr: Floats, estimated_snr: Floats, bits: Floats) -> Floats:
    """Return how likely a modem loses packets of so many bits, over links in several blocks [m b]."""
    if not getattr(modem, "error_by_size", False):
        return per_link(modem.error, snr)
    columns = (np.ravel(np.broadcast_to(each, np.shape(snr))) for each in (snr, estimated_snr, bits))
    return np.asarray(modem.error(*columns)).reshape(np.shape(snr))


@documented
class UplinkView(NamedTuple):
    """What the uplinks of the candidates would carry in each of the b resource blocks, as the server estimates it."""

    snr: Floats  # SNR at nominal power, linear and not in dB [m b]
    modem: Callable[[Floats], Floats]  # SNR -> bit/symbol
    symbols: float  # total of all blocks; with several cells, of each cell
    symbol_rate: float  # symbols per unit of time; 0: not known
    max_power: float  # largest power, relative to the nominal power

    def capacity(self, power: npt.ArrayLike = 1.0) -> Floats:
        """Return bit/symbol [m b] at a power, one for all, one each [m] or in each block [m b], in times the nominal power."""
        return per_link(self.modem, self._at(power))

    def error(self, power: npt.ArrayLike = 1.0, bits: npt.ArrayLike | None = None) -> Floats:
        """Return how likely a packet is lost that fits the link [m b]; 0 for modems that do not say.

        bits: of each packet [m], for modems that ask for them; by default one transport block.
        """
        snr = self._at(power)
        if bits is None or not hasattr(self.modem, "error"):
            return per_link(getattr(self.modem, "error", np.zeros_like), snr)
        return packet_error_chance(self.modem, snr, snr, np.reshape(bits, (-1, 1)))

    def _at(self, power: npt.ArrayLike) -> Floats:
        """Return the SNR at a power [m b]."""
        given = np.asarray(power, np.float64)
        return self.snr * (given if given.ndim == 2 else given.reshape(-1, 1))

    def upload_time(
        self, bits: npt.ArrayLike, share: npt.ArrayLike | None = None, power: npt.ArrayLike = 1.0
    ) -> Floats:
        """Return how long so many bits take in a share of the band, by default that of one block [m b]."""
        share = 1 / self.snr.shape[1] if share is None else share
        rate = self.capacity(power) * np.reshape(share, (-1, 1)) * self.symbol_rate
        with np.errstate(divide="ignore"):
            return np.asarray(np.reshape(bits, (-1, 1)) / rate)


@documented
class Shares(NamedTuple):
    """How the symbols of a tick are shared among the picked devices."""

    symbols: Floats  # n_k, symbols of each device [r]
    bits: Floats  # bits that each device may send [r]


@documented
class Candidates(NamedTuple):
    """What a scheduler sees of the ready devices, one row each."""

    num_devices: int  # N, size of the whole fleet
    device: Ints  # device numbers [m]
    num_samples: Ints  # |S_k|, number of samples [m]
    label_counts: Ints  # b_k, samples per label [m c]
    age: Ints  # a_k(t) in ticks [m]
    missed: Ints  # number of ticks so far in which the device did not upload [m]
    capacity: Floats  # C_k(t) in bit/symbol [m]
    update_sq_norm: Floats | None = None  # ||u_k||^2 [m], only for schedulers with "update_sq_norm" in `needs`
    tick: int = 0  # t, number of the tick
    loss: Floats | None = (
        None  # loss of the received model on the device's own samples, in nats [m], only with "loss" in `needs`
    )
    battery: Floats | None = None  # remaining energy in J [m]; None: no batteries
    uplink: UplinkView | None = None  # what the links would carry at a given power, by resource block; None: not known
    time: float = 0.0  # simulated time at which the server acts
    cell: Ints | None = None  # the cell that serves each device [m]; None: only one cell
    # possible answers of the scheduler [s] -> held-out loss of the model that each would lead to [s], only with "outcome" in
    # `needs`; a real server cannot know this in advance
    outcome: Callable[[Sequence[Any]], Floats] | None = None


@documented
class Idle(NamedTuple):
    """What a selector sees of the devices that wait for a model, one row each."""

    time: float
    device: Ints  # ascending [m]
    jobs: Ints  # trainings begun so far [m]
    num_samples: Ints  # |S_k| [m]


@documented
class Work(NamedTuple):
    """How much work devices do with a model, one row each. Fields that are None follow the keys of `learning`."""

    epochs: Ints | None = None  # E_k as passes over the device's data [m]; give epochs or steps
    steps: Ints | None = None  # E_k as a number of steps [m]
    batch_size: Ints | None = None  # samples per step [m]
    rate: Floats | None = None  # factor of the learning rate that learning.learning_rate and its schedule give [m]


@documented
class LocalWork(NamedTuple):
    """What a device does with a model it received; of several devices, the numbers may be columns [m]."""

    batch_size: Any = 50
    epochs: Any = 3  # E as passes over the data ...
    steps: Any = None  # ... or as a number of steps; None: it is given in epochs
    proximal: float = 0.02  # lambda


@documented
class Job(NamedTuple):
    """One local training: everything it depends on."""

    device: int  # device number
    version: int  # version of the model it starts from
    start: Vector  # the model it starts from [d]
    learning_rate: float  # learning rate of this job
    samples: Samples  # a table of samples
    indices: Ints  # which of these samples the device holds, ascending [n]
    memory: Memory | None = None  # the trainer's memory for this device; None: a trainer without memory
    correction: Vector | None = None  # added to the gradient of every step [d]; None: nothing
    work: LocalWork | None = (
        None  # epochs or steps, batch size and proximal weight of this job; None: as in the trainer's task
    )
    number: int | None = (
        None  # 1, 2, ... of the device's trainings, if learning.seed_by=job; None: its version seeds it
    )

    @property
    def address(self) -> tuple[int, int]:
        """Return device and version, or device and number: the address of its random draws."""
        return int(self.device), int(self.version if self.number is None else self.number)


@documented
class Trained(NamedTuple):
    """What a trainer with memory returns: one update and one memory per job."""

    updates: Vector  # u_k, one per job [r d]
    memory: list[Memory]  # new memory, one per job [r]


@documented
class MetricContext(NamedTuple):
    """What a metric may look at besides the model."""

    score: Callable[[Samples], Any]  # its accuracy and loss on some samples, as fedtide.learning.trainer.Score
    predict: Callable[[Samples], Ints]  # the label that it gives each of them [n]
    test: Samples
    train: Samples  # of all devices
    holdings: Any  # of N devices; holdings[k]: which training samples device k holds [n]
    num_labels: int
    seed: int
    tick: int  # t, of the aggregation that made the model
    time: float  # simulated


@documented
class Selection(NamedTuple):
    """The devices that a scheduler picked, with numbers to record about the choice."""

    picked: Ints  # positions within the candidates [r]
    proved_minimal: bool | None = None  # whether the label variance is proved to be minimal; None: not applicable
    metrics: Mapping[str, float] = {}  # further finite numbers to record, by name


@documented
class Decision(NamedTuple):
    """The answer of a joint scheduler: who uploads and with which resources. Columns run over the picked devices."""

    picked: Ints  # positions within the candidates [r]
    symbols: Floats  # n_k [r]
    bits: Floats | None = None  # bits to send [r]; None: as many as the symbols carry
    power: Floats | None = None  # power, relative to the nominal power [r]; None: 1
    block: Ints | None = None  # resource block, from 0 [r]; None: over all of them
    share: Floats | None = None  # share of the band while sending [r], at most 1 in total; None: by symbols
    speed: Floats | None = None  # speed of the next training, relative to the nominal frequency, at most 1 [r]; None: 1
    metrics: Mapping[str, float] = {}  # further finite numbers to record, by name


@documented
class Grant(NamedTuple):
    """The planned uplink of one tick: who uploads, with how many symbols and bits."""

    picked: Ints  # positions within the candidates, ascending [r]
    symbols: Floats  # n_k [r]
    bits: Floats  # n_k C_k [r]
    proved_minimal: bool | None = None  # whether the label variance is proved to be minimal; None: not applicable
    memory: Memory | None = None  # the scheduler's memory after this tick; None: it has no memory
    metrics: Mapping[str, float] = {}  # numbers that the scheduler recorded, by name
    power: Floats | None = None  # power of each, relative to the power for which joules are counted [r]; None: 1
    silent: npt.NDArray[np.bool_] | None = (
        None  # whether each sends nothing, because of outage or lack of energy [r]; None: all send
    )
    rate: Floats | None = None  # rate of each in bit/symbol [r]; None: what its link carries at nominal power
    decision: Decision | None = (
        None  # of a joint scheduler, in the order of `picked`; None: the allocation shared the symbols
    )
    cell: Ints | None = None  # the cell that each sends to [r]; None: only one cell
    interference: Floats | None = None  # I/N at that cell, linear [r]; None: only one cell
