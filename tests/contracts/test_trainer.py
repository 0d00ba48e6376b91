"""What every trainer promises: one that is in the table joins by being there."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedtide.errors import FedtideError
from fedtide.learning.model import MODELS, Model, num_parameters
from fedtide.learning.trainer import WRAPPERS, LocalWork, Task
from fedtide.parts import checks
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Job, Samples, Trained
from helpers import small_dataset
from with_memory import REMEMBERING

DATA = small_dataset(num_train=60, side=28)
PARTITION = [np.arange(k, 60, 4) for k in range(4)]
WORK = LocalWork(batch_size=4, epochs=1, proximal=0.02)

trainers = pytest.mark.parametrize("name", [*builtin_parts("trainer"), "with memory"])


cluster = contextlib.ExitStack()  # of all trainers that share out their jobs over one


@functools.cache
def two_workers() -> dict[str, str]:
    """Return how a trainer finds a cluster of two worker processes, which is started for the first one."""
    from fedtide.core.cluster import connect_cluster

    found = connect_cluster("the suite", "address", None, 2)
    cluster.callback(found.close)
    return {"address": found.client.scheduler.address}


@pytest.fixture(autouse=True, scope="module")
def _ended() -> Iterator[None]:
    with cluster:
        yield


class Forgetful:
    """A trainer with memory, asked as one without: every job is its device's first."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.task = inner, inner.task
        self.initial_model, self.evaluate = inner.initial_model, inner.evaluate

    def train(self, jobs: Any) -> Any:
        begun = checks.first_part_memory(self._inner, "trainer", num_parameters(self.task.model))
        answer = self._inner.train([job._replace(memory=checks.copied_memory(begun)) for job in jobs])
        assert isinstance(answer, Trained)
        assert len(answer.memory) == len(jobs)
        for after in answer.memory:
            checks.checked_memory(after, begun, "trainer")
        return answer.updates


def make(
    name: str,
    model: str = "paper_cnn",
    threads: int = 1,
    work: LocalWork = WORK,
    seed: int = 3,
    shape: tuple[int, int, int] = (1, 28, 28),
) -> Any:
    if name == "with memory":
        return Forgetful(REMEMBERING["trainer"](make("native", model, threads, work, seed, shape)))
    module, _, made = builtin_parts("trainer")[name].partition(":")
    try:
        args = two_workers() if name == "dask" else {}
        found = getattr(importlib.import_module(module), made)(
            Task(MODELS[model](shape, 3), work, seed, shape, 3, threads), **args
        )
        if args:
            cluster.callback(found.close)
        return found
    except (ImportError, FedtideError) as error:
        if name not in (
            "native",
            "torch",
            *WRAPPERS,
        ):  # these need a compiler or a package, or stand around one that does
            raise
        pytest.skip(f"{name} is not there: {error}")


def length(name: str, model: str) -> int:
    """Return how many numbers travel."""
    return num_parameters(description(model)) * WRAPPERS.get(name, 1)


def description(name: str) -> Model:
    return MODELS[name]((1, 28, 28), 3)


def some_jobs(trainer: Any, r: int = 4) -> list[Job]:
    starts = trainer.initial_model(0) * np.linspace(1, 1.3, r, dtype=np.float32)[:, None]
    rates = np.linspace(0.01, 0.1, r)
    return [
        Job(k % 4, k + 1, start, float(rate), DATA.train, PARTITION[k % 4])
        for k, (start, rate) in enumerate(zip(starts, rates, strict=True))
    ]


def own_table(job: Job, extra: int = 0) -> Job:
    """Return the job over a table of its own, which may begin with samples of others."""
    rows = np.concatenate([np.arange(extra), job.indices])
    own = Samples(job.samples.images[rows], job.samples.labels[rows])
    return job._replace(samples=own, indices=np.arange(extra, len(rows)))


@trainers
@pytest.mark.parametrize("model", ["paper_cnn", "softmax"])
def test_a_jobs_result_depends_on_the_job_alone(name: str, model: str) -> None:
    trainer = make(name, model)
    jobs = some_jobs(trainer)
    updates = trainer.train(jobs)
    assert updates.shape == (4, length(name, model))
    assert updates.dtype == np.float32
    assert np.isfinite(updates).all()
    assert len({row.tobytes() for row in updates}) == 4
    for rows in ([2], [3, 1], [0, 1, 2, 3, 2, 0], [3, 2, 1, 0]):
        assert np.array_equal(trainer.train([jobs[row] for row in rows]), updates[rows])
    assert np.array_equal(make(name, model).train(jobs), updates)


@trainers
def test_it_does_not_matter_which_table_the_samples_are_in(name: str) -> None:
    trainer = make(name)
    jobs = some_jobs(trainer)
    updates = trainer.train(jobs)
    own = [own_table(job, extra) for job, extra in zip(jobs, (0, 3, 0, 7), strict=True)]
    assert np.array_equal(trainer.train(own), updates)
    assert np.array_equal(trainer.train([own[0], jobs[1], own[2], jobs[3]]), updates)
    assert np.array_equal(trainer.train(own[2:3]), updates[2:3])
    assert np.array_equal(trainer.train(jobs), updates)


@trainers
def test_a_table_that_took_the_place_of_another_is_not_taken_for_it(name: str) -> None:
    trainer = make(name, "softmax")
    job = some_jobs(trainer)[0]
    for shift in range(4):  # each is gone before the next is made, often at the same address
        images = np.asfortranarray(job.samples.images + np.float32(shift))  # laid out so that a trainer makes a copy
        images.flags.writeable = False
        table = Samples(images, np.repeat(job.samples.labels, 2)[::2])
        found = trainer.train([job._replace(samples=table)])
        assert np.array_equal(found, make(name, "softmax").train([job._replace(samples=table)]))
        del table, images


@trainers
def test_threads_do_not_change_a_bit(name: str) -> None:
    one, two = make(name), make(name, threads=2)
    assert np.array_equal(one.train(some_jobs(one, 6)), two.train(some_jobs(two, 6)))


@trainers
def test_no_jobs(name: str) -> None:
    updates = make(name, "softmax").train([])
    assert updates.shape == (0, length(name, "softmax"))
    assert updates.dtype == np.float32


@trainers
def test_inputs_are_left_alone(name: str) -> None:
    trainer = make(name, "softmax")
    for extra in (0, 3):
        job = own_table(some_jobs(trainer)[0], extra)
        arrays = (job.start, job.indices, *job.samples[:2])
        before = [each.copy() for each in arrays]
        for each in arrays:
            each.flags.writeable = False
        trainer.train([job])
        trainer.evaluate(job.start, DATA.test)
        for each, old in zip(arrays, before, strict=True):
            assert np.array_equal(each, old)


@trainers
@pytest.mark.parametrize(
    "change",
    [
        lambda job: job._replace(start=job.start + np.float32(0.1)),
        lambda job: job._replace(device=job.device + 1),
        lambda job: job._replace(version=job.version + 1),
        lambda job: job._replace(number=job.version + 1),
        lambda job: job._replace(learning_rate=2 * job.learning_rate),
        lambda job: job._replace(indices=PARTITION[1]),
        lambda job: job._replace(work=WORK._replace(epochs=2)),
        lambda job: job._replace(work=WORK._replace(batch_size=3)),
        lambda job: job._replace(samples=Samples(-job.samples.images, job.samples.labels)),
        lambda job: job._replace(samples=Samples(job.samples.images, 2 - job.samples.labels)),
    ],
    ids=[
        "start",
        "device",
        "version",
        "number",
        "learning_rate",
        "indices",
        "epochs",
        "batch_size",
        "images",
        "labels",
    ],
)
def test_every_part_of_a_job_counts(name: str, change: Any) -> None:
    trainer = make(name, "softmax")
    job = some_jobs(trainer)[0]
    assert not np.array_equal(trainer.train([job]), trainer.train([change(job)]))


@trainers
def test_the_number_of_a_job_seeds_it_in_place_of_its_version(name: str) -> None:
    trainer = make(name)  # with dropout
    job = some_jobs(trainer)[0]
    found = trainer.train([job._replace(version=9, number=job.version)])
    assert np.array_equal(found, trainer.train([job]))


@trainers
def test_every_part_of_a_task_counts(name: str) -> None:
    trainer = make(name, "softmax")
    jobs = some_jobs(trainer)[:1]
    base = trainer.train(jobs)
    assert not np.array_equal(base, make(name, "softmax", seed=4).train(jobs))
    assert not np.array_equal(base, make(name, "softmax", work=LocalWork(4, 1, proximal=2.0)).train(jobs))


@trainers
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start": np.zeros(5, np.float32)}, "start is"),
        ({"device": -1}, "device=-1"),
        ({"version": 1.5}, "version=1.5"),
        ({"number": -2}, "number=-2"),
        ({"learning_rate": math.nan}, "learning rate nan"),
        ({"indices": np.array([60])}, "there are 60 samples"),
        ({"indices": np.empty(0, np.int64)}, "at least one sample"),
    ],
)
def test_a_job_that_cannot_be_is_one_line(name: str, change: dict[str, Any], says: str) -> None:
    trainer = make(name, "softmax")
    with pytest.raises(FedtideError, match=f"job 1: .*{says}") as error:
        trainer.train([some_jobs(trainer)[0], some_jobs(trainer)[1]._replace(**change)])
    assert "\n" not in str(error.value)


@trainers
def test_it_tells_what_it_was_made_of(name: str) -> None:
    task = make(name, "softmax", threads=2).task
    assert task == Task(description("softmax"), WORK, 3, (1, 28, 28), 3, 2)


@trainers
def test_training_lowers_the_loss(name: str) -> None:
    trainer = make(name, "softmax", work=LocalWork(5, 10, proximal=0.0))
    start, mine = trainer.initial_model(0), PARTITION[1]
    update = trainer.train([Job(1, 1, start, 0.02, DATA.train, mine)])[0]
    own = Samples(DATA.train.images[mine], DATA.train.labels[mine])
    before, after = trainer.evaluate(start, own), trainer.evaluate(start + update, own)
    assert after.loss < before.loss
    assert after.accuracy >= before.accuracy


@trainers
def test_evaluation_of_a_model_that_knows_nothing(name: str) -> None:
    trainer = make(name)
    score = trainer.evaluate(np.zeros_like(trainer.initial_model(0)), DATA.test)
    assert score.loss == pytest.approx(math.log(3), rel=1e-6)
    assert score.accuracy == pytest.approx(np.mean(DATA.test.labels == 0))


@trainers
def test_initial_model_follows_the_seed(name: str) -> None:
    trainer = make(name)
    assert np.array_equal(trainer.initial_model(5), trainer.initial_model(5))
    assert not np.array_equal(trainer.initial_model(5), trainer.initial_model(6))
    assert trainer.initial_model(5).dtype == np.float32
    assert trainer.initial_model(5).shape == (length(name, "paper_cnn"),)


def test_all_start_from_the_same_model_and_reach_the_same_update() -> None:
    first, *others = (make(name, "softmax") for name in builtin_parts("trainer"))
    for other in others:
        d = len(first.initial_model(0))  # what else travels comes after the model
        assert np.array_equal(first.initial_model(0), other.initial_model(0)[:d])
        ours, theirs = first.train(some_jobs(first)), other.train(some_jobs(other))[:, :d]
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)


# ---- images as bytes ---------------------------------------------------------------------------------------------------

COLOUR = (3, 32, 32)


def colour(seed: int = 0, values_seed: int = 0, count: int = 24) -> Samples:
    """Return colour images as bytes; the channels mean something else by them."""
    rng = np.random.default_rng(seed)
    values = np.random.default_rng(values_seed).standard_normal((3, 256)).astype(np.float32)
    images = rng.integers(0, 256, (count, *COLOUR), np.uint8)
    return Samples(images, (np.arange(count) % 3).astype(np.uint8), values)


def plain(samples: Samples) -> Samples:
    return Samples(samples.floats(), samples.labels)


def colour_jobs(trainer: Any, *tables: Samples) -> list[Job]:
    start = trainer.initial_model(0)
    return [Job(k, k + 1, start, 0.05, table, np.arange(k, 24, 2)) for k, table in enumerate(tables)]


@trainers
@pytest.mark.parametrize("model", MODELS)
def test_bytes_give_the_bits_of_what_they_stand_for(name: str, model: str) -> None:
    trainer, bytes_ = make(name, model, shape=COLOUR), colour()
    updates = trainer.train(colour_jobs(trainer, bytes_, bytes_))
    assert np.array_equal(trainer.train(colour_jobs(trainer, plain(bytes_), plain(bytes_))), updates)
    assert np.abs(updates).max() > 0
    for theta in (trainer.initial_model(0), trainer.initial_model(0) + updates[0]):
        assert trainer.evaluate(theta, bytes_) == trainer.evaluate(theta, plain(bytes_))


@trainers
@pytest.mark.parametrize(
    "others",
    [
        lambda: [colour(1), colour(2)],  # of one kind: as bytes
        lambda: [colour(1, 7), colour(2)],  # the same byte stands for something else
        lambda: [plain(colour(1)), colour(2)],
        lambda: [colour(1)._replace(values=colour().values * np.float32(-1)), plain(colour(2))],
    ],
    ids=["same values", "other values", "floats among them", "both"],
)
def test_tables_of_bytes_and_of_floats_in_one_call(name: str, others: Any) -> None:
    trainer = make(name, "softmax", shape=COLOUR)
    tables = [colour(), *others()]
    jobs = colour_jobs(trainer, *tables)
    updates = trainer.train(jobs)
    assert np.array_equal(trainer.train(colour_jobs(trainer, *map(plain, tables))), updates)
    assert np.array_equal(np.concatenate([trainer.train([job]) for job in jobs]), updates)


@trainers
def test_the_values_tell_one_table_from_another(name: str) -> None:
    trainer, table = make(name, "softmax", shape=COLOUR), colour()
    for sign in (1, -1, 2):
        other = table._replace(values=table.values * np.float32(sign))
        found = trainer.train(colour_jobs(trainer, other))
        assert np.array_equal(found, trainer.train(colour_jobs(trainer, plain(other))))


@trainers
def test_bytes_are_left_alone_and_may_be_read_only(name: str) -> None:
    trainer, table = make(name, "softmax", shape=COLOUR), colour()
    before = [each.copy() for each in table]
    for each in table:
        each.flags.writeable = False
    trainer.train(colour_jobs(trainer, table))
    trainer.evaluate(trainer.initial_model(0), table)
    for each, old in zip(table, before, strict=True):
        assert np.array_equal(each, old)


@pytest.mark.parametrize("name", builtin_parts("trainer"))
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"values": None}, "uint8 images without values: give values float32 .3 256."),
        ({"values": np.zeros((3, 255), np.float32)}, r"values that are float32\[3, 255\]: give float32 .3 256."),
        ({"values": np.zeros((1, 256), np.float32)}, r"values that are float32\[1, 256\]"),
        ({"values": np.zeros(768, np.float32)}, r"values that are float32\[768\]"),
        ({"values": np.zeros((3, 256))}, r"values that are float64\[3, 256\]"),
        ({"values": [[0.0] * 256] * 3}, "values that are a list"),
        ({"values": np.full((3, 256), np.nan, np.float32)}, "values with NaN or infinity"),
        ({"values": np.full((3, 256), np.inf, np.float32)}, "values with NaN or infinity"),
        ({"images": colour().floats()}, "float32 images and values of bytes"),
        ({"images": colour().images.astype(np.int8)}, "images are int8"),
        ({"images": colour().images[:, :1]}, r"images are uint8 .24, 1, 32, 32."),
    ],
)
def test_bytes_that_stand_for_nothing_are_one_line(name: str, change: dict[str, Any], says: str) -> None:
    trainer = make(name, "softmax", shape=COLOUR)
    wrong = colour()._replace(**change)
    for ask in (
        lambda: trainer.check_samples(wrong),
        lambda: trainer.train(colour_jobs(trainer, wrong)),
        lambda: trainer.evaluate(trainer.initial_model(0), wrong),
    ):
        with pytest.raises(FedtideError, match=says) as error:
            ask()
        assert "\n" not in str(error.value)
