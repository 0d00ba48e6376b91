"""The jobs of an aggregation on the workers of a Dask cluster: for fleets and models that one machine cannot train.

A job's result depends on the job alone, so that the bits are those of the inner trainer, whoever trains and however often:
the jobs of a worker that is lost are trained again by another. Samples go to every worker once, models once per chunk.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as futures_wait
from typing import Annotated, Any, Final

import cloudpickle
import numpy as np
from distributed import KilledWorker, wait

from fedtide.core import cluster
from fedtide.core.faults import fault_text
from fedtide.core.files import is_own_file
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning.dask_worker import (
    Chunk,
    JobTable,
    Maker,
    Missing,
    as_bytes,
    content_name,
    installed_version,
    train_chunk,
)
from fedtide.learning.native import native_isa
from fedtide.learning.trainer import (
    WRAPPERS,
    TableId,
    Task,
    check_jobs,
    read_trainer_tables,
    samples_per_training,
    trainer_table_name,
)
from fedtide.parts import registry, user_code
from fedtide.parts.arguments import arg
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Floats, Ints, Job, Memory, Samples, Trained, Vector

_ADDRESS: Final = "learning.trainer.address"
MOST_TABLE_BYTES: Final = 4e9  # of a table: Dask's messages end at 2^32
WORKER_PATIENCE_SECONDS: Final = 60.0  # without any worker
SILENT_SECONDS: Final = 10.0  # without the heartbeat of a worker that others can replace
_LOOK_SECONDS: Final = 2.0
_ATTEMPTS: Final = 3  # to bring a worker what it lacks


class DaskTrainer:
    """Another trainer on the workers of a Dask cluster; same bits on machines with the same instruction set.

    Where it trains changes no result and is no part of a run's identity: a run goes on with other workers. Models are scored
    in the run's own process. What the inner trainer remembers of devices travels with their jobs. The cluster is looked for
    when the first job is there; `close` lets go of it.
    """

    def __init__(
        self,
        task: Task,
        inner: Annotated[
            str, arg("trainer on the workers: native, torch or package.module:name", part="trainer")
        ] = "native",
        inner_args: Annotated[
            dict[str, Any] | None, arg("arguments of that trainer, unless given with its name")
        ] = None,
        address: Annotated[
            str | None, arg("address of a scheduler, tcp://...; default: processes on this machine")
        ] = None,
        workers: Annotated[
            int | None, arg("number of processes if no address is given; default: the number of threads", ge=1, le=4096)
        ] = None,
    ) -> None:
        _check_inner(inner)
        cluster.require_dask("learning.trainer=dask")
        self.task: Final = task
        self._inner_name, self._inner_args = str(inner), registry.inner_arguments(inner, inner_args)[0]
        self._inner: Any = registry.resolve("trainer", inner, self._inner_args, {"run.task": task}.__getitem__)
        self._address, self._workers = address, workers or task.threads
        self._link: _Link | None = None
        self._tables: dict[TableId, tuple[Samples, str]] = {}  # of the last call, with their names on the workers
        self._length = len(self._inner.initial_model(task.seed))
        self.name = f"dask around {getattr(self._inner, 'name', inner)}"  # in the records of a run
        for method in ("initial_model", "evaluate", "init", "arrived"):  # in this process
            if callable(own := getattr(self._inner, method, None)):
                setattr(self, method, own)
        self.takes_work = bool(getattr(self._inner, "takes_work", False))

    def check_samples(self, samples: Samples) -> None:
        """Raise if the inner trainer cannot take such samples, or they cannot be sent."""
        if callable(check := getattr(self._inner, "check_samples", None)):
            check(samples)
        size = sum(np.asarray(each).nbytes for each in samples if each is not None)
        if size > MOST_TABLE_BYTES:
            raise FedtideError(
                f"trainer='dask': a table of samples takes {size / 1e9:.1f} GB, and Dask sends at most "
                f"{MOST_TABLE_BYTES / 1e9:g} GB at once: give images as bytes, or fewer (data.num_train)"
            )

    def train(self, jobs: Sequence[Job]) -> Vector | Trained:
        """Return the updates u_k [r d], one row per job, with the memory of each if the inner trainer has one."""
        if not jobs:
            return self._inner.train(jobs)  # type: ignore[no-any-return]
        check_jobs(jobs, self._length)
        self._tables = read_trainer_tables(jobs, self._tables, self._named)
        if self._link is None:
            self._link = _Link(self._address, self._workers, self._maker())
        names = [self._tables[trainer_table_name(job.samples)][1] for job in jobs]
        held = [np.array([len(job.indices)], np.int64) for job in jobs]
        work = [samples_per_training(job.work or self.task.work, n)[0] for job, n in zip(jobs, held, strict=True)]
        with _explained(self._address, self._inner_name):
            self._link.bring({name: samples for samples, name in self._tables.values()})
            return self._link.trained(jobs, names, np.maximum(np.array(work, np.float64), 1))

    def close(self) -> None:
        """Let go of the cluster; workers that were started for it end. The next job finds another."""
        if self._link is not None:
            link, self._link = self._link, None
            link.close()

    def _named(self, samples: Samples) -> str:
        self.check_samples(samples)
        return content_name("samples", *(each for each in samples if each is not None))

    def _maker(self) -> Any:
        """Return what makes the inner trainer on a worker."""
        inner = self._inner_name
        packages = {each: installed_version(each) for each in ("fedtide", *(["torch"] if inner == "torch" else []))}
        found = registry.find_part("trainer", inner, builtin_parts("trainer"))
        args = registry.registry_arguments(
            found, self._inner_args, registry.fill_in_nothing, f"inner={inner!r}", given=1
        )
        made_of = _pickled((found, self.task, args), self.task.model)
        return Maker(made_of, native_isa() if inner == "native" else None, packages)


class _Link:
    """A connection to a cluster, with what its workers hold of this run."""

    def __init__(self, address: str | None, workers: int, maker: Any) -> None:
        # What a worker prints when it dies is no news: its jobs are trained again. Nor does Dask know what training takes.
        local = {"silence_logs": logging.CRITICAL, "memory_limit": None}
        self._cluster = cluster.connect_cluster("learning.trainer=dask", _ADDRESS, address, workers, **local)
        self._client, self._own = self._cluster.client, address is None
        self._maker, self._sent = maker.name, dict[str, Any]()
        try:
            with _explained(address, "the inner trainer"):
                self._wait_for_a_worker()
                self._send(maker.name, maker)
        except BaseException:
            self.close()
            raise

    def bring(self, tables: Mapping[str, Samples]) -> None:
        """Let all workers hold these tables, and no other ones of this run."""
        for name in [each for each in self._sent if each not in tables and each != self._maker]:
            self._take_back(name)
        for name, samples in tables.items():
            if name not in self._sent:
                self._send(name, JobTable(as_bytes(samples)))

    def trained(self, jobs: Sequence[Job], names: Sequence[str], work: Floats) -> Vector | Trained:
        """Train jobs over tables of these names; return what the inner trainer says of them.

        work: about how much each job takes [r], in any unit.
        """
        threads = dict(sorted(self._answering().items()))
        order = _jobs_by_model(jobs)  # neighbours train from the same model, so that few workers need each
        pieces = [order[piece] for piece in _split_jobs(work[order], np.array(list(threads.values()), np.float64))]
        places = [(place, piece) for place, piece in zip(threads, pieces, strict=True) if len(piece)]
        chunks = [_pack_chunks(self._maker, [(jobs[row], names[row]) for row in piece]) for _, piece in places]
        answers: list[Any] = [Missing(())] * len(chunks)
        for attempt in range(_ATTEMPTS):
            todo = [number for number, answer in enumerate(answers) if isinstance(answer, Missing)]
            found = self._asked([chunks[number] for number in todo], [places[number][0] for number in todo])
            for number, answer in zip(todo, found, strict=True):
                answers[number] = answer
            lacking = {name for answer in found if isinstance(answer, Missing) for name in answer.names}
            if not lacking:
                return _in_order(answers, np.concatenate([piece for _, piece in places]))
            time.sleep(attempt)  # it may be on its way
            for name in lacking & self._sent.keys():
                self._send(name, self._sent[name])
        raise TrainingError(
            f"Dask workers lost what they were sent {_ATTEMPTS} times: does another run on this cluster restart them?"
        )

    def _asked(self, chunks: Sequence[Any], places: Sequence[str]) -> list[Any]:
        """Train chunks where they are meant to be trained, or elsewhere if that worker is lost or silent.

        Dask itself gives a lost worker's chunk to another. One that is stopped or cut off keeps its chunk for minutes: after
        SILENT_SECONDS another worker gets it, too, and the first answer counts. The bits are the same, whoever trains.
        """
        tries = [[(place, self._submit(chunk, place))] for chunk, place in zip(chunks, places, strict=True)]
        answers = dict[int, Any]()
        while len(answers) < len(chunks):
            left = [number for number in range(len(chunks)) if number not in answers]
            with contextlib.suppress(TimeoutError):
                pending = [future for number in left for _, future in tries[number]]
                wait(pending, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED")
            here = [*self._answering()]
            for number in left:
                for _, future in [each for each in tries[number] if each[1].done()]:
                    with contextlib.suppress(TimeoutError):  # it has trained, and its answer does not come
                        answers[number] = future.result(timeout=SILENT_SECONDS)
                        break
                if number not in answers and not {place for place, _ in tries[number]} & {*here}:
                    place = here[number % len(here)]
                    tries[number].append((place, self._submit(chunks[number], place)))
        self._client.cancel([future for each in tries for _, future in each if not future.done()])
        return [answers[number] for number in range(len(chunks))]

    def _submit(self, chunk: Any, place: str) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # each model once per worker: there is no less
            return self._client.submit(train_chunk, chunk, workers=[place], allow_other_workers=True, pure=False)

    def _answering(self) -> dict[str, int]:
        """Return how many threads each worker has of which something was heard lately; all of them if it is of none."""
        threads = self._wait_for_a_worker()
        seen = {place: each["last_seen"] for place, each in self._client.scheduler_info()["workers"].items()}
        newest = max(seen.values(), default=0.0)
        here = {place: n for place, n in threads.items() if newest - seen.get(place, newest) < SILENT_SECONDS}
        return here or threads

    def _wait_for_a_worker(self) -> dict[str, int]:
        """Return how many threads the worker at each address has; raise if there is no worker for long."""
        begun = time.monotonic()
        while not (found := self._client.nthreads()):
            if time.monotonic() - begun > WORKER_PATIENCE_SECONDS:
                raise TrainingError(
                    f"the Dask cluster has had no worker for {WORKER_PATIENCE_SECONDS:g} s: start some (`dask worker "
                    "ADDRESS`) and resume the run"
                )
            time.sleep(0.1)
        return dict(found)

    def _send(self, name: str, plugin: Any) -> None:
        self._to_all(lambda: self._client.register_plugin(plugin, name=name))
        self._sent[name] = plugin

    def _take_back(self, name: str) -> None:
        del self._sent[name]
        with contextlib.suppress(Exception):  # another run of the same data did, or the scheduler is gone
            self._to_all(lambda: self._client.unregister_worker_plugin(name))

    def _to_all(self, call: Callable[[], Any]) -> None:
        """Do what Dask does with all workers; do not wait for silent ones, which say that they lack it once they are back."""
        done: Future[None] = Future()

        def do() -> None:
            try:
                call()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=do, daemon=True).start()
        while True:
            futures_wait([done], timeout=_LOOK_SECONDS)
            if done.done():
                return done.result()
            if len(self._answering()) < len(self._client.nthreads()):
                return None

    def close(self) -> None:
        """Leave nothing on workers that go on without us, and end those that do not."""
        if not self._own:
            for name in list(self._sent):
                self._take_back(name)
        self._cluster.close()


def _split_jobs(work: Floats, threads: Floats) -> list[Ints]:
    """Return which jobs each worker trains: neighbours, about as much work [r] for each of its threads [w]."""
    ends = work.sum() * np.cumsum(threads) / threads.sum()
    owner = np.minimum(np.searchsorted(ends, np.cumsum(work) - work / 2), len(threads) - 1)
    return [np.flatnonzero(owner == each) for each in range(len(threads))]


def _pack_chunks(maker: str, jobs: Sequence[tuple[Job, str]]) -> Chunk:
    """Return jobs, each with the name of its table, as a chunk: every model once."""
    numbers: dict[bytes, int] = {}  # of the models, by their bits
    packed = []
    job: Any
    for job, name in jobs:
        number = numbers.setdefault(job.start.tobytes(), len(numbers))
        packed.append(job._replace(start=number, samples=name))
    return Chunk(maker, [np.frombuffer(start, np.float32) for start in numbers], packed)


def _jobs_by_model(jobs: Sequence[Job]) -> Ints:
    """Return the jobs' numbers, those that start from the same model side by side."""
    first: dict[bytes, int] = {}
    return np.argsort([first.setdefault(job.start.tobytes(), row) for row, job in enumerate(jobs)], kind="stable")


def _in_order(answers: Sequence[Any], rows: Ints) -> Vector | Trained:
    """Return the answers of chunks as one. rows: of the jobs that they are about, chunk by chunk [r]."""
    back = np.argsort(rows)
    if not isinstance(answers[0], Trained):
        joined: Vector = np.concatenate(answers)[back]
        return joined
    memory: list[Memory] = [each for answer in answers for each in answer.memory]
    return Trained(np.concatenate([answer.updates for answer in answers])[back], [memory[row] for row in back])


def _check_inner(name: str) -> None:
    if name in WRAPPERS:
        raise FedtideError(
            f"trainer='dask': inner={name!r} stands around a trainer itself and goes with a server of its own: use "
            f"learning.trainer={name} without Dask, or name native or torch inside"
        )
    if is_own_file(name):
        raise FedtideError(
            f"trainer='dask': inner={name!r} names a file, whose content would not be known to belong to the run, nor to the "
            "workers; install it there and name it as package.module:name"
        )


def _pickled(what: Any, model: Any) -> bytes:
    """Return something as bytes; with it what a file of the user's own says of its model, which workers do not have."""
    module = sys.modules.get(str(getattr(model, "__module__", None)))
    own = module is not None and module.__name__.startswith(user_code.MODULE)
    try:
        if own:
            cloudpickle.register_pickle_by_value(module)
        content: bytes = cloudpickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)
        return content
    except Exception as error:
        raise FedtideError(
            f"trainer='dask': the model cannot be sent to workers ({fault_text(error)}): make it with a function at the top of "
            "a file"
        ) from error
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)


@contextlib.contextmanager
def _explained(address: str | None, inner: str) -> Iterator[None]:
    """Turn what a cluster may do to us into one line."""
    where = address or "started for this run"
    try:
        yield
    except FedtideError:
        raise
    except KilledWorker as error:
        raise TrainingError(
            f"several Dask workers died while training the same jobs (out of memory?; {fault_text(error)}): give them more, "
            "or fewer threads"
        ) from error
    except (OSError, CancelledError, TimeoutError) as error:
        raise TrainingError(
            f"the Dask cluster {where}, or the connection to it, was lost ({fault_text(error)}): what was aggregated is saved; "
            f"resume the run, elsewhere with another {_ADDRESS}"
        ) from error
    except Exception as error:
        raise TrainingError(
            f"trainer='dask': {inner} raised {fault_text(error)} on a worker: correct it there, and install the same "
            "packages as here"
        ) from error
