"""The Python front door: what it takes, what it gives back, and how that shows itself."""

from __future__ import annotations

import base64
import inspect
import io
import os
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.plot.figure import _load_matplotlib
from helpers import run, small

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 200, "num_test": 50, "num_shards": 20},
    "fleet": {"num_devices": 6},
    "timeline": {"horizon": 2.0},
    "policy": {"limit": 2},
    "radio": {"num_symbols": 4000},
    "learning": {"model": "softmax", "local_epochs": 1, "learning_rate": 0.05},
}
RANDOM = {"policy.scheduler": "random"}


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close what plot() opens, and open no window."""
    _load_matplotlib().use("agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture(params=["pandas", "no pandas"])
def pandas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With and without pandas."""
    if request.param == "no pandas":
        monkeypatch.setitem(sys.modules, "pandas", None)
        return False
    pytest.importorskip("pandas")
    return True


@pytest.fixture(scope="module")
def compared() -> fedtide.StudyResult:
    return fedtide.compare({"random": RANDOM, "proposed": {}}, base=TINY, seeds=3)


class Page(HTMLParser):
    """Notes the tags of a piece of HTML, which must nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, dict[str, str | None]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = dict(attrs)
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_html(text: str, picture: bool = True) -> None:
    page = Page(text)
    assert not page.open
    assert "script" not in text
    assert ("img" in page.seen) == picture
    if picture:
        from matplotlib.image import imread

        content = base64.b64decode(str(page.seen["img"]["src"]).removeprefix("data:image/png;base64,"))
        pixels = imread(io.BytesIO(content), format="png")
        assert pixels.shape[0] > 200
        assert pixels[..., :3].min() < 0.5  # something is drawn


def check_frame(frame: Any, pandas: bool, columns: set[str], length: int) -> None:
    assert (type(frame).__name__ == "DataFrame") == pandas
    assert columns <= set(frame)
    assert {len(frame[name]) for name in columns} == {length}
    assert all(isinstance(np.asarray(frame[name]), np.ndarray) for name in columns)


# ---- experiment


SAME: list[tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ((), {"seed": 3}, {"seed": 3}),
    ((), {"policy": {"limit": 4}}, {"policy": {"limit": 4}}),
    ((), {"policy.limit": 4, "seed": 1}, {"policy": {"limit": 4}, "seed": 1}),
    ((), {"policy": {"limit": 4}, "policy.age_base": 2.0}, {"policy": {"limit": 4, "age_base": 2.0}}),
    (({"seed": 1, "policy.limit": 2},), {"seed": 5}, {"seed": 5, "policy": {"limit": 2}}),
    (("policy.limit=2",), {"policy.limit": 3}, {"policy": {"limit": 3}}),
    ((config.experiment({"framework": "fedavg"}),), {"seed": 2}, {"framework": "fedavg", "seed": 2}),
]


@pytest.mark.parametrize(("given", "keys", "tree"), SAME)
def test_keywords_come_on_top(given: tuple[Any, ...], keys: dict[str, Any], tree: dict[str, Any]) -> None:
    assert fedtide.experiment(*given, **keys) == config.experiment(tree)


def test_keywords_on_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("seed: 1\npolicy: {limit: 2, age_base: 0.5}\n")
    made = fedtide.experiment(tmp_path / "mine.yaml", seed=3, **{"policy.limit": 4})
    assert (made.seed, made.policy.limit, made.policy.age_base) == (3, 4, 0.5)


# ---- results


def test_a_result_as_frames(pandas: bool) -> None:
    result = run(small())
    frame, uploads = result.frame(), result.uploads()
    check_frame(frame, pandas, {"index", "time", "num_ready", "mean_age", "test_accuracy", "bits"}, len(result.rounds))
    check_frame(
        uploads, pandas, {"index", "device", "age", "capacity", "weight"}, sum(len(r.picked) for r in result.rounds)
    )
    assert list(frame["bits"]) == [each.ledger.bits for each in result.rounds]
    assert list(frame["test_accuracy"]) == [each.test_accuracy for each in result.rounds]
    assert np.isnan(frame["train_loss"]).all()
    assert list(uploads["device"]) == [device for each in result.rounds for device in each.picked]


def test_a_result_shows_itself() -> None:
    result = run(small())
    assert len(repr(result)) < 400
    for word in ("seed 0", "12 aggregations", f"{result.rounds[-1].test_accuracy:.4f}", "bits"):
        assert word in repr(result)
    check_html(result._repr_html_())
    axes = result.plot(label="mine")
    assert (axes.get_xlabel(), axes.get_ylabel()) == (r"simulated time (units of $T_{\max}$)", "test accuracy")
    assert list(axes.lines[0].get_ydata()) == [each.test_accuracy for each in result.rounds]
    assert result.plot(axes, column="test_loss") is axes
    assert len(axes.lines) == 2
    # a value as before, in four fields and two more
    experiment, rounds, model, seconds, complete, handed = result
    assert complete
    assert rounds is result.rounds
    assert len(model) == 30
    assert {*handed} <= {"dataset", "trainer"}
    assert seconds
    assert experiment == small()


@pytest.mark.parametrize(("backend", "used"), [("svg", "svg"), ("nonsense", "agg"), (None, "agg")])
def test_a_sessions_backend_stays_its_own(backend: str | None, used: str) -> None:
    """A notebook names its backend in MPLBACKEND, and its own pictures must still appear; a mistake there is none of ours."""
    text = (
        "from helpers import run, small\nresult = run(small())\nresult._repr_html_()\nresult.plot()\n"
        "import matplotlib\nprint(matplotlib.get_backend())"
    )
    kept = {key: value for key, value in os.environ.items() if key not in ("MPLBACKEND", "DISPLAY", "WAYLAND_DISPLAY")}
    there = kept | {"PYTHONPATH": str(Path(__file__).parent)} | ({"MPLBACKEND": backend} if backend else {})
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=there)
    assert done.stdout.strip() == used, done.stderr


def test_long_names_do_not_make_long_reprs() -> None:
    result = run(small())
    long = config.experiment(result.experiment, {"policy.scheduler": f"{'x' * 400}.py:mine"})
    assert len(repr(result._replace(experiment=long))) < 400
    assert "unit" not in run(small({"fleet.max_duration": 2.0})).plot().get_xlabel()


@pytest.mark.parametrize("kept", ["complete", "stopped", "begun"])
def test_load(tmp_path: Path, kept: str, pandas: bool) -> None:
    class Stop(fedtide.FedtideError):
        pass

    def stop(record: Any, _: int) -> None:
        if record.index == 5:
            raise Stop

    if kept == "complete":
        made = run(small(), tmp_path / "run")
    else:
        with pytest.raises(Stop):
            run(small(), tmp_path / "run", on_round=stop)
        if kept == "begun":
            (tmp_path / "run" / "checkpoint.npz").unlink()
            (tmp_path / "run" / "rounds.jsonl").unlink()
    result = fedtide.load(tmp_path / "run")
    assert result.complete == (kept == "complete")
    assert len(result.rounds) == {"complete": 12, "stopped": 5, "begun": 0}[kept]
    assert len(result.model) == (0 if kept == "begun" else 30)
    assert result.experiment == small()
    assert ("not complete" in repr(result)) == (kept != "complete")
    check_html(result._repr_html_(), picture=kept != "begun")
    if kept == "complete":
        assert np.array_equal(result.model, made.model)
        assert result.rounds == made.rounds
    check_frame(result.uploads(), pandas, {"device"}, sum(len(r.picked) for r in result.rounds))


def test_simulate_takes_as_many_threads_as_the_command_line() -> None:
    from fedtide.cli.options import CORES

    assert inspect.signature(fedtide.simulate).parameters["threads"].default == CORES


def test_simulate_takes_what_experiment_takes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(str(config.dump(config.experiment(TINY))).replace("None", "null"))
    results = [fedtide.simulate(each) for each in (config.experiment(TINY), TINY, tmp_path / "mine.yaml")]
    assert all(result.rounds == results[0].rounds for result in results)


# ---- plan


def test_a_plan(pandas: bool) -> None:
    plan = fedtide.plan(TINY)
    assert plan.summary["aggregations"] == len(plan.rows) == 8
    frame = plan.frame()
    check_frame(frame, pandas, {"index", "time", "num_ready", "num_picked", "budget_bits"}, 8)
    rounds = fedtide.simulate(TINY).rounds
    assert list(frame["num_picked"]) == [len(each.picked) for each in rounds]
    assert np.allclose(frame["budget_bits"], [sum(each.budget_bits) for each in rounds])
    assert len(repr(plan)) < 400
    assert "8 aggregations" in repr(plan)
    check_html(plan._repr_html_())
    top, bottom = plan.plot()
    assert [line.get_label() for line in top.lines] == ["ready", "picked"]
    assert (top.get_ylabel(), bottom.get_ylabel()) == ("devices", "kbit per\nupload")


def test_a_plan_that_waits_for_norms(pandas: bool) -> None:
    plan = fedtide.plan(fedtide.experiment(TINY, **{"policy.scheduler": "best_channel_best_norm"}))
    assert np.isnan(np.asarray(plan.frame()["num_picked"], float)).all()
    assert "unknown uploads" in repr(plan)
    check_html(plan._repr_html_())


# ---- studies and comparisons


def test_compare(compared: fedtide.StudyResult, pandas: bool) -> None:
    table, values = compared.table("final_accuracy"), compared.values("final_accuracy")
    check_frame(table, pandas, {"variant", "mean", "difference", "low", "high", "verdict"}, 2)
    assert list(table["variant"]) == ["random", "proposed"]
    single = {
        name: [fedtide.simulate(fedtide.experiment(TINY, keys, seed=s)).rounds[-1].test_accuracy for s in range(3)]
        for name, keys in (("random", RANDOM), ("proposed", {}))
    }
    assert {name: list(each.values()) for name, each in values.items()} == single
    gains = np.subtract(single["proposed"], single["random"])
    assert np.isclose(table["mean"][1], np.mean(single["proposed"]))
    assert np.isclose(table["difference"][1], gains.mean())
    assert np.isclose(table["high"][1] - table["difference"][1], 4.302653 * gains.std(ddof=1) / np.sqrt(3))
    check_frame(compared.frame(), pandas, {"variant", "seed", "time", "test_accuracy", "bits"}, 2 * 3 * 8)


def test_a_comparison_shows_itself(compared: fedtide.StudyResult) -> None:
    assert len(repr(compared)) < 400
    assert re.search(
        r"6 of 6 runs\n  random    0\.\d{4}  \(others' reference\)\n  proposed  0\.\d{4}  [+-]0\.\d{4} \([+-]0",
        repr(compared),
    )
    needed = int(compared.table()["seeds_needed"][1])
    assert f"; about {needed} would resolve it) not resolved" in repr(compared)
    check_html(compared._repr_html_())
    top, bottom = compared.plot()
    assert len(top.lines) == 2
    assert "random" in bottom.get_ylabel()
    gain = compared.values()["proposed"], compared.values()["random"]
    wanted = np.mean([gain[0][seed] - gain[1][seed] for seed in range(3)])
    assert np.isclose(bottom.lines[0].get_ydata()[-1], wanted, atol=1e-6)
    assert compared.plot(over="bits")[-1].get_xlabel() == "bits sent"


def test_many_long_labels_make_a_short_repr_and_safe_html() -> None:
    labels = [f"<script>{'x' * 80}{each}" for each in range(9)]
    studied = fedtide.compare(dict.fromkeys(labels, TINY), seeds=1)
    assert len(repr(studied)) < 400
    assert "and 5 more" in repr(studied)
    page = Page(studied._repr_html_())
    assert "script" not in page.seen
    assert not page.open
    assert len(studied.plot()) == 1  # one seed has no interval


def test_compare_takes_experiments_files_and_keys(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(str(TINY))
    whole = fedtide.experiment(TINY, seed=7)  # its seed gives way
    studied = fedtide.compare({"one": whole, "two": tmp_path / "base.yaml", "three": TINY}, seeds=[2])
    assert {run.experiment.seed for run in studied.study.runs} == {2}
    assert len({run.name for run in studied.study.runs}) == 1
    assert list(studied.table()["difference"])[1:] == [0, 0]


def test_a_study_crosses_axes_and_variants_and_keeps_its_store(tmp_path: Path) -> None:
    done: list[str] = []

    def again(**more: Any) -> fedtide.StudyResult:
        return fedtide.study(
            fedtide.experiment(TINY),
            axes={"policy.limit": (1, 2)},
            variants={"random": {"policy.scheduler": "random"}, "ours": {}},
            seeds=range(2),
            store=tmp_path / "store",
            on_done=lambda outcome: done.append(outcome.run.label),
            **more,
        )

    first = again()
    assert first.study.labels == ["random, limit=1", "random, limit=2", "ours, limit=1", "ours, limit=2"]
    assert sorted(done) == sorted(2 * first.study.labels)
    assert not list((tmp_path / "store" / ".work").glob("*"))
    assert again().values() == first.values()
    assert len(done) == 8  # nothing is done twice
    assert set(first.table(against="limit=1")["against"]) >= {"random, limit=1", "ours, limit=1"}
    assert len(first.plot()) == 1  # two seeds: no interval worth drawing


@pytest.mark.slow
def test_worker_processes_give_the_same(compared: fedtide.StudyResult) -> None:
    studied = fedtide.compare({"random": RANDOM, "proposed": {}}, base=TINY, seeds=3, workers=2)
    assert studied.values() == compared.values()


OWN = "def first(candidates, limit, rng):\n    return range(min(limit, len(candidates.device)))\n"


def _script(folder: Path, how: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a file, from standard input or as `python -c`."""
    (folder / "script.py").write_text(text)
    words = {"file": ["script.py"], "stdin": ["-"], "-c": ["-c", text]}[how]
    given = text if how == "stdin" else None
    return subprocess.run(
        [sys.executable, *words], input=given, capture_output=True, text=True, timeout=120, cwd=folder
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "stdin", "-c"])
def test_worker_processes_need_no_guarded_script(tmp_path: Path, how: str) -> None:
    call = f"fedtide.compare({{'a': {TINY}}}, seeds=1, workers=2)"
    done = _script(tmp_path, how, f"import fedtide\nprint('began')\nprint({call})\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("began\n<comparison: mean_accuracy, 1 of 1 runs")


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["if __name__ == '__main__':", "if True:"])
def test_a_part_in_the_script_itself_needs_a_guard(tmp_path: Path, guard: str) -> None:
    call = f"fedtide.compare({{'a': {{'policy.scheduler': first}}}}, base={TINY}, seeds=1, workers=2)"
    done = _script(tmp_path, "file", f"import fedtide\n{OWN}{guard}\n    print({call})\n")
    if guard == "if True:":
        assert done.returncode == 1
        assert done.stderr.count("Traceback") == 1
        assert "put the call below `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 of 1 runs" in done.stdout


def test_a_study_file(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"version: 1\nname: mine\nbase: {TINY}\naxes: {{policy.limit: [1, 2]}}\nseeds: [4]\n")
    studied = fedtide.study(path)
    assert studied.study.labels == ["limit=1", "limit=2"]
    assert "mine" in repr(studied)
    with pytest.raises(fedtide.FedtideError, match="seeds of its own"):
        fedtide.study(path, seeds=3)


def test_runs_that_fail_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def bad(candidates, limit, rng):\n    raise ValueError('no')\n")
    bad = {"policy.scheduler": f"{tmp_path / 'bad.py'}:bad"}
    with pytest.warns(UserWarning, match=r"1 of 2 runs failed \(name a store.*bad, seed 0: .*no"):
        studied = fedtide.compare({"good": {}, "bad": bad}, base=TINY, seeds=1)
    assert [len(runs) for runs in studied.results.values()] == [1, 0]
    assert "1 of 2 runs, 1 failed" in repr(studied)
    check_html(studied._repr_html_())
    with pytest.raises(fedtide.FedtideError, match="bad, seed 0"):
        fedtide.compare({"bad": bad}, base=TINY, seeds=1)


# ---- what it refuses, in one line


def compared_with(**how: Any) -> Callable[[], Any]:
    return lambda: fedtide.compare(**{"experiments": {"a": TINY}, **how})


def studied_with(**how: Any) -> Callable[[], Any]:
    return lambda: fedtide.study(**{"base": TINY, **how})


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "a key that is none": (lambda: fedtide.experiment(sed=3), "sed is not a key: did you mean seed"),
    "a key twice": (lambda: fedtide.experiment(policy={"limit": 1}, **{"policy.limit": 2}), "given twice"),
    "a group that is none": (lambda: fedtide.experiment(policy=3), "policy=3"),
    "a key of a made experiment": (lambda: setattr(small().policy, "limit", 3), "^limit cannot be changed.*make another one"),
    "a seed of a made experiment": (lambda: setattr(small(), "seed", 3), "^seed cannot be changed"),
    "a key taken away": (lambda: delattr(small().policy, "limit"), "^limit cannot be changed"),
    "plan of nothing": (lambda: fedtide.plan(None), "None is not an experiment"),  # type: ignore[arg-type]
    "plan of no file": (lambda: fedtide.plan("nowhere.yaml"), "experiment file not found"),
    "load of nothing": (lambda: fedtide.load(None), "None names no run folder"),  # type: ignore[arg-type]
    "load of no run": (lambda: fedtide.load("nowhere"), "not a run folder"),
    "a score that is none": (lambda: run(small()).plot(column="index"), "column='index' is not a score"),
    "a loss that is not there": (lambda: run(small()).plot(column="train_loss"), "learning.training_loss=true"),
    "no experiments": (compared_with(experiments={}), "names no experiments"),
    "a list of experiments": (compared_with(experiments=[TINY]), "names no experiments"),
    "an experiment that is none": (compared_with(experiments={"a": 3}), "3 is not an experiment"),
    "a name that is none": (compared_with(experiments={3: TINY}), "the name 3: a name has"),
    "an empty name": (compared_with(experiments={" ": TINY}), "a name has 1 to"),
    "a wrong key": (compared_with(experiments={"a": {"policy.limt": 3}}), "did you mean policy.limit"),
    "a seed inside": (compared_with(experiments={"a": {"seed": 3}}), "gives a seed"),
    "no seeds": (compared_with(seeds=0), "seeds=0 leaves nothing"),
    "seeds twice": (compared_with(seeds=[1, 1]), "repeats a seed"),
    "half a seed": (compared_with(seeds=1.5), "seeds=1.5"),
    "no workers": (compared_with(workers=0), "workers=0"),
    "no store": (compared_with(store=3), "store=3 names no folder"),
    "an axis that is none": (studied_with(axes={"policy.limt": [1]}), "did you mean policy.limit"),
    "axes that are none": (studied_with(axes=["policy.limit"]), "axes=.* is not a mapping"),
    "an axis of one value": (studied_with(axes={"policy.limit": 3}), "policy.limit"),
    "variants that are none": (studied_with(variants={"a": 3}), "variants.a"),
    "a base that is none": (studied_with(base=3), "3 is not an experiment"),
    "a variant's seed": (studied_with(variants={"a": {"seed": 3}}), "`seed` belongs to no axis"),
    "no study file": (studied_with(base="nowhere.yaml"), "nowhere.yaml"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name: str) -> None:
    call, says = BAD[name]
    with pytest.raises(fedtide.FedtideError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_what_a_comparison_refuses(compared: fedtide.StudyResult) -> None:
    for call, says in (
        (lambda: compared.table("accuracy"), "^metric 'accuracy' is not known"),
        (lambda: compared.values("accuracy"), "metric 'accuracy' is not known"),
        (lambda: compared.table(against="nobody"), "^against 'nobody' is no variant"),
        (lambda: compared.plot(against="nobody"), "^against 'nobody' is no variant"),
        (lambda: compared.plot("accuracy"), "column='accuracy' is not recorded"),
        (lambda: compared.plot(over="joules!"), "over='joules!' is not recorded"),
        (lambda: compared.plot("train_loss"), "learning.training_loss=true"),
    ):
        with pytest.raises(fedtide.FedtideError, match=says):
            call()


# ---- the package


MODULES = """
import importlib, pkgutil, sys
import fedtide

def check():
    for name in ("simulate", "study", "plan", "compare", "load", "experiment"):
        assert callable(getattr(fedtide, name)), name
        try:
            importlib.import_module(f"fedtide.{name}")
        except ModuleNotFoundError:
            continue
        raise SystemExit(f"fedtide.{name} is a module and a function")

heavy = {"numpy", "pydantic", "matplotlib", "pandas", "scipy"} & set(sys.modules)
assert not heavy, heavy
check()
for module in pkgutil.walk_packages(fedtide.__path__, "fedtide."):
    if not module.name.startswith(("fedtide.deploy", "fedtide.__main__", "fedtide.learning.torch", "fedtide._native")):
        importlib.import_module(module.name)
check()
assert all(getattr(fedtide, name) is not None for name in fedtide.__all__)
assert "pandas" not in sys.modules
"""


def test_functions_are_no_modules_and_the_import_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_tells_of_every_field() -> None:
    text = pydoc.render_doc(fedtide.Experiment)
    for key, field in config.all_keys().items():
        assert re.search(rf"\b{re.escape(key)} = ", text), key
        assert field.description is None or field.description in text
    assert "period = 0.25" in str(config.TimelineConfig.__doc__)
    for value in (fedtide.Result, fedtide.Plan, fedtide.StudyResult, fedtide.Candidates, fedtide.Tick, fedtide.Job):
        text = str(value.__doc__)
        assert all(re.search(rf"^    {field}: ", text, re.M) for field in value._fields), value
        assert "type: ignore" not in text
    assert "C_k(t) in bit/symbol [m]" in str(fedtide.Candidates.__doc__)
    assert "float32 [d]" in str(fedtide.Result.__doc__)
