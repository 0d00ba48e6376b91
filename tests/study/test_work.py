"""Studies survive: SIGKILL of the study, of a pool's worker, of a Dask worker; and all backends agree."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
import yaml
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.config import merge_nested
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import InUseError
from fedtide.studies.metrics import final_accuracy
from fedtide.studies.run import expected_run_work, missing_runs, run_study
from fedtide.studies.spec import make_study, read_study
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, export_table, table_rows
from stored import TINY, same

TIMEOUT = 120.0
COMMAND = [sys.executable, "-c", "from fedtide.__main__ import main; main()"]


def wait_for(condition, what):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def assert_same(study, one: Store, other: Store):
    assert missing_runs(study, one) == missing_runs(study, other) == []
    for run in study.runs:
        assert same(one.load(run.name), other.load(run.name)), run.label


@pytest.fixture(scope="module")
def undisturbed(study_file, tmp_path_factory):
    """The study run in this process, one run after the other."""
    from fedtide import config
    from fedtide.studies.run import _run_one

    store = Store(tmp_path_factory.mktemp("undisturbed"))
    for run in read_study(study_file).runs:
        store.save(run.name, _run_one(config.dump(run.experiment), None))
    return store


@pytest.mark.slow
def test_sigkill_of_the_study_repeats_no_finished_run(study_file, undisturbed, tmp_path):
    study, folder = read_study(study_file), tmp_path / "store"
    process = subprocess.Popen(
        [*COMMAND, "study", "run", str(study_file), "--store", str(folder), "-j", "2"], start_new_session=True
    )
    wait_for(lambda: len(list((folder / "new").glob("*.json"))) >= 2, "two finished runs")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    killed = Store(folder)
    finished = {name: killed.load(name).provenance for name in killed.names()}
    assert 2 <= len(finished) < len(study.runs)
    done: list[str] = []
    assert run_study(study, Store(folder), workers=2, on_done=lambda outcome: done.append(outcome.run.name)) == []
    assert not finished.keys() & set(done)
    assert {name: Store(folder).load(name).provenance for name in finished} == finished
    assert_same(study, Store(folder), undisturbed)
    rows = [table_rows(study, by_label(study, each), "mean_accuracy") for each in (Store(folder), undisturbed)]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_sigkill_of_the_parent_alone_leaves_no_orphan(study_file, undisturbed, tmp_path):
    study, store = read_study(study_file), Store(tmp_path / "store")
    process = subprocess.Popen([*COMMAND, "study", "run", str(study_file), "--store", str(store.folder), "-j", "2"])
    wait_for(lambda: any((store.folder / ".work").glob("*/rounds.jsonl")), "a run under way")
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    assert psutil.wait_procs(workers, TIMEOUT)[1] == []
    assert run_study(study, store, workers=2) == []
    assert_same(study, store, undisturbed)
    assert not any((store.folder / ".work").iterdir())


@pytest.mark.slow
def test_a_run_that_kills_its_worker_takes_no_other_with_it(tmp_path):
    (tmp_path / "killer.py").write_text("import os\ndef die(candidates, limit, rng):\n    os._exit(1)\n")
    variants = {
        "a": {},
        "deadly": {"policy": {"scheduler": f"{tmp_path}/killer.py:die"}},
        "b": {"policy": {"limit": 1}},
    }
    study, store = make_study("mixed", variants, [0], TINY), Store(tmp_path / "store")
    failures = run_study(study, store, workers=3)
    assert [(failure.run.label, "died 3 times" in failure.reason) for failure in failures] == [("deadly", True)]
    assert [run.label for run in missing_runs(study, store)] == ["deadly"]


def start(study_file, store, *more):
    return subprocess.Popen(
        [*COMMAND, "study", "run", str(study_file), "--store", str(store), *more], stderr=subprocess.PIPE
    )


@pytest.mark.slow
def test_sigint_of_the_parent_alone_ends_its_workers_at_once(study_file, undisturbed, tmp_path):
    """As a job system or an IDE sends it: the workers do not see it themselves."""
    store = Store(tmp_path / "store")
    process = start(study_file, store.folder, "-j", "2")
    wait_for(lambda: list((store.folder / ".work").glob("*/checkpoint.npz")), "a run under way")
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=5)
    assert process.returncode == 130
    assert b"Traceback" not in said
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive
    assert run_study(read_study(study_file), store, workers=2) == []
    assert_same(read_study(study_file), store, undisturbed)


@pytest.mark.slow
def test_two_studies_on_one_store_share_the_work(study_file, undisturbed, tmp_path):
    store = Store(tmp_path / "store")
    both = [start(study_file, store.folder, "-j", "1") for _ in range(2)]
    for process in both:
        _, said = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, said
    assert_same(read_study(study_file), store, undisturbed)


def test_a_policy_file_that_is_edited_while_the_study_runs_is_noticed(study_file, tmp_path):
    for name in (study_file.name, "slow.py"):
        text = study_file.with_name(name).read_text().replace(str(study_file.parent), str(tmp_path))
        (tmp_path / name).write_text(text)
    file = tmp_path / "slow.py"
    study, store = read_study(tmp_path / study_file.name), Store(tmp_path / "store")
    file.write_text(file.read_text() + "\n# edited\n")
    failures = run_study(study._replace(runs=study.runs[:1]), store, workers=1)
    assert [failure.reason.partition(" (")[0] for failure in failures] == [
        f"{file}:slow is not as it was when the study was read"
    ]
    assert missing_runs(study, store) == list(study.runs)


def test_a_damaged_part_of_a_run_is_begun_anew(study_file, undisturbed, tmp_path):
    study, store = read_study(study_file), Store(tmp_path / "store")
    folder = store.folder / ".work" / study.runs[0].name
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text("seed: [")
    assert run_study(study._replace(runs=study.runs[:1]), store, workers=1) == []
    assert same(store.load(study.runs[0].name), undisturbed.load(study.runs[0].name))


def test_a_result_that_cannot_be_stored_keeps_its_checkpoint(tmp_path, monkeypatch):
    study, store = make_study("x", {"x": {}}, [0], TINY), Store(tmp_path / "store")

    def full(self, name, result):
        raise RunFolderError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", full)
        with pytest.raises(RunFolderError, match="full"):
            run_study(study, store, workers=1)
    kept = store.folder / ".work" / study.runs[0].name
    rounds = (kept / "rounds.jsonl").read_bytes()
    assert rounds
    assert run_study(study, store, workers=1) == []
    assert store.load(study.runs[0].name).totals["seconds"] is None  # nothing was repeated
    assert not kept.exists()


@pytest.mark.slow
def test_sigkill_of_a_pool_worker_loses_nothing(study_file, undisturbed, tmp_path):
    study, store = read_study(study_file), Store(tmp_path / "store")
    process = subprocess.Popen([*COMMAND, "study", "run", str(study_file), "--store", str(store.folder), "-j", "2"])
    work = store.folder / ".work"
    wait_for(
        lambda: len(list((store.folder / "new").glob("*.json"))) >= 1 and any(work.glob("*/rounds.jsonl")),
        "a run under way",
    )
    workers = [each for each in psutil.Process(process.pid).children() if "spawn_main" in " ".join(each.cmdline())]
    workers[0].kill()
    assert process.wait(TIMEOUT) == 0
    assert_same(study, store, undisturbed)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_dask_with_a_killed_worker_agrees(study_file, undisturbed, tmp_path):
    distributed = pytest.importorskip("distributed")

    study, store = read_study(study_file), Store(tmp_path / "store")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        pids = list(distributed.Client(cluster).run(os.getpid).values())
        assert len(pids) == 2
        killed = []

        def kill_one(_):
            if not killed:  # midway: one run is done, others are under way
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        failures = run_study(study, store, backend="dask", address=cluster.scheduler_address, on_done=kill_one)
    assert killed
    assert failures == []
    assert_same(study, store, undisturbed)


def test_dask_looks_for_policies_beside_the_study_too(tmp_path, monkeypatch):
    """A stand-in for Dask that does each task at once: what counts is with what the tasks are called."""
    file, own = tmp_path / "there" / "study.yaml", {"policy": {"limit": 2, "scheduler": "mine.py:first"}}
    file.parent.mkdir()
    file.with_name("mine.py").write_text("def first(candidates, limit, rng):\n    return list(range(limit))\n")
    file.write_text(yaml.safe_dump({"version": 1, "name": "own", "base": {**TINY, **own}}))

    class Done(Future):
        status = "finished"

    class Client:
        def __init__(self, *_, **__):
            pass

        def submit(self, task, *args, **_):
            done = Done()
            done.set_result(task(*args))
            return done

        def close(self):
            pass

    stand_in = types.SimpleNamespace(Client=Client, LocalCluster=None, Security=None, as_completed=iter)
    monkeypatch.setitem(sys.modules, "distributed", stand_in)
    study, store = read_study(file), Store(tmp_path / "store")
    assert run_study(study, store, backend="dask", address="tcp://host:1") == []
    assert missing_runs(study, store) == []


def test_a_policy_that_raises_what_ctrl_c_raises_is_the_culprit(tmp_path):
    (tmp_path / "mine.py").write_text("def cut(candidates, limit, rng):\n    raise KeyboardInterrupt\n")
    study = make_study("own", {"own": {"policy": {"scheduler": f"{tmp_path}/mine.py:cut"}}}, [0], TINY)
    [failure] = run_study(study, Store(tmp_path / "store"), workers=1)
    assert "mine.py:cut' raised KeyboardInterrupt" in failure.reason
    assert failure.exit_code == 5


def test_a_run_that_another_process_is_at_fails_in_this_process(tmp_path, monkeypatch):
    def busy(*task):
        raise InUseError("another process is at it")

    monkeypatch.setattr("fedtide.studies.run._run_one", busy)
    [failure] = run_study(make_study("x", {"x": {}}, [0], TINY), Store(tmp_path / "store"), backend="here")
    assert failure.reason == "another process is at it"


def test_a_failing_run_is_reported_and_stops_no_other(tmp_path):
    variants = {
        "good": {},
        "bad": {"policy": {"scheduler": "nowhere.py:nothing"}},
        "diverges": {"learning": {"learning_rate": 1e30}},
    }
    study, store = make_study("mixed", variants, [0, 1], TINY), Store(tmp_path / "store")
    seen = []
    failures = run_study(study, store, workers=1, on_done=seen.append)
    assert len(seen) == 6
    assert sorted(failure.run.label for failure in failures) == ["bad", "bad"]
    assert any("nowhere.py" in failure.reason for failure in failures)
    assert {run.label for run in missing_runs(study, store)} == {"bad"}


@pytest.mark.parametrize("every", [0.0, 0.5])
def test_a_run_that_diverges_is_a_result_that_counts_against_it(tmp_path, every):
    """From the moment of divergence on it is a guess, at all evaluations that the others have."""
    learning = {"training_loss": True, "evaluate_every": every}
    variants = {"good": {}, "diverges": {"learning": {"learning_rate": 1e30}}}
    study, store = (
        make_study("two", variants, [0, 1], merge_nested(TINY, {"learning": learning})),
        Store(tmp_path / "store"),
    )
    assert run_study(study, store, workers=1, backend="here") == []
    assert missing_runs(study, store) == []
    found = by_label(study, Store(tmp_path / "store"))
    for seed in (0, 1):
        good, bad = found["good"][seed], found["diverges"][seed]
        assert good.diverged is None
        assert bad.diverged is not None
        guess = bad.column("time") >= bad.diverged
        assert set(bad.column("test_accuracy")[guess]) == {0.1}
        assert set(bad.column("train_loss")[guess]) == {math.log(10)}
        assert set(good.column("time")) <= set(bad.column("time"))
        assert final_accuracy(bad) == 0.1
        assert bad.column("time")[-1] == good.column("time")[-1]
    reference, row = table_rows(study, by_label(study, store), "mean_accuracy")
    assert row["diverged_note"] == "2 of 2 diverged"
    assert reference["diverged_note"] == ""
    path = tmp_path / "two.yaml"
    tree = {
        "version": 1,
        "name": "two",
        "base": merge_nested(TINY, {"learning": learning}),
        "variants": variants,
        "seeds": 2,
    }
    path.write_text(yaml.safe_dump(tree))
    assert "2 of 2 diverged" in " ".join(invoke("show", path, "--store", tmp_path / "store").output.split())


def test_an_unknown_backend(tmp_path):
    with pytest.raises(FedtideError, match="use local, dask or here"):
        run_study(make_study("x", {"x": {}}, [0]), Store(tmp_path), backend="cloud")


def test_a_silent_scheduler(tmp_path):
    pytest.importorskip("distributed")
    study = make_study("x", {"x": {}}, [0])
    with pytest.raises(FedtideError, match="no Dask scheduler"):
        run_study(study, Store(tmp_path), backend="dask", address="tcp://127.0.0.1:9")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["here", "local", "dask"])
def test_a_cause_that_many_runs_share_is_one_line(tmp_path, backend):
    if backend == "dask":
        pytest.importorskip("distributed")
    (tmp_path / "bad.py").write_text(
        "import threading\n"
        "class Held(Exception):\n"
        "    def __init__(self, one, two):\n"
        "        super().__init__(one)\n"
        "        self.lock = threading.Lock()  # which no pickle takes\n"
        "def bad(candidates, limit, rng):\n"
        "    raise Held(1, 2)\n"
    )
    tree = {**TINY, "policy": {"scheduler": "bad.py:bad"}}
    study = {"version": 1, "name": "x", "base": tree, "axes": {"policy.limit": [1, 2]}, "seeds": 2}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(study))
    command = [*COMMAND, "study", "run", "s.yaml", "-j", "2", "--backend", backend]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert found.returncode == 5
    failed, error = found.stderr.splitlines()
    assert failed.startswith("failed: limit=")
    assert failed.endswith("scheduler='bad.py:bad' raised Held: 1 (bad.py:7); correct it there")
    assert error.startswith("error: 4 runs failed for the reason above;")


def test_the_command_says_what_failed(tmp_path):
    path: Path = tmp_path / "s.yaml"
    path.write_text("version: 7\nname: x")
    found = subprocess.run(
        [*COMMAND, "study", "run", str(path)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert found.returncode == 2
    assert "version=7" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A tiny finished study: its file and its store."""
    folder = tmp_path_factory.mktemp("done")
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "tiny", "base": TINY, "axes": {"policy.limit": [1, 2]}}))
    assert run_study(read_study(path), Store(folder / "store"), workers=1) == []
    return path, folder / "store"


def invoke(*words):
    found = CliRunner().invoke(app, ["study", *map(str, words)])
    assert "Traceback" not in found.output
    return found


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["show", "--store", "elsewhere"], "no finished run of 'tiny'", 2),
        (["show", "--metric", "mean_train_loss"], "learning.training_loss=true", 2),
        (["run", "--address", "tcp://host:1"], "--backend dask", 2),
        (["plot", "--out", "file/x"], "cannot be written", 4),
        (["plot", "--against", "limit=3"], "there are 'limit=1', 'limit=2'", 2),
        (["plot", "--column", "train_loss"], "learning.training_loss=true", 2),
        (["plot", "--over", "joules"], "fleet.joules_per_sample are both 0: give one", 2),
        (["plot", "--over", "control_bits"], "control_bits is 0 all the time", 2),
        (["plot", "--out", "."], "names no file", 4),
    ],
)
def test_mistakes_get_one_line(done, tmp_path, monkeypatch, words, message, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    path, store = done
    place = [] if "--store" in words else ["--store", store]
    found = invoke(words[0], path, *words[1:], *place)
    assert found.exit_code == code, found.output
    assert message in " ".join(found.output.split())


def test_reading_a_store_that_is_not_there_makes_none(done, tmp_path):
    for words in (["show"], ["plot"], ["export", "-o", tmp_path / "x.csv"]):
        assert invoke(words[0], done[0], *words[1:], "--store", tmp_path / "typo").exit_code == 2
    assert not (tmp_path / "typo").exists()


def test_the_first_variant_is_compared_with_nothing(done):
    found = invoke("show", done[0], "--store", done[1])
    assert found.exit_code == 0, found.output
    assert "too short" not in found.stdout


def test_names_are_printed_as_they_are(done, tmp_path):
    path = tmp_path / "tiny.yaml"
    tree = yaml.safe_load(done[0].read_text())
    path.write_text(yaml.safe_dump({**tree, "name": "a [/b] $5_c{ $6"}))
    assert "a [/b] $5_c{ $6: mean_accuracy" in invoke("show", path, "--store", done[1]).stdout
    long = tmp_path / ("deep_" * 20) / "figure [a]"
    assert f"{long}.pdf" in invoke("plot", path, "--store", done[1], "--out", long).stdout
    dollars = {"_cost $5_a{ $6": {"policy": {"limit": 1}}, "b": {"policy": {"limit": 2}}}
    path.write_text(yaml.safe_dump({"version": 1, "name": "x", "base": TINY, "variants": dollars}))
    assert invoke("plot", path, "--store", done[1], "--out", long).exit_code == 0


def test_lists_on_an_axis_are_exported(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    base = TINY | {"timeline": {"horizon": 0.25}}
    study = make_study(
        "s", {"a": {"radio": {"large_scale": 2.0}}, "b": {"radio": {"large_scale": [1.0] * 4}}}, [0], base
    )
    assert run_study(study, Store(tmp_path), workers=1) == []
    export_table(study, by_label(study, Store(tmp_path)), tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert set(table["radio.large_scale"].to_pylist()) == {"2.0", "[1.0, 1.0, 1.0, 1.0]"}
    assert str(table.schema.field("train_loss").type) == "double"


def test_a_plot_makes_its_folder(done, tmp_path):
    path, store = done
    for name, words in (("x", []), ("y", ["--against", "limit=1"])):
        assert invoke("plot", path, "--store", store, "--out", tmp_path / "new" / name, *words).exit_code == 0
        assert (tmp_path / "new" / f"{name}.png").stat().st_size > 5000


NEEDY = """
def first(candidates, limit, rng):
    return list(range(limit))

def needy(candidates, limit, rng):
    return list(range(limit))
needy.needs = ("loss",)

def nobody_knows(clock):
    raise ValueError("asked too early")

def slow(seed, device, job):
    raise ValueError("asked too early")
"""


def work(tmp_path, tree):
    base = {"learning": {"evaluate_every": 35.0}, "data": {"num_test": 1}}
    (run,) = make_study("x", {"x": tree}, [0], base).runs
    return expected_run_work(run._replace(beside=tmp_path))


def test_expected_work_goes_by_what_parts_declare_and_not_by_their_names(tmp_path):
    (tmp_path / "norm.py").write_text(NEEDY)
    paper = work(tmp_path, {})
    assert paper == pytest.approx(
        140 * 8 * 1500 * 3, rel=0.01
    )  # 140 aggregations, R = 8, 60,000 / 40 samples, 3 epochs
    assert work(tmp_path, {"data.num_train": 6000}) == pytest.approx(paper / 10, rel=0.01)
    assert work(tmp_path, {"data.name": "synthetic"}) == pytest.approx(paper / 30, rel=0.01)  # 2,000 images
    assert work(tmp_path, {"learning.local_steps": 10}) == pytest.approx(140 * 8 * 500, rel=0.01)
    assert work(tmp_path, {"timeline.period": 0.5}) == pytest.approx(paper / 2, rel=0.01)
    everyone = work(tmp_path, {"policy.scheduler": "best_channel_best_norm"})
    assert 2 * paper < everyone <= 5 * paper  # those who are ready, of 40
    assert work(tmp_path, {"policy.scheduler": "norm.py:first"}) == paper
    assert work(tmp_path, {"policy.scheduler": "norm.py:needy"}) == everyone
    assert work(tmp_path, {"framework": "fedavg"}) == pytest.approx(35 * 8 * 1500 * 3, rel=0.01)
    assert work(tmp_path, {"framework": "fedasync"}) > 35 * 40 * 1500 * 3  # every job of every device


@pytest.mark.parametrize("key", ["timeline.name=nobody_knows", "fleet.duration=slow", "policy.scheduler=missing"])
def test_expected_work_leaves_it_to_the_run_to_fail(tmp_path, key):
    (tmp_path / "norm.py").write_text(NEEDY)
    name, _, part = key.partition("=")
    assert work(tmp_path, {name: f"norm.py:{part}"}) > 0


def test_training_loss_costs_what_the_training_set_has(tmp_path):
    more = work(tmp_path, {"learning": {"training_loss": True}}) - work(tmp_path, {})
    assert more == pytest.approx(60_000 / 3)  # one evaluation; scoring is a third of training
