"""Trainings on the workers of a Dask cluster: real processes, killed, added and sent away, give the bits of threads."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedtide
from fedtide import config
from fedtide.core import cluster
from fedtide.deploy.settings import Terms, check_terms, deployment
from fedtide.engine.system import build, make_trainer, parameter_count
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning import dask, dask_worker, native
from fedtide.learning.dask import DaskTrainer, _pack_chunks, _split_jobs
from fedtide.learning.model import MODELS
from fedtide.learning.trainer import LocalWork, Task
from fedtide.parts import registry
from fedtide.runs import RoundRecord
from fedtide.types import Job
from helpers import small, small_dataset

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # Dask's own, about sockets and clusters that are closed under it
]

TIMEOUT = 120
DATA = small_dataset(num_train=600, side=28)
# A few seconds of training in all, on stale models too.
WORLD: dict[str, Any] = {
    "fleet": {"num_devices": 12},
    "policy": {"limit": 6},
    "radio": {"num_symbols": 20_000},
    "timeline": {"horizon": 2.0},
    "learning": {"trainer": "native", "model": "paper_cnn", "local_epochs": 8},
}


def on_dask(**args: Any) -> dict[str, Any]:
    return {"learning": {"trainer": {"name": "dask", **args}}}


def simulated(folder: Path | None, *trees: Any, **more: Any) -> fedtide.Result:
    return fedtide.simulate(small(WORLD, *trees), folder, dataset=DATA, **more)


def same(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in ("rounds.jsonl", "model.npy"))


def wait_for(what: Callable[[], Any]) -> None:
    end = time.monotonic() + TIMEOUT
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def own_workers(pid: int | None = None) -> list[psutil.Process]:
    """Return the worker processes that a process started."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "spawn_main" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on two threads."""
    folder = tmp_path_factory.mktemp("threads") / "run"
    simulated(folder, threads=2)
    return folder


class Elsewhere:
    """A scheduler and workers that nobody restarts, each started by hand."""

    def __init__(self, folder: Path) -> None:
        self.file, self.processes = folder / "scheduler.json", list[subprocess.Popen[bytes]]()
        self._start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard")
        wait_for(self.file.exists)

    def _start(self, module: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, "--scheduler-file", str(self.file), *words]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **env})
        self.processes.append(process)
        return process

    def worker(self, threads: int = 1, **env: str) -> subprocess.Popen[bytes]:
        words = ["--no-nanny", "--nthreads", str(threads), "--no-dashboard"]
        return self._start("distributed.cli.dask_worker", *words, **env)

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        from distributed import Client

        with Client(scheduler_file=str(self.file), timeout=TIMEOUT) as client:
            yield client

    def workers(self, count: int) -> str:
        """Wait for so many workers; return the scheduler's address."""
        with self.client() as client:
            if count:
                client.wait_for_workers(count, timeout=TIMEOUT)
            return str(client.scheduler.address)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    found = Elsewhere(tmp_path)
    yield found
    for process in reversed(found.processes):
        process.kill()
        process.wait()


def under_way(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None], call: int, wait: float = 0.1) -> list[str]:
    """Do something so many seconds after the so-manieth lot of jobs was sent to workers; return what happened, in order."""
    real, happened = dask._Link._asked, []

    def later() -> None:
        do()
        happened.append("done")

    def asked(self: Any, *args: Any) -> Any:
        happened.append("asked")
        if happened.count("asked") == call:
            threading.Timer(wait, later).start()
        answer = real(self, *args)
        happened.append("answered")
        return answer

    monkeypatch.setattr(dask._Link, "_asked", asked)
    return happened


# ---- the same bits


@pytest.mark.slow
def test_two_processes_equal_two_threads(tmp_path: Path, threads: Path) -> None:
    begun: list[int] = []

    def look(record: RoundRecord, _: int) -> None:
        if record.picked:
            begun.append(len(own_workers()))

    simulated(tmp_path / "run", on_dask(workers=2), on_round=look)
    assert same(tmp_path / "run", threads)
    assert set(begun) == {2}
    assert own_workers() == []


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path: Path, threads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in (0.1, 0.05, 0.02, 0.0):  # how long jobs take depends on the machine, and on what else it does
        with monkeypatch.context() as patch:
            happened = under_way(patch, lambda: own_workers()[0].kill(), 3, wait)
            simulated(tmp_path / f"run{wait}", on_dask(workers=2))
        assert same(tmp_path / f"run{wait}", threads)
        if happened[happened.index("done") - 1] == "asked":  # it was killed while it trained
            return
    pytest.fail("the worker was never killed while it trained")


@pytest.mark.slow
def test_workers_that_nobody_restarts_may_go_and_come(
    tmp_path: Path, threads: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere
) -> None:
    first, _ = elsewhere.worker(), elsewhere.worker(threads=2)
    address = elsewhere.workers(2)
    counted = _counting(elsewhere)

    def change() -> None:
        elsewhere.worker()
        first.kill()

    under_way(monkeypatch, change, 2)
    sent = under_way_sizes(monkeypatch)
    trainer = make_trainer(build(small(WORLD, on_dask(address=address)), dataset=DATA))
    simulated(tmp_path / "run", on_dask(address=address), trainer=trainer, on_round=lambda *_: elsewhere.workers(2))
    assert (tmp_path / "run" / "model.npy").read_bytes() == (threads / "model.npy").read_bytes()
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == (threads / "rounds.jsonl").read_bytes()
    with elsewhere.client() as client:
        held = client.run(lambda dask_worker: [each for each in dask_worker.plugins if each.startswith("fedtide")])
        assert [len(each) for each in held.values()] == [2, 2], "the new one has trainer and samples, too"
        assert sorted(counted(client)) == [0, 1], "samples came once to the old one; the new one nobody counted"
        trainer.close()  # type: ignore[attr-defined]
        assert not any(
            client.run(
                lambda dask_worker: [each for each in dask_worker.plugins if each.startswith("fedtide")]
            ).values()
        )
    assert max(sent) < DATA.train.images.nbytes / 2, "no chunk has samples in it"


def _counting(elsewhere: Elsewhere) -> Callable[[Any], list[int]]:
    """Count on the workers that are there now how often each is sent a table."""

    def begin() -> None:
        from fedtide.learning import dask_worker as learning_dask_worker

        counts: list[int] = []
        learning_dask_worker.JobTable.setup = lambda self, worker: counts.append(1)  # type: ignore[method-assign]
        learning_dask_worker.counts = counts  # type: ignore[attr-defined]

    def read() -> int:
        from fedtide.learning import dask_worker as learning_dask_worker

        return len(getattr(learning_dask_worker, "counts", []))

    with elsewhere.client() as client:
        client.run(begin)
    return lambda client: list(client.run(read).values())


def under_way_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many bytes each chunk takes, as it is sent."""
    real, sizes = dask._pack_chunks, []

    def packed(*args: Any) -> Any:
        chunk = real(*args)
        sizes.append(len(pickle.dumps(chunk)))
        return chunk

    monkeypatch.setattr(dask, "_pack_chunks", packed)
    return sizes


@pytest.mark.slow
def test_a_stopped_worker_does_not_hold_the_run(
    tmp_path: Path, elsewhere: Elsewhere, threads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP while it trains: another one gets its chunk, the rest of the run leaves it out, and the bits are those of threads."""
    monkeypatch.setattr(dask, "SILENT_SECONDS", 4.0)
    stopped, _ = elsewhere.worker(), elsewhere.worker()
    address = elsewhere.workers(2)
    happened = under_way(monkeypatch, lambda: os.kill(stopped.pid, signal.SIGSTOP), call=2, wait=0.05)
    begun = time.monotonic()
    try:
        simulated(tmp_path / "run", on_dask(address=address))
        took = time.monotonic() - begun
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert "done" in happened
    assert same(tmp_path / "run", threads)
    assert took < 100  # Dask gives a worker up after 300 s


@pytest.mark.slow
def test_begun_with_two_workers_and_resumed_with_one(tmp_path: Path, threads: Path) -> None:
    def stop(record: RoundRecord, _: int) -> None:
        if record.index == 4:
            raise ZeroDivisionError

    with pytest.raises(TrainingError, match="on_round"):
        simulated(tmp_path / "run", on_dask(workers=2), on_round=stop)
    assert own_workers() == []
    simulated(tmp_path / "run", on_dask(workers=1))
    assert same(tmp_path / "run", threads)


@pytest.mark.slow
def test_what_devices_remember_travels_with_their_jobs(tmp_path: Path) -> None:
    keys = {"learning": {"model": "softmax", "local_epochs": 1}}
    own = {"learning": {"trainer": "remembering:Control"}}
    simulated(tmp_path / "own", keys, own)
    simulated(tmp_path / "dask", keys, on_dask(inner="remembering:Control", workers=2))
    assert same(tmp_path / "dask", tmp_path / "own")


@pytest.mark.slow
def test_a_model_of_ones_own_goes_to_the_workers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\ndef make(width):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 3))\n"
    )
    model = {"model": {"name": f"{tmp_path}/mine.py:make", "width": 5}, "local_epochs": 1}
    torch = {"learning": {**model, "trainer": "torch"}}
    simulated(tmp_path / "torch", torch)
    simulated(tmp_path / "dask", torch, on_dask(inner="torch", workers=2))
    assert same(tmp_path / "dask", tmp_path / "torch")


# ---- the end of a run


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_workers_do_not_outlive_a_run(tmp_path: Path, number: signal.Signals, code: int) -> None:
    words = ["data.name=synthetic", "data.num_train=3000", "policy.limit=6", "learning.local_epochs=20"]
    command = [sys.executable, "-m", "fedtide", "run", *words, "learning.trainer={name: dask, workers: 2}", "-o", "run"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    rounds = tmp_path / "run" / "rounds.jsonl"
    wait_for(lambda: rounds.exists() and rounds.read_text().count("\n") >= 2)
    workers = own_workers(process.pid)
    assert len(workers) == 2
    time.sleep(0.3)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code
    wait_for(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in workers))
    if code > 0:
        assert "fedtide resume run" in said
        assert "Traceback" not in said
        assert len([line for line in said.splitlines() if line.strip()]) <= 2
    assert fedtide.load(tmp_path / "run").rounds


# ---- refused, in one line


def refused(tree: Any, **more: Any) -> str:
    with pytest.raises(FedtideError) as error:
        fedtide.simulate(small(WORLD, tree), dataset=DATA, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_address_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.core.cluster.CONNECT_SECONDS", 1)
    said = refused(on_dask(address="tcp://127.0.0.1:9"))
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in said
    assert said.endswith("check learning.trainer.address")
    assert "check learning.trainer.address" in refused(on_dask(address="nonsense://x"))


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = refused(on_dask())
    assert said.startswith("learning.trainer=dask needs Dask")
    assert said.endswith("pip install 'fedtide[dask]'")


@pytest.mark.slow
def test_a_cluster_without_workers(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "WORKER_PATIENCE_SECONDS", 0.5)
    assert "has had no worker for 0.5 s" in refused(on_dask(address=elsewhere.workers(0)))


@pytest.mark.slow
def test_a_worker_on_another_instruction_path(elsewhere: Elsewhere) -> None:
    if native.native_isa() == "baseline":
        pytest.skip("there is no other path")
    elsewhere.worker(FEDTIDE_ISA="baseline")
    said = refused(on_dask(address=elsewhere.workers(1)))
    assert (
        f"trains on the instruction path baseline, the run on {native.native_isa()}, and another gives other bits"
        in said
    )
    assert f"FEDTIDE_ISA={native.native_isa()}" in said


@pytest.mark.slow
def test_a_scheduler_that_goes_away_leaves_a_run_that_goes_on_elsewhere(
    tmp_path: Path, threads: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere.worker()
    address = elsewhere.workers(1)
    under_way(monkeypatch, elsewhere.processes[0].kill, 3)
    with pytest.raises(TrainingError, match=r"connection to it, was lost.*resume the run"):
        simulated(tmp_path / "run", on_dask(address=address))
    simulated(tmp_path / "run", on_dask(workers=1))
    assert same(tmp_path / "run", threads)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"inner": "scaffold"}, "stands around a trainer itself"),
        ({"inner": "dask"}, "stands around a trainer itself"),
        ({"inner": "mine.py:Mine"}, "install it there and name it as package.module:name"),
        ({"inner": "nothing"}, "is not known"),
        ({"workers": 0}, "workers=0 cannot be"),
        ({"inner_args": {"momentum": 2}}, "momentum=2"),
        ({"inner_args": {"speed": 2}}, "does not accept the arguments"),
    ],
)
def test_what_cannot_be_inside(args: dict[str, Any], says: str) -> None:
    assert says in refused(on_dask(**args))


def test_nodes_of_a_federation_train_themselves() -> None:
    with pytest.raises(FedtideError, match=r"nodes train themselves; say learning.trainer=native"):
        check_terms(Terms(small(WORLD, on_dask()), deployment({})))


# ---- what a run is known by


def test_where_it_trains_is_no_part_of_a_runs_identity() -> None:
    plain, native_ = small(WORLD, on_dask()), small(WORLD)
    for place in ({"address": "tcp://there:8786"}, {"workers": 3}, {"address": "tcp://x:1", "workers": 9}):
        there = small(WORLD, on_dask(**place))
        assert config.digest(there) == config.digest(plain)
        assert config.dump(there)["learning"]["trainer"] == {"name": "dask", **place}, "it is still written down"
    assert config.digest(plain) != config.digest(native_)
    assert config.digest(small(WORLD, on_dask(inner_args={"momentum": 0.5}))) != config.digest(plain)
    # the same words mean something to another trainer
    others = [small(WORLD, {"learning": {"trainer": each}}) for each in ({}, {"workers": 3})]
    assert config.digest(others[0]) != config.digest(others[1])


def test_the_places_are_arguments_of_the_trainer() -> None:
    from fedtide.config.keys import PLACES

    assert {*PLACES["dask"]} < {each.name for each in registry.own_parameters("trainer", DaskTrainer)}


def test_a_run_knows_path_size_and_trainer_without_a_cluster() -> None:
    from fedtide.runs import run_identity
    from fedtide.runs.manifest import manifest_instruction_path

    experiment = small(WORLD, on_dask(inner_args={"momentum": 0.5}))
    system = build(experiment, dataset=DATA)
    assert manifest_instruction_path(experiment) == native.native_isa()
    assert parameter_count(system) == 21_483 == len(make_trainer(system).initial_model(0))
    assert run_identity(system, make_trainer(system))["trainer"] == "dask around native with momentum=0.5"
    assert own_workers() == []


# ---- how jobs are shared out


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40), st.lists(st.integers(1, 64), min_size=1, max_size=9))
def test_every_job_has_one_worker_and_none_waits_long(work: list[int], threads: list[int]) -> None:
    pieces = _split_jobs(np.array(work, np.float64), np.array(threads, np.float64))
    assert np.concatenate(pieces).tolist() == list(range(len(work)))
    fair = sum(work) / sum(threads)
    for piece, count in zip(pieces, threads, strict=True):
        assert sum(work[each] for each in piece) <= fair * count + max(work) + 1e-6 * sum(work)


def test_equal_jobs_on_equal_workers() -> None:
    assert [len(each) for each in _split_jobs(np.full(8, 5.0), np.ones(2))] == [4, 4]
    assert [len(each) for each in _split_jobs(np.full(9, 5.0), np.array([1.0, 2.0]))] == [3, 6]


def test_a_chunk_has_every_model_once_to_the_bit() -> None:
    zero = np.zeros(5, np.float32)
    starts = [(1, zero), (1, zero.copy()), (1, -zero), (2, zero + 1), (1, zero), (2, zero + 1)]
    jobs = [Job(k, version, start, 0.1, DATA.train, np.array([k])) for k, (version, start) in enumerate(starts)]
    chunk = _pack_chunks("maker", [(job, "table") for job in jobs])
    assert [row.start for row in chunk.jobs] == [0, 0, 1, 2, 0, 2]
    for job, row in zip(jobs, chunk.jobs, strict=True):
        assert chunk.starts[row.start].tobytes() == job.start.tobytes()
        assert (row.device, row.version, row.learning_rate, row.samples) == (job.device, job.version, 0.1, "table")


def test_jobs_of_one_model_are_neighbours_and_come_back_in_order() -> None:
    models = [np.full(3, value, np.float32) for value in (1, 2, 1, 3, 2, 1)]
    jobs = [Job(k, 1, start, 0.1, DATA.train, np.arange(2)) for k, start in enumerate(models)]
    order = dask._jobs_by_model(jobs)
    assert order.tolist() == [0, 2, 5, 1, 4, 3]
    chunks = [np.stack([jobs[row].start * row for row in piece]) for piece in (order[:2], order[2:])]
    back: Any = dask._in_order(chunks, order)
    assert np.array_equal(back, np.stack([job.start * row for row, job in enumerate(jobs)]))


@given(st.integers(1, 300), st.integers(1, 3), st.integers(0, 2**31))
def test_images_travel_as_bytes_and_arrive_to_the_bit(count: int, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(count).astype(np.float32)
    values[0] = -0.0
    images = rng.choice(values, (7, channels, 5, 5)).astype(np.float32)
    few = dask_worker.as_bytes(DATA.train._replace(images=images, labels=np.zeros(7, np.uint8)))
    assert few.floats().tobytes() == images.tobytes()
    assert count > 256 or few.images.dtype == np.uint8
    assert few.images.dtype == np.uint8 or few.images is images
    many = np.arange(7 * channels * 100, dtype=np.float32).reshape(7, channels, 10, 10)
    assert dask_worker.as_bytes(DATA.train._replace(images=many)).images is many


def test_a_scheduler_behind_tls_without_certificates_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FedtideError, match=r"tls://127.0.0.1:1 speaks TLS.*DASK_DISTRIBUTED__COMM__TLS__CA_FILE"):
        cluster.connect_cluster("a test", "learning.trainer.address", "tls://127.0.0.1:1", 1)


def test_samples_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "MOST_TABLE_BYTES", 1e5)
    trainer = DaskTrainer(Task(MODELS["softmax"]((1, 28, 28), 3), LocalWork(), 0, (1, 28, 28), 3))
    with pytest.raises(FedtideError, match=r"takes 0.0 GB, and Dask sends at most 0.0001 GB at once"):
        trainer.check_samples(DATA.train)
