from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fedtide import config
from fedtide.errors import FedtideError
from fedtide.studies.run import _run_one
from fedtide.studies.spec import make_study, read_study


def write(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def test_grid_crosses_variants_axes_and_seeds(tmp_path):
    study = read_study(write(tmp_path, """
version: 1
name: grid
base: {fleet: {num_devices: 10}, policy: {limit: 2}}
axes: {radio.num_symbols: [1000, 2000], policy.age_base: [1.0, 0.5]}
variants: {avg: {framework: fedavg}, ours: {}}
seeds: [3, 5]
"""))  # fmt: skip
    assert len(study.runs) == 2 * 2 * 2 * 2
    assert len({run.name for run in study.runs}) == 16
    assert [run.experiment.seed for run in study.runs] == [3] * 8 + [5] * 8
    assert study.labels[0] == "avg, num_symbols=1000, age_base=1.0"
    first = study.runs[0].experiment
    assert (first.part("timeline").name, first.radio.num_symbols, first.policy.age_base) == ("synchronous", 1000, 1.0)


def test_equal_experiments_share_a_name():
    a = make_study("a", {"x": {"policy": {"limit": 4}}}, [0])
    b = make_study("b", {"y": {"policy": {"limit": 4, "scheduler": "proposed"}}}, [0])
    assert a.runs[0].name == b.runs[0].name
    assert a.runs[0].name != make_study("a", {"x": {"policy": {"limit": 4}}}, [1]).runs[0].name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 2\nname: x", ["version=2", "reads 1"]),
        ("name: x", ["version is missing"]),
        ("version: 1\nname: x\naxes: {policy.limt: [1]}", ["policy.limt", "policy.limit"]),
        ("version: 1\nname: x\nseeds: []", ["seeds=[]"]),
        ("version: 1\nname: x\nbse: {}", ["bse"]),
        ("version: 1\nname: x\nbase: {policy: {limit: 99}}", ["policy.limit=99", "num_devices=40"]),
        ("version: 1\n- x", ["cannot be read"]),
        ("version: 1\nname: x\nvarients: {}", ["varients", "variants"]),
        ("version: 1\nname: x\naxes: {policy.limit: []}", ["policy.limit", "no values"]),
        ("version: 1\nname: x\naxes: {seed: [1, 2]}", ["seeds: [1, 2]"]),
        ("version: 1\nname: x\nbase: {seed: 1}", ["seeds"]),
        ("version: 1\nname: x\nvariants: {a: {seed: 1}}", ["seeds"]),
        ("version: 1\nname: x\nseeds: [1, 1]", ["repeats"]),
        ("policy: {limit: 3}", ["is an experiment", "fedtide run"]),
        ("version: 1\nname: ''", ["name", "1 to 100"]),
        ("version: 1\nname: x\nvariants: {a: {policy.limt: 4}, b: {}}", ["s.yaml: a:", "did you mean policy.limit?"]),
        ("version: 1\nname: x\naxes: {policy.limit: [8, 50]}", ["s.yaml: limit=50:", "num_devices=40"]),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, text, words):
    with pytest.raises(FedtideError) as caught:
        read_study(write(tmp_path, text))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_a_missing_study(tmp_path):
    with pytest.raises(FedtideError, match=r"study file not found: .*nowhere\.yaml; name a YAML file$"):
        read_study(tmp_path / "nowhere.yaml")


def test_long_values_arrive_whole_and_are_numbered_in_labels(tmp_path):
    scales = [[1.0] * 40, [round(1 + k / 1000, 3) for k in range(40)]]
    study = read_study(
        write(tmp_path, f"version: 1\nname: x\naxes: {{radio.large_scale: {scales}, policy.limit: [2, 4]}}")
    )
    assert [list(run.experiment.radio.large_scale) for run in study.runs] == [scales[0]] * 2 + [scales[1]] * 2
    assert study.labels == [f"large_scale=#{n}, limit={limit}" for n in (1, 2) for limit in (2, 4)]


def test_an_edited_policy_file_is_another_run(tmp_path):
    def name() -> str:
        return make_study("x", {"x": {"policy": {"scheduler": f"{path}:first"}}}, [0]).runs[0].name

    path = tmp_path / "mine.py"
    path.write_text("def first(candidates, limit, rng):\n    return list(range(limit))\n")
    before = name()
    assert name() == before
    path.write_text(path.read_text() + "# edited\n")
    assert name() != before


MINE = "def first(candidates, limit, rng):\n    return list(range(limit))\n"


def test_policies_are_looked_for_beside_the_study(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text(MINE)
    (tmp_path / "sub" / "s.yaml").write_text("version: 1\nname: x\nbase: {policy: {scheduler: 'mine.py:first'}}\n")
    monkeypatch.chdir(tmp_path / "sub")
    before = make_study("x", {"x": {"policy": {"scheduler": "mine.py:first"}}}, [0]).runs[0].name
    assert read_study(Path("s.yaml")).runs[0].name == before
    monkeypatch.chdir(tmp_path)
    run = read_study(Path("sub/s.yaml")).runs[0]
    assert (run.name, run.experiment.policy.scheduler.name) == (before, "mine.py:first")  # the same run from anywhere
    (tmp_path / "mine.py").write_text("# another\n")
    with pytest.raises(FedtideError, match="twice with different contents"):
        read_study(Path("sub/s.yaml"))


def test_a_study_runs_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text(MINE)
    base = {
        "data": {"name": "synthetic", "num_train": 60, "num_test": 20, "num_shards": 12},
        "fleet": {"num_devices": 6},
        "timeline": {"horizon": 0.5},
        "policy": {"scheduler": "mine.py:first", "limit": 2},
        "learning": {"model": "softmax", "local_epochs": 1},
    }
    (tmp_path / "sub" / "s.yaml").write_text(yaml.safe_dump({"version": 1, "name": "x", "base": base}))
    monkeypatch.chdir(tmp_path)
    run = read_study(Path("sub/s.yaml")).runs[0]
    result = _run_one(config.dump(run.experiment), str(tmp_path / "work"), run.name, beside=str(run.beside))
    assert result.totals["aggregations"] == 2
    assert json.loads((tmp_path / "work" / "versions.json").read_text())["beside"] == str(tmp_path / "sub")
    with pytest.raises(FedtideError, match=r"file mine\.py not found in the working folder"):
        _run_one(config.dump(run.experiment), None)


def test_dotted_keys_in_base_and_variants(tmp_path):
    study = read_study(
        write(tmp_path, "version: 1\nname: x\nbase: {fleet.num_devices: 10}\nvariants: {a: {policy.limit: 2}, b: {}}")
    )
    assert [(run.experiment.fleet.num_devices, run.experiment.policy.limit) for run in study.runs] == [(10, 2), (10, 8)]
