"""Pairs on one instruction path: what is missing is run on the path of its pair."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.errors import FedtideError
from fedtide.learning.native import isas
from fedtide.studies import instruction_paths as studies_paths
from fedtide.studies.instruction_paths import plan_paths
from fedtide.studies.run import run_study
from fedtide.studies.spec import read_study
from fedtide.studies.store import Store
from fedtide.studies.table import by_label, table_rows
from stored import TINY, put, two_variants

HERE = ["avx2", "baseline"]


@pytest.fixture
def offers(monkeypatch):
    monkeypatch.setattr(studies_paths, "offered_instruction_paths", lambda trainer: HERE)


# What seed 0 has of the variants a and b, and what is then done on which path, in each mode; "!" is a warning.
PLANS = {
    "nothing is there": ([None, None], {"any": "a b", "pair": "a:avx2 b:avx2", "redo": "a:avx2 b:avx2"}),
    "all on this path": (["avx2", "avx2"], {"any": "", "pair": "", "redo": ""}),
    "all on another": (["avx512", "avx512"], {"any": "", "pair": "", "redo": ""}),
    "one on this path": (["avx2", None], {"any": "b", "pair": "b:avx2", "redo": "b:avx2"}),
    "one on the second path": (["baseline", None], {"any": "b !", "pair": "b:baseline", "redo": "b:baseline"}),
    "one on a path that is not here": (["avx512", None], {"any": "b !", "pair": "!", "redo": "a:avx2 b:avx2"}),
    "one on an unknown path": (["unknown", None], {"any": "b !", "pair": "!", "redo": "a:avx2 b:avx2"}),
    "mixed": (["avx512", "avx2"], {"any": "", "pair": "", "redo": "a:avx2"}),
    "one on both": (["avx512+avx2", None], {"any": "b", "pair": "b:avx2", "redo": "b:avx2"}),
    "all unknown": (["unknown", "unknown"], {"any": "", "pair": "", "redo": ""}),
    "mixed with unknown": (["unknown", "avx512"], {"any": "", "pair": "", "redo": "a:avx2 b:avx2"}),
}


@pytest.mark.usefixtures("offers")
@pytest.mark.parametrize("mode", ["any", "pair", "redo"])
@pytest.mark.parametrize("case", PLANS)
def test_what_is_run_on_which_path(tmp_path, case, mode):
    (have, wanted), study, store = PLANS[case], two_variants(1), Store(tmp_path)
    for run, paths in zip(study.runs, have, strict=True):  # type: ignore[call-overload]
        for isa in paths.split("+") if paths else []:
            put(store, run, None if isa == "unknown" else isa)
    found = plan_paths([study], store, mode)
    words = [f"{run.label}:{found.path[run.name]}" if run.name in found.path else run.label for run in found.todo]
    assert [*words, *("!" for _ in found.warnings)] == wanted[mode].split()


@pytest.mark.usefixtures("offers")
def test_what_cannot_be_run_here_is_said_in_one_line(tmp_path):
    study, store = two_variants(2), Store(tmp_path)
    for run in study.runs:
        if run.label == "a":
            put(store, run, "avx512" if run.experiment.seed == 0 else None)
    known, unknown = plan_paths([study], store, "pair").warnings
    assert known == (
        "1 run (seed 0) left out: the others of the same seed are on avx512, which this machine does not offer; do them on a "
        "machine with avx512, or use --isa-redo to do these seeds anew on avx2 and keep both"
    )
    assert "on an unknown instruction path; remove those, or use --isa-redo" in unknown
    assert "\n" not in known + unknown


@pytest.mark.usefixtures("offers")
def test_figures_are_planned_each_for_itself_and_runs_once(tmp_path):
    """A seed that one figure has on another path does not leave out the runs of the other figures."""
    study, store = two_variants(1), Store(tmp_path)
    other = study._replace(runs=tuple(run for run in study.runs if run.label == "b"))
    put(store, study.runs[0], "avx512")
    found = plan_paths([study, other], store, "pair")
    assert [run.label for run in found.todo] == ["b"]
    assert len(found.warnings) == 1
    assert [run.label for run in plan_paths([other, other], store, "pair").todo] == ["b"]


@pytest.mark.skipif(len(isas()) < 2, reason="this machine offers one instruction path")
def test_a_study_begun_elsewhere_is_completed_without_mixed_pairs(tmp_path):
    """Seed 0 of the first variant is from a machine with another path: as on an avx2 machine after avx512."""
    file, store = tmp_path / "two.yaml", Store(tmp_path / "store")
    axes = {"policy.limit": [1, 2]}
    file.write_text(yaml.safe_dump({"version": 1, "name": "two", "base": TINY, "axes": axes, "seeds": 2}))
    study, words = read_study(file), ["study", "run", str(file), "--store", str(store.folder), "-j", "1"]
    put(store, study.runs[0], "avx1024")
    put(store, study.runs[2], isas()[1])
    found = CliRunner().invoke(app, [*words, "--isa-strict"])
    assert found.exit_code == 0, found.output
    assert "1 run (seed 0) left out: the others of the same seed are on avx1024" in " ".join(found.stderr.split())
    assert not store.has(study.runs[1].name)
    assert store.load(study.runs[3].name).paths == [isas()[1]]
    found = CliRunner().invoke(app, [*words, "--isa-redo"])
    assert found.exit_code == 0, found.output
    assert store.load(study.runs[0].name).paths == ["avx1024", isas()[0]]
    assert [row["paths_note"] for row in table_rows(study, by_label(study, store), "mean_accuracy")] == ["", ""]
    assert not any((store.folder / ".work").iterdir())
    assert "FEDTIDE_ISA" not in os.environ
    before = {path: path.stat().st_mtime_ns for path in store.folder.glob("*.gz")}
    assert CliRunner().invoke(app, [*words, "--isa-redo"]).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in store.folder.glob("*.gz")} == before


@pytest.mark.slow
@pytest.mark.skipif(len(isas()) < 2, reason="this machine offers one instruction path")
@pytest.mark.filterwarnings("default")  # Dask's own
def test_a_cluster_does_runs_on_the_path_of_their_seed(tmp_path):
    """A path that no worker offers is refused in one line."""
    pytest.importorskip("distributed")
    study, store = two_variants(1), Store(tmp_path / "store")
    put(store, study.runs[0], isas()[1])
    plan = plan_paths([study], store, "pair")
    assert not run_study(study, store, workers=1, backend="dask", plan=plan)
    assert store.load(study.runs[1].name).paths == [isas()[1]]
    nowhere = studies_paths.PathPlan([study.runs[0]], {study.runs[0].name: "avx1024"}, [])
    with pytest.raises(FedtideError, match="no Dask worker of one thread offers the instruction path avx1024"):
        run_study(study, store, workers=1, backend="dask", plan=nowhere)


def test_a_path_that_is_not_here_is_a_failure_of_its_run(tmp_path):
    study = two_variants(1)
    one = studies_paths.PathPlan([study.runs[0]], {study.runs[0].name: "avx1024"}, [])
    failures = run_study(study, Store(tmp_path), workers=1, plan=one)
    assert "FEDTIDE_ISA is 'avx1024'" in failures[0].reason


def test_a_run_says_on_which_path_it_was_made(tmp_path):
    words = ["data.name=synthetic", "data.num_train=100", "data.num_test=20", "data.num_shards=10", "fleet.num_devices=4",
             "policy.limit=2", "timeline.horizon=1", "learning.model=softmax"]  # fmt: skip
    done = CliRunner().invoke(app, ["run", *words, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert isas()[0] not in done.stdout  # nobody needs it there
    found = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "--json"])
    assert json.loads(found.stdout)["instruction_path"] == isas()[0]
    (tmp_path / "run" / "versions.json").write_text("[")
    found = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "--json"])
    assert found.exit_code == 4  # a damaged folder is not shown
