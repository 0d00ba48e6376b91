from __future__ import annotations

import pytest

from fedtide.errors import FedtideError
from fedtide.study.spec import make, read


def write(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def test_grid_crosses_variants_axes_and_seeds(tmp_path):
    study = read(write(tmp_path, """
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
    assert (first.timeline.name, first.radio.num_symbols, first.policy.age_base) == ("synchronous", 1000, 1.0)


def test_equal_experiments_share_a_name():
    a = make("a", {"x": {"policy": {"limit": 4}}}, [0])
    b = make("b", {"y": {"policy": {"limit": 4, "scheduler": "data_importance"}}}, [0])
    assert a.runs[0].name == b.runs[0].name
    assert a.runs[0].name != make("a", {"x": {"policy": {"limit": 4}}}, [1]).runs[0].name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 2\nname: x", ["version 2", "reads version 1"]),
        ("name: x", ["version None"]),
        ("version: 1\nname: x\naxes: {policy.limt: [1]}", ["policy.limt", "policy.limit"]),
        ("version: 1\nname: x\nseeds: []", ["seeds=[]"]),
        ("version: 1\nname: x\nbse: {}", ["bse"]),
        ("version: 1\nname: x\nbase: {policy: {limit: 99}}", ["policy.limit=99", "num_devices=40"]),
        ("version: 1\n- x", ["cannot be read"]),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, text, words):
    with pytest.raises(FedtideError) as caught:
        read(write(tmp_path, text))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)
