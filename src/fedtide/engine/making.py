"""The parts of an experiment: each found by its name and made with its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedtide import config, testing
from fedtide.aggregate.base import as_aggregator
from fedtide.codec.base import Codec
from fedtide.config import Experiment
from fedtide.core.memory_budget import require_memory
from fedtide.core.yaml12 import shown
from fedtide.data.dataset import checked_dataset, held_out_split, validation_split
from fedtide.data.holdings import (
    Counted,
    Holdings,
    checked_partition,
    has_virtual_holdings,
    holding_label_counts,
    holding_sizes,
    refuse_random_partition,
)
from fedtide.devices.duration import Duration, first_duration
from fedtide.devices.fleet import Fleet
from fedtide.engine.cells import expected_interference
from fedtide.engine.step import NEEDS, Policy
from fedtide.errors import FedtideError, did_you_mean
from fedtide.learning.model import Model, check_model, needs_torch, num_parameters, without_dropout
from fedtide.learning.trainer import (
    WRAPPERS,
    DeviceWork,
    Task,
    Trainer,
    trainer_backend,
)
from fedtide.parts import checks, registry
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.radio.cell import Coverage
from fedtide.radio.modem import Uplink
from fedtide.radio.over_the_air import Access
from fedtide.radio.retransmission import Retransmission
from fedtide.types import Dataset, Floats, Ints, LocalWork

_NUM_SAMPLES = ("fleet.num_samples", "fleet.samples_per_job")  # what durations may ask of the data that was dealt out
_FLEET_BYTES = 200.0  # of one device: columns of the fleet, the clock and the server, and what a tick makes of them


def say_nothing(_: str) -> None:
    """Tell nobody what is fetched."""


def experiment_part(experiment: Experiment, kind: str, **more: Any) -> Any:
    """Make the part of this kind that an experiment names. more: what can be filled in besides the experiment's keys."""
    extra = {name.replace("_", ".", 1): value for name, value in more.items()}
    part = experiment.part(kind)
    return registry.part(
        kind, part.name, part.args, lambda key: extra[key] if key in extra else _key(experiment, kind, part.name, key)
    )


def refuse_wrong_arguments(experiment: Experiment, kinds: Iterable[str]) -> None:
    """Make the parts of these kinds that nothing of a run is filled in for; raise if their arguments are wrong."""
    for kind in kinds:
        found = registry.find_part(kind, experiment.part(kind).name, builtin_parts(kind))
        if not any(each.about.key in KINDS[kind].fills for each in registry.own_parameters(kind, found)):
            experiment_part(experiment, kind)


def _key(experiment: Experiment, kind: str, name: str, key: str) -> Any:
    """Return the key that a part asks for; raise if there is none."""
    if key in config.all_keys():
        value = config.key_value(experiment, key)
        return value.name if isinstance(value, config.Part) else value
    asking = f"{kind}={name!r} asks for {key} (arg(key=...)), which"
    if others := [other for other, known in KINDS.items() if key in known.fills]:
        raise FedtideError(f"{asking} is filled in for a {' and a '.join(others)} only; ask for another key")
    otherwise = f"see `fedtide run --keys` and `fedtide parts {kind}`"
    hint = did_you_mean(key, [*config.all_keys(), *KINDS[kind].fills], otherwise)
    raise FedtideError(f"{asking} is not a key of an experiment: {hint}")


def make_system_part(experiment: Experiment, kind: str, **more: Any) -> Any:
    """Make a part of the world; a user's own is asked twice."""
    made = experiment_part(experiment, kind, **more)
    testing.refuse_impure({kind: made}, experiment.fleet.num_devices, 1, 1)
    return made


def load_dataset(experiment: Experiment, say: Callable[[str], None] = say_nothing, images: bool = True) -> Dataset:
    """Load the data set that an experiment names; a plan can do without the images."""
    data, more = experiment.data, dict[str, Any]()
    if data.num_held_out and data.num_train:
        more["data_num_train"] = data.num_train + data.num_held_out
    made: Any = experiment_part(experiment, "data", run_say=say, run_images=images, **more)
    loaded: Dataset = made.policy if isinstance(made, checks.Guarded) else made
    if (name := experiment.part("data").name) not in (ours := builtin_parts("data")):
        place = checks.source_place(registry.find_part("data", name, ours))
        loaded = checked_dataset(loaded, made.label + place)
    if data.num_held_out:
        loaded = held_out_split(loaded, data.num_train, data.num_held_out)
    return validation_split(loaded, data.validation) if data.validation else loaded


def make_fleet(experiment: Experiment, dataset: Dataset) -> Fleet:
    """Deal the data out to the devices."""
    by_size, by_time = _asks(experiment, "duration", _NUM_SAMPLES), _asks(experiment, "partition", ("fleet.durations",))
    if by_size and by_time:
        raise FedtideError(
            f"fleet.duration={experiment.fleet.duration} asks how much each device holds, and data.partition="
            f"{experiment.data.partition} how long each takes: neither can come first; replace one of them"
        )
    count = experiment.fleet.num_devices
    require_memory(_FLEET_BYTES * count, f"a fleet of {count:,} devices", "lower fleet.num_devices")
    duration = None if by_size else system_durations(experiment)
    dealer = experiment_part(experiment, "partition", fleet_durations=duration)
    lent = dataset.lent()
    dealt = dealer(lent, count, experiment.seed)
    if isinstance(dealer, checks.Guarded):
        labels, num_labels = dataset.train.labels, dataset.num_labels
        dealt = checked_partition(dealt, labels, num_labels, count, dealer, checks.part_label("partition", dealer))
        if not checks.is_ours(dealer):
            refuse_random_partition(dealt, dealer(lent, count, experiment.seed), checks.part_label("partition", dealer))
    duration = system_durations(experiment, holding_sizes(dealt)) if duration is None else duration
    return _holding(duration, dealt, dataset)


def _holding(duration: Floats, partition: Holdings, dataset: Dataset) -> Fleet:
    """Return the fleet of devices that take so long [N] and hold these samples of a data set."""
    counts = (
        Counted(partition, dataset.num_labels)
        if has_virtual_holdings(partition)
        else holding_label_counts(dataset.train.labels, partition, dataset.num_labels)
    )
    return Fleet(duration, partition, holding_sizes(partition), counts)


def system_durations(experiment: Experiment, num_samples: Ints | None = None) -> Floats:
    """Return how long the first local training of every device takes [N]. num_samples: |S_k|, for durations that ask [N]."""
    return first_duration(make_duration(experiment, num_samples), experiment.seed, experiment.fleet.num_devices)


def make_duration(experiment: Experiment, num_samples: Ints | None = None) -> Duration:
    """Make how long local trainings take. num_samples: |S_k|, for durations that ask [N]."""
    if num_samples is None and _asks(experiment, "duration", _NUM_SAMPLES):
        raise FedtideError(
            f"fleet.duration={experiment.fleet.duration} asks how much each device holds, which is not known before the data "
            "is dealt out; choose another here"
        )
    work = make_device_work(experiment).samples_per_job(num_samples) if num_samples is not None else None
    made: Duration = make_system_part(experiment, "duration", fleet_num_samples=num_samples, fleet_samples_per_job=work)
    return made


def _asks(experiment: Experiment, kind: str, keys: tuple[str, ...]) -> bool:
    """Say whether the part of this kind wants one of these keys filled in."""
    part = experiment.part(kind)
    declared = registry.own_parameters(kind, registry.find_part(kind, part.name, builtin_parts(kind)))
    return any(each.about.key in keys and each.name not in part.args for each in declared)


def make_coverage(experiment: Experiment) -> Coverage:
    """Make how strong devices are received on average."""
    made: Coverage = make_system_part(experiment, "coverage")
    return made


def make_channel(experiment: Experiment, coverage: Coverage) -> Uplink:
    """Make what the uplinks carry and what the server knows of them."""
    channel: Uplink = make_system_part(experiment, "channel", run_coverage=coverage)
    csi, modem = make_system_part(experiment, "csi"), make_system_part(experiment, "modem")
    radio = experiment.radio
    if radio.coherence_time is not None and getattr(channel, "by_time", False):
        raise FedtideError(
            f"radio.coherence_time={radio.coherence_time:g}: radio.channel={radio.channel} goes by time and not by aggregation, so "
            "that runs share it already; leave radio.coherence_time out, or choose another channel"
        )
    made = Uplink(channel, csi, modem, radio.num_blocks, expected_interference(coverage), radio.coherence_time)
    blocks = made(experiment.seed, 1, 0.0, np.arange(1)).signal if made.num_blocks > 1 else None
    if blocks is not None and np.ptp(blocks.snr) == 0:
        raise FedtideError(
            f"radio.num_blocks={made.num_blocks}: radio.channel={experiment.radio.channel} goes by time and not by aggregation, so "
            "that all blocks would fade alike; choose another channel, or one block"
        )
    return made


def make_retransmission(experiment: Experiment) -> Retransmission:
    """Make what becomes of a packet that did not arrive."""
    made: Retransmission = make_system_part(experiment, "retransmission")
    attempts = getattr(made, "attempts", 1)
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise FedtideError(
            f"{checks.part_label('retransmission', made)} has attempts={shown(attempts)}: it must be a whole number of at least 1"
        )
    return made


def make_policy(experiment: Experiment, coverage: Coverage | None = None, **more: Any) -> Policy:
    """Make who uploads, and how what arrives is weighed and combined. more: what a scheduler may ask for, if it is there."""
    scheduler = experiment_part(experiment, "scheduler", **{"run_duration": None, "run_energy": None, **more})
    weighting = experiment_part(experiment, "weighting")
    cells = make_coverage(experiment) if coverage is None else coverage
    aggregator = experiment_part(experiment, "aggregator", run_coverage=cells)
    needs = getattr(scheduler, "needs", ())
    if not isinstance(needs, tuple | list) or not all(isinstance(each, str) and each in NEEDS for each in needs):
        raise FedtideError(
            f"{checks.part_label('scheduler', scheduler)} has needs={needs!r}: it must be a tuple of what "
            f"a scheduler can ask for, {', '.join(map(repr, NEEDS))}"
        )
    return Policy(scheduler, experiment.policy.limit, weighting, as_aggregator(aggregator))


def make_codec(experiment: Experiment) -> Codec:
    """Make the codec, which server and devices share."""
    codec: Codec = experiment_part(experiment, "codec")
    return codec


def make_access(experiment: Experiment) -> Access:
    """Make how the picked devices share the symbols."""
    access: Access = experiment_part(experiment, "access")
    return access


def make_model(experiment: Experiment, shape: tuple[int, ...], num_labels: int) -> Model | Callable[[], Any]:
    """Return what is trained on images of this shape [channels height width]: a description, or what makes a module."""
    wanted, part = experiment.learning, experiment.learning.model
    native = trainer_backend(experiment.learning.trainer) == "native"
    torch = "learning.trainer.inner=torch" if wanted.trainer.name in WRAPPERS else "learning.trainer=torch"
    found = registry.find_part("model", part.name, builtin_parts("model"))
    if part.name in builtin_parts("model") or _describes(found):
        model = _described(experiment, found, (shape[0], shape[1], shape[2]), num_labels)
        if part.name not in builtin_parts("model"):
            check_model(model, shape, num_labels, f"model={part.name!r}{checks.source_place(found)}")
        model = model if wanted.dropout else without_dropout(model)
        num_parameters(model)  # raises if the layers do not fit the images
        if native and needs_torch(model):
            raise FedtideError(f"learning.model={part.name!r} is trained by PyTorch only: add {torch}")
        return model
    if native:
        raise FedtideError(f"learning.model={part.name!r} is a PyTorch module: add {torch}")
    made: Callable[[], Any] = found
    return functools.update_wrapper(functools.partial(found, **part.args), found) if part.args else made


def _described(experiment: Experiment, found: Any, shape: tuple[int, int, int], num_labels: int) -> Model:
    """Make a description of one of ours, or of a user's own."""
    part, given = experiment.learning.model, KINDS["model"].made_with
    name, args = part.name, part.args
    registry.check_part_arguments("model", name, found, args, True, given)
    all_args = registry.registry_arguments(
        found, args, lambda key: _key(experiment, "model", name, key), f"model={name!r}", len(given)
    )
    with checks.part_errors_reported("model", name, found):
        model = found(shape, num_labels, **all_args)
    if not isinstance(model, Model):
        raise FedtideError(f"model={name!r} made a {type(model).__name__}: return a fedtide.learning.model.Model")
    return model


def _describes(found: Any) -> bool:
    """Say whether a user's function makes a description, as ours do: of an input shape and a number of labels."""
    try:
        required = [each for each in inspect.signature(found).parameters.values() if each.default is each.empty]
    except (TypeError, ValueError):
        return False
    return [each.name for each in required] == ["input_shape", "num_labels"]


def make_local_work(experiment: Experiment) -> LocalWork:
    """Return what a device does with a model, unless learning.work says otherwise."""
    learning = experiment.learning
    return LocalWork(learning.batch_size, learning.local_epochs, learning.local_steps, learning.proximal)


def make_device_work(experiment: Experiment) -> DeviceWork:
    """Return what each device does with a model."""
    return DeviceWork(make_system_part(experiment, "work"), make_local_work(experiment), experiment.seed)


def make_task_trainer(experiment: Experiment, task: Task) -> Trainer:
    """Make the trainer for a task; the import happens here, so that planning needs neither kernel nor PyTorch."""
    made: Trainer = experiment_part(experiment, "trainer", run_task=task)
    return made


def count_parameters(
    experiment: Experiment,
    model: Model | Callable[[], Any],
    shape: tuple[int, ...],
    num_labels: int,
    trainer: Trainer | None = None,
) -> int:
    """Return d, the numbers that travel, of a model of images of this shape."""
    ours = {experiment.learning.trainer.name, trainer_backend(experiment.learning.trainer)} <= {
        *builtin_parts("trainer")
    }
    if isinstance(model, Model) and ours:
        return num_parameters(model) * WRAPPERS.get(experiment.learning.trainer.name, 1)
    trainer = trainer or make_task_trainer(
        experiment, Task(model, make_local_work(experiment), experiment.seed, shape, num_labels)
    )
    return len(trainer.initial_model(experiment.seed))
