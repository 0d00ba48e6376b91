"""Doing the runs of a study that are missing: a pool of processes on this machine, or a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment, effort
from fedtide.core import faults, signals
from fedtide.core.cluster import apart, connect, deaf
from fedtide.data.fetch import folder_digest
from fedtide.engine.system import durations, load_dataset, make_policy
from fedtide.errors import DivergedError, FedtideError, RunFolderError
from fedtide.learning.trainer import backend as engine
from fedtide.parts import registry, user_code
from fedtide.parts.kinds import builtin_parts
from fedtide.runs import InUseError, policy_files
from fedtide.studies.paths import PathPlan, offered
from fedtide.studies.results import RunResult, from_rounds
from fedtide.studies.spec import Run, Study, name_of
from fedtide.studies.store import Store
from fedtide.types import Dataset, Floats

_PathByRun = Mapping[str, str]  # on which to do a run, by its name; without one, on the machine's own
_LOOK_AGAIN_SECONDS = 1.0  # for runs that another process is at
_BACKENDS = ("local", "dask", "here")
_FORWARD = 1 / 3  # the work of scoring a sample, against that of training on it
_ATTEMPTS = 3  # a run whose worker died this often is given up

_is_worker = False  # of a study in another process


class Failure(NamedTuple):
    """A run that could not be finished, with its reason."""

    run: Run
    reason: str
    exit_code: int = FedtideError.exit_code


class Outcome(NamedTuple):
    """What one run came to: a result, or why there is none; neither if its worker died."""

    run: Run
    result: RunResult | None
    reason: str | None
    exit_code: int = FedtideError.exit_code


def _failed(run: Run, error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome(run, None, "the Dask scheduler, or the connection to it, was lost: run the study again")
    return Outcome(run, None, *faults.explain(error))


def dataset_of(experiment: Experiment) -> Dataset:
    """Return the data set of an experiment, which the next one of the same data, in the same study, has from memory."""
    return _dataset(_Loading(experiment))


class _Loading:
    """An experiment, equal to every other one whose data set is made of the same."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, name = experiment, experiment.part("data").name
        declared = registry.own_parameters("data", registry.find_part("data", name, builtin_parts("data")))
        keys = config.all_keys()
        filled = {
            each.about.key: config.key_value(experiment, each.about.key) for each in declared if each.about.key in keys
        }
        args = experiment.part("data").args
        files = registry.part_argument_files("data", name, args)
        contents: dict[str, str | None] = {each: user_code.file_digest(place) for each, place in files.items()}
        contents["data.folder"] = folder_digest(name, experiment.data.folder)
        same = (name, args, filled, user_code.source_digest(name), str(user_code.user_code_folder()), contents)
        self._same = json.dumps(same, sort_keys=True, default=str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Loading) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)


@functools.lru_cache(maxsize=1)
def _dataset(wanted: _Loading) -> Dataset:
    return load_dataset(wanted.experiment)


def run_one(
    tree: Mapping[str, Any],
    folder: str | None,
    name: str | None = None,
    path: str | None = None,
    beside: str | None = None,
) -> RunResult:
    """Do one run in this process, on one thread; continue it if `folder` holds a part of it.

    name: by which the result will be kept; the user's policy files must be those that it stands for, from first to last.
    path: the instruction path on which to train; None: this machine's own. beside: a folder where the policy files are looked
    for besides the working folder.
    """
    native = engine(config.experiment(tree)) == "native"
    with user_code.search_folder(Path(beside) if beside else None), trained_on(path if native else None):
        return _run_one(tree, folder, name)


def _run_one(tree: Mapping[str, Any], folder: str | None, name: str | None) -> RunResult:
    begun, resumed = time.perf_counter(), folder is not None and Path(folder).exists()
    experiment = config.experiment(tree)
    _check_name(experiment, name)
    dataset = dataset_of(experiment)
    try:
        done = _simulated(experiment, folder, dataset)
    except RunFolderError as error:
        if not resumed or isinstance(error, InUseError) or faults.machine(error) is not None:
            raise
        # The part that was there is damaged, or from another kind of machine: begin anew.
        shutil.rmtree(str(folder))
        done, resumed = _simulated(experiment, folder, dataset), False
    _check_name(experiment, name)
    seconds = None if resumed else time.perf_counter() - begun  # only a run done in one go tells what it costs
    rounds, num_parameters, left = done
    return from_rounds(experiment, rounds, num_parameters, seconds, dataset.num_labels, left)


def _simulated(experiment: Experiment, folder: str | None, dataset: Dataset) -> tuple[Any, int, list[Any]]:
    """Return a run's rounds, d, and the evaluations that are left because it diverged: that is a result like any other."""
    from fedtide.engine.simulate import simulate

    try:
        finished = simulate(experiment, folder, threads=1, dataset=dataset)
    except DivergedError as error:
        if error.so_far is None:
            raise
        return error.so_far
    return finished.rounds, len(finished.model), []


@contextlib.contextmanager
def trained_on(path: str | None) -> Iterator[None]:
    """Train on this instruction path within (None: as before); training refuses one that this machine does not offer."""
    if path is None:
        yield
        return
    before = os.environ.get("FEDTIDE_ISA")
    os.environ["FEDTIDE_ISA"] = path
    try:
        yield
    finally:
        if before is None:
            del os.environ["FEDTIDE_ISA"]
        else:
            os.environ["FEDTIDE_ISA"] = before


def _check_name(experiment: Experiment, name: str | None) -> None:
    if name is not None and name_of(experiment) != name:
        raise FedtideError(
            f"{', '.join(policy_files(experiment)) or 'a policy file'} is not as it was when the study was read "
            "(edited since, or another version on this worker): run the study again"
        )


def die_with_parent() -> None:
    """Make this worker end when the process that started it is gone, even by SIGKILL: its run folder must be free again."""
    global _is_worker
    _is_worker = True
    signals.leave_to_parent()
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def missing(study: Study, store: Store) -> list[Run]:
    """Return the runs that the store does not hold yet, each once."""
    return [run for name, run in {run.name: run for run in study.runs}.items() if not store.has(name)]


def expected_work(run: Run) -> float:
    """Return about how many samples a run visits, to tell the time left; runs differ a hundredfold.

    A device finishes once per duration, and counts once at an aggregation however often it could have finished by then.
    """
    e, horizon = run.experiment, run.experiment.timeline.horizon
    duration, reports = _looked_at(run)
    ticks = effort.least_ticks(e, len(duration) / float((1 / duration).sum())) or horizon / e.timeline.period
    ready = float(np.minimum(horizon / duration, ticks).sum())
    trained = ready if reports else min(ticks * e.policy.limit, ready)
    evaluations = min(ticks, horizon / e.learning.evaluate_every if e.learning.evaluate_every else ticks)
    sets = ("num_test", "num_train") if e.learning.training_loss else ("num_test",)
    scored = sum(effort.dataset_size(e, key) or 0 for key in sets)
    return trained * effort.samples_per_job(e) + evaluations * scored * _FORWARD


def _looked_at(run: Run) -> tuple[Floats, bool]:
    """Return how long every device's first training takes [N], and whether all who are ready train to report something.

    What a user's part raises is told of when its run begins, not here.
    """
    e = run.experiment
    with user_code.search_folder(run.beside):
        try:
            return durations(e), bool(make_policy(e).needs)
        except FedtideError:
            return np.full(e.fleet.num_devices, e.fleet.max_duration), False


def run_study(
    study: Study,
    store: Store,
    *,
    workers: int = os.cpu_count() or 1,
    backend: str = "local",
    address: str | None = None,
    plan: PathPlan | None = None,
    on_done: Callable[[Outcome], None] = lambda _: None,
) -> list[Failure]:
    """Do what is missing, or what a plan says, and keep every result as it comes; return the runs that failed.

    backend: local, worker processes on this machine; dask, a cluster; here, this process, one run after another.
    """
    if _is_worker:
        raise FedtideError(
            "a worker process read your script to find a part of your own, and the script started the study again: put the "
            "call below `if __name__ == '__main__':`, move the part to a file of its own, or say workers=1"
        )
    store.prepare()
    _dataset.cache_clear()  # the files that a user's own data set reads may have changed since the last study
    todo, path = (plan.todo, plan.path) if plan else (missing(study, store), {})
    if backend not in _BACKENDS:
        raise FedtideError(f"--backend {backend!r} is not known; use {', '.join(_BACKENDS[:-1])} or {_BACKENDS[-1]}")
    if address is not None and backend != "dask":
        raise FedtideError(f"--address {address!r} is a Dask scheduler's: say --backend dask too")
    if backend == "dask" and path:
        raise FedtideError(
            "--isa-strict and --isa-redo choose among this machine's paths: use them with --backend local"
        )
    if backend == "here":
        outcomes = _here(todo, store, path)
    else:
        outcomes = _local(todo, store, workers, path) if backend == "local" else _dask(todo, workers, address)
    failures = []
    for outcome in outcomes:
        if outcome.result is not None:
            store.save(outcome.run.name, outcome.result)
            shutil.rmtree(_folder(store, outcome.run, path), ignore_errors=True)
        else:
            failures.append(Failure(outcome.run, outcome.reason or "unknown", outcome.exit_code))
        on_done(outcome)
    store.compact(store.study or study.name)
    return failures


def _task(run: Run, folder: Path | None, path: str | None = None) -> tuple[Any, ...]:
    """Return what `run_one` is called with in another process."""
    texts = [None if each is None else str(each) for each in (folder, run.name, path, run.beside)]
    return config.dump(run.experiment), *texts


def _folder(store: Store, run: Run, path: _PathByRun) -> Path:
    """Where a run under way keeps its checkpoint, on another path beside it; it goes once the result is stored."""
    asked = path.get(run.name)
    own = asked is None or asked == offered(engine(run.experiment))[0]
    return store.folder / ".work" / (run.name if own else f"{run.name}.{asked}")


def _here(todo: Sequence[Run], store: Store, path: _PathByRun) -> Iterator[Outcome]:
    """Run in this process: needs no script that a worker can import, as a session at a prompt or a notebook has none."""
    for run in todo:
        try:
            result = run_one(*_task(run, _folder(store, run, path), path.get(run.name)))
        except Exception as error:
            yield _failed(run, error)
        else:
            yield Outcome(run, result, None)


def _local(todo: Sequence[Run], store: Store, workers: int, path: _PathByRun) -> Iterator[Outcome]:
    """Run in worker processes. A worker that dies takes its pool with it: a new one continues from the checkpoints.

    Which worker died is not known, so all runs that were under way go again, one by one: a run that kills its worker takes
    no other with it.
    """
    waiting, deaths = {run.name: run for run in todo}, Counter[str]()
    while waiting:
        suspects = [run for run in waiting.values() if deaths[run.name]]
        for outcome in _pool(suspects[:1] or list(waiting.values()), store, workers, path):
            name = outcome.run.name
            if outcome.result is None and outcome.reason is None:
                deaths[name] += 1
                if deaths[name] < _ATTEMPTS:
                    continue
                reason = (
                    f"its worker process died {_ATTEMPTS} times: it was killed, ran out of memory, or a part of your own ended "
                    "it; run it in this process to see which (--backend here, or workers=1 in Python)"
                )
                outcome = outcome._replace(reason=reason, exit_code=faults.MACHINE)
            del waiting[name]
            yield outcome


def _pool(runs: Sequence[Run], store: Store, workers: int, path: _PathByRun) -> Iterator[Outcome]:
    """Run until all is done or a worker died; then those under way have neither result nor reason."""
    waiting, under_way, broken = list(runs), dict[Future[RunResult], Run](), False
    elsewhere: list[Run] = []  # another study on the same store is at them
    context = multiprocessing.get_context("spawn")
    with deaf(signal.SIGHUP):  # it would die with the terminal, and be missed by all others
        resource_tracker.ensure_running()
    with ProcessPoolExecutor(min(workers, len(runs)), mp_context=context, initializer=die_with_parent) as pool:
        try:
            while (waiting or under_way or elsewhere) and not broken:
                if not waiting and not under_way:
                    time.sleep(_LOOK_AGAIN_SECONDS)
                    waiting, elsewhere = elsewhere, []
                try:
                    while waiting and len(under_way) < workers:
                        run = waiting[0]
                        if store.has(
                            run.name, path.get(run.name)
                        ):  # another study on the same store has done it meanwhile
                            yield Outcome(waiting.pop(0), store.load(run.name), None)
                            continue
                        task = _task(run, _folder(store, run, path), path.get(run.name))
                        with apart():
                            under_way[pool.submit(run_one, *task)] = run
                        waiting.pop(0)
                except BrokenProcessPool:
                    broken = True
                done, _ = wait(under_way, return_when=ALL_COMPLETED if broken else FIRST_COMPLETED)
                for future in done:
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        broken = True
                    else:
                        run = under_way.pop(future)
                        if error is None:
                            yield Outcome(run, future.result(), None)
                        elif isinstance(error, InUseError):
                            elsewhere.append(run)
                        elif store.has(
                            run.name, path.get(run.name)
                        ):  # done elsewhere, and the part here cleared away under our hands
                            yield Outcome(run, store.load(run.name), None)
                        else:
                            yield _failed(run, error)
        except BaseException:  # Ctrl-C: do not wait for what is under way; it resumes from its checkpoint
            processes = list((pool._processes or {}).values())  # shutdown forgets them
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            raise
    for run in under_way.values():
        yield Outcome(run, None, None)


def _run_or_say_why(*task: Any) -> RunResult | tuple[str, int]:
    """Do one run; return why not, and the exit code, where it fails: not every error can be sent, and Dask logs them all."""
    try:
        return run_one(*task)
    except Exception as error:
        return faults.explain(error)


def _dask(todo: Sequence[Run], workers: int, address: str | None) -> Iterator[Outcome]:
    """Run on a Dask cluster: the one at `address`, or one started here with `workers` processes of one thread."""
    client, close = connect("--backend dask", "--address", address, workers)
    from distributed import as_completed

    try:
        # No shared disk is assumed: a run that loses its worker starts over on another one.
        futures = {
            client.submit(_run_or_say_why, *_task(run, None), key=f"fedtide-{run.name}", retries=0, pure=False): run
            for run in todo
        }
        for future in as_completed(list(futures)):
            run = futures[future]
            if future.status == "finished":
                done = future.result()
                yield Outcome(run, None, *done) if isinstance(done, tuple) else Outcome(run, done, None)
            else:
                yield _failed(run, future.exception() if future.status == "error" else None)
    finally:
        close()
