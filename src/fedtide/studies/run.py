"""Doing the runs of a study that are missing: in processes on this machine, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment, workload
from fedtide.core import faults, signals
from fedtide.core.cluster import cluster_ignores_signal, connect_cluster, starting_cluster_workers
from fedtide.core.yaml12 import shown
from fedtide.data.fetch import fetched_folder_digest
from fedtide.engine.making import load_dataset, make_policy, system_durations
from fedtide.errors import DivergedError, FedtideError, RunFolderError
from fedtide.learning.trainer import trainer_backend as engine
from fedtide.parts import registry, user_code
from fedtide.parts.kinds import builtin_parts
from fedtide.runs import InUseError, policy_files
from fedtide.studies.instruction_paths import PathPlan, offered_instruction_paths
from fedtide.studies.results import RunResult, results_from_rounds
from fedtide.studies.spec import Run, Study, spec_run_name
from fedtide.studies.store import Store
from fedtide.types import Dataset, Floats

_PathByRun = Mapping[str, str]  # on which to do a run, by its name; without one, on the machine's own
_LOOK_AGAIN_SECONDS = 1.0  # for runs that another process is at
_FORWARD = 1 / 3  # the work of scoring a sample, against that of training on it
_ATTEMPTS = 3  # a run whose worker died this often is given up

_DIED = (
    f"its worker process died {_ATTEMPTS} times: it was killed, ran out of memory, or a part of your own ended it; run it in "
    "this process to see which (--backend here, or workers=1 in Python)"
)

_is_worker = False  # of a study in another process
_loaded: dict[str, Dataset] = {}  # the last data set, by what it was made of


class Outcome(NamedTuple):
    """What one run came to: a result, or the reason why there is none."""

    run: Run
    result: RunResult | None
    reason: str = ""
    exit_code: int = FedtideError.exit_code


def failed_run_error(failed: Outcome) -> FedtideError:
    """Return the error of a run that failed, with its exit code."""
    error = FedtideError(f"{failed.run.label}, seed {failed.run.experiment.seed}: {failed.reason}")
    error.exit_code = failed.exit_code
    return error


# One run.


def _dataset_of(experiment: Experiment) -> Dataset:
    """Return the data set of an experiment, which the next one of the same data, in the same study, has from memory."""
    key = _data_key(experiment)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = load_dataset(experiment)
    return _loaded[key]


def _data_key(experiment: Experiment) -> str:
    """Return a text that two experiments share if their data sets are made of the same."""
    name, args = experiment.part("data").name, experiment.part("data").args
    declared = registry.own_parameters("data", registry.find_part("data", name, builtin_parts("data")))
    keys = (each.about.key for each in declared)
    filled = {key: config.key_value(experiment, key) for key in keys if key in config.all_keys()}
    files = registry.part_argument_files("data", name, args)
    contents: dict[str, str | None] = {each: user_code.user_file_digest(place) for each, place in files.items()}
    contents["data.folder"] = fetched_folder_digest(name, experiment.data.folder)
    same = (
        name,
        args,
        filled,
        experiment.data.validation,
        experiment.data.num_held_out,
        user_code.user_source_digest(name),
        str(user_code.user_code_folder()),
        contents,
    )
    return json.dumps(same, sort_keys=True, default=str)


def _run_one(
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
    resumed = folder is not None and Path(folder).exists()
    with user_code.search_user_folder(Path(beside) if beside else None):
        experiment = config.experiment(tree)
        _check_name(experiment, name)
        native = engine(experiment.learning.trainer) == "native"
        clock = (
            time.thread_time if native else time.perf_counter
        )  # native training is in this thread, whatever else runs here
        begun, dataset = clock(), _dataset_of(experiment)
        with _trained_on(path if native else None):
            try:
                done = _simulated(experiment, folder, dataset)
            except RunFolderError as error:
                if not resumed or isinstance(error, InUseError) or faults.underlying_machine_fault(error) is not None:
                    raise
                # The part that was there is damaged, or from another kind of machine: begin anew.
                shutil.rmtree(str(folder))
                done, resumed = _simulated(experiment, folder, dataset), False
            _check_name(experiment, name)
            seconds = None if resumed else clock() - begun  # only a run done in one go tells what it costs
            rounds, num_parameters, left = done
            return results_from_rounds(experiment, rounds, num_parameters, seconds, dataset.num_labels, left)


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
def _trained_on(path: str | None) -> Iterator[None]:
    """Train on this instruction path within (None: as before); training refuses one that this machine does not offer."""
    before = os.environ.get("FEDTIDE_ISA", "")  # empty is as good as none
    os.environ["FEDTIDE_ISA"] = before if path is None else path
    try:
        yield
    finally:
        os.environ["FEDTIDE_ISA"] = before
        if not before:
            del os.environ["FEDTIDE_ISA"]


def _check_name(experiment: Experiment, name: str | None) -> None:
    if name is not None and spec_run_name(experiment) != name:
        raise FedtideError(
            f"{', '.join(policy_files(experiment)) or 'a policy file'} is not as it was when the study was read "
            "(edited since, or another version on this worker): run the study again"
        )


# What there is to do, and how much work it is.


def missing_runs(study: Study, store: Store) -> list[Run]:
    """Return the runs that the store does not hold yet, each once."""
    return [run for name, run in {run.name: run for run in study.runs}.items() if not store.has(name)]


def expected_run_work(run: Run) -> float:
    """Return about how many samples a run visits, to tell the time left; runs differ a hundredfold.

    A device finishes once per duration, and counts once at an aggregation however often it could have finished by then.
    """
    e, horizon = run.experiment, run.experiment.timeline.horizon
    duration, reports = _looked_at(run)
    ticks = workload.least_ticks(e, len(duration) / float((1 / duration).sum())) or horizon / e.timeline.period
    ready = float(np.minimum(horizon / duration, ticks).sum())
    trained = ready if reports else min(ticks * e.policy.limit, ready)
    evaluations = min(ticks, horizon / e.learning.evaluate_every if e.learning.evaluate_every else ticks)
    sets = ("num_test", "num_train") if e.learning.training_loss else ("num_test",)
    scored = sum(workload.expected_dataset_size(e, key) or 0 for key in sets)
    return trained * workload.samples_per_job(e) + evaluations * scored * _FORWARD


def _looked_at(run: Run) -> tuple[Floats, bool]:
    """Return how long every device's first training takes [N], and whether all who are ready train to report something.

    What a user's part raises is told of when its run begins, not here.
    """
    e = run.experiment
    with user_code.search_user_folder(run.beside):
        try:
            return system_durations(e), bool(make_policy(e).needs)
        except FedtideError:
            return np.full(e.fleet.num_devices, e.fleet.max_duration), False


# All of them.


def run_study(
    study: Study,
    store: Store,
    *,
    workers: int = os.cpu_count() or 1,
    backend: str = "local",
    address: str | None = None,
    plan: PathPlan | None = None,
    on_done: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Do what is missing, or what a plan says, and keep every result as it comes; return the runs that failed.

    backend: local, worker processes on this machine; dask, a cluster; here, this process, one run after another.
    """
    if _is_worker:
        raise FedtideError(
            "a worker process read your script to find a part of your own, and the script started the study again: put the "
            "call below `if __name__ == '__main__':`, move the part to a file of its own, or set workers=1"
        )
    store.prepare()
    _loaded.clear()  # the files that a user's own data set reads may have changed since the last study
    todo, path = (plan.todo, plan.path) if plan else (missing_runs(study, store), {})
    if address is not None and backend != "dask":
        raise FedtideError(f"--address {address!r} is a Dask scheduler's: say --backend dask too")
    if backend == "here":  # needs no script that a worker can import, as a session at a prompt or a notebook has none
        outcomes: Iterator[Outcome] = (_outcome(run, _attempt(*_task(run, store, path))) for run in todo)
    elif backend == "local":
        outcomes = _local(todo, store, workers, path)
    elif backend == "dask":
        outcomes = _dask(todo, workers, address, path)
    else:
        raise FedtideError(f"--backend {backend!r} is not known; use local, dask or here")
    failures = []
    for outcome in outcomes:
        if outcome.result is not None:
            store.save(outcome.run.name, outcome.result)
            shutil.rmtree(_folder(store, outcome.run, path), ignore_errors=True)
        else:
            failures.append(outcome)
        on_done(outcome)
    store.compact(store.study or study.name)
    return failures


def study_backend(workers: Any, backend: str | None = None, address: str | None = None) -> dict[str, Any]:
    """Return where runs are done, as `run_study` takes it: without a backend in this process, or in several."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise FedtideError(f"workers={shown(workers)} must be a whole number of at least 1")
    return {"workers": workers, "backend": backend or ("local" if workers > 1 else "here"), "address": address}


def _folder(store: Store, run: Run, path: _PathByRun) -> Path:
    """Where a run under way keeps its checkpoint, on another path beside it; it goes once the result is stored."""
    asked = path.get(run.name)
    own = asked is None or asked == offered_instruction_paths(engine(run.experiment.learning.trainer))[0]
    return store.folder / ".work" / (run.name if own else f"{run.name}.{asked}")


def _task(run: Run, store: Store | None = None, path: _PathByRun = {}) -> tuple[Any, ...]:  # noqa: B006  # read only
    """Return what `_run_one` is called with, perhaps in another process; no store: nothing is continued."""
    folder = None if store is None else str(_folder(store, run, path))
    return config.dump(run.experiment), folder, run.name, path.get(run.name), run.beside and str(run.beside)


def _attempt(*task: Any) -> RunResult | tuple[str, int]:
    """Do one run; return why not, and the exit code, where it fails: not every error can be sent to another process."""
    try:
        return _run_one(*task)
    except Exception as error:
        if _is_worker and isinstance(error, InUseError):  # it waits until the other process is done
            raise
        return faults.explain_fault(error)


def _outcome(run: Run, done: RunResult | tuple[str, int]) -> Outcome:
    return Outcome(run, None, *done) if isinstance(done, tuple) else Outcome(run, done)


def _local(todo: Sequence[Run], store: Store, workers: int, path: _PathByRun) -> Iterator[Outcome]:
    """Run in worker processes, each in a pool of its own: if one dies, its run is known, and goes on in a new one."""
    with cluster_ignores_signal(signal.SIGHUP):  # it would die with the terminal, and be missed by all others
        resource_tracker.ensure_running()
    waiting, deaths = list(todo), Counter[str]()
    elsewhere: list[Run] = []  # another study on the same store is at them
    idle = [_new_pool() for _ in range(min(workers, len(todo)))]
    under_way: dict[Future[Any], tuple[Run, ProcessPoolExecutor]] = {}
    try:
        while waiting or under_way or elsewhere:
            if not waiting and not under_way:
                time.sleep(_LOOK_AGAIN_SECONDS)
                waiting, elsewhere = elsewhere, []
            while waiting and idle:
                run = waiting.pop(0)
                if store.has(run.name, path.get(run.name)):  # another study on the same store has done it meanwhile
                    yield Outcome(run, store.load(run.name))
                    continue
                try:
                    with starting_cluster_workers():
                        future = idle[-1].submit(_attempt, *_task(run, store, path))
                    under_way[future] = run, idle.pop()
                except BrokenProcessPool:  # it died while it had nothing to do
                    waiting.insert(0, run)
                    idle[-1] = _new_pool()
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                run, pool = under_way.pop(future)
                error = future.exception()
                died = isinstance(error, BrokenProcessPool)
                idle.append(_new_pool() if died else pool)
                deaths[run.name] += died
                if died and deaths[run.name] < _ATTEMPTS:
                    waiting.insert(0, run)
                elif died:
                    yield Outcome(run, None, _DIED, faults.MACHINE)
                elif isinstance(error, InUseError):
                    elsewhere.append(run)
                elif error is not None:
                    yield Outcome(run, None, *faults.explain_fault(error))
                elif isinstance(future.result(), tuple) and store.has(run.name, path.get(run.name)):
                    yield Outcome(run, store.load(run.name))  # done elsewhere, and the part here was cleared away
                else:
                    yield _outcome(run, future.result())
    except BaseException:  # Ctrl-C: do not wait for what is under way; it resumes from its checkpoint
        for _, pool in under_way.values():
            for process in (pool._processes or {}).values():
                process.terminate()
        raise
    finally:
        for pool in [*idle, *(pool for _, pool in under_way.values())]:
            pool.shutdown(wait=False, cancel_futures=True)


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker)


def _begin_worker() -> None:
    """Make this worker end when the process that started it is gone, even by SIGKILL: its run folder must be free again."""
    global _is_worker
    _is_worker = True
    signals.leave_signals_to_parent()
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _workers_by_path(client: Any, todo: Sequence[Run], path: _PathByRun) -> dict[str, list[str]]:
    """Return which workers offer each instruction path that is asked for; raise if none does."""
    wanted = {path[run.name]: engine(run.experiment.learning.trainer) for run in todo if run.name in path}
    offered = {trainer: client.run(offered_instruction_paths, trainer) for trainer in {*wanted.values()}}
    single = {address for address, threads in client.nthreads().items() if threads == 1}  # a path is a process's
    found = {
        each: sorted(address for address, paths in offered[trainer].items() if each in paths and address in single)
        for each, trainer in wanted.items()
    }
    for each, addresses in found.items():
        if not addresses:
            raise FedtideError(
                f"--isa-strict, --isa-redo: no Dask worker of one thread offers the instruction path {each}, on which runs of the "
                "same seed were done: start one there (`dask worker ADDRESS --nthreads 1`), or do them on a path of your own "
                "(--isa-redo --backend local)"
            )
    return found


def _dask(todo: Sequence[Run], workers: int, address: str | None, path: _PathByRun) -> Iterator[Outcome]:
    """Run on a Dask cluster: the one at `address`, or one started here with `workers` processes of one thread.

    A run that has a path goes to workers that offer it, and waits for one if that is lost.
    """
    client, close = connect_cluster("--backend dask", "--address", address, workers)
    from distributed import as_completed

    try:
        # No shared disk is assumed: a run that loses its worker starts over on another one.
        places = _workers_by_path(client, todo, path) if path else {}
        futures = {
            client.submit(
                _attempt,
                *_task(run, path=path),
                key=f"fedtide-{run.name}-{path.get(run.name, '')}",
                workers=places.get(path.get(run.name, "")),
                retries=0,
                pure=False,
            ): run
            for run in todo
        }
        for future in as_completed(list(futures)):
            if future.status == "finished":
                yield _outcome(futures[future], future.result())
            else:
                lost = FedtideError("the Dask scheduler, or the connection to it, was lost: run the study again")
                error = future.exception() if future.status == "error" else lost
                yield Outcome(futures[future], None, *faults.explain_fault(error))
    finally:
        close()
