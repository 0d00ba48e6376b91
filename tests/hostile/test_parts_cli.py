"""Parts on the command line: whatever is given for a name, its arguments or a tracker is one line and exit 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from judge import SMALL, Wrong, refused, wrong

from fedtide.cli.main import app

MINE = """
def first(candidates, limit, rng, skip=0):
    return list(range(min(limit, len(candidates.device))))

def model(input_shape, num_labels, width=3):
    return width

def fails(record, text="no more"):
    raise RuntimeError(text)

def prints(record):
    print("seen", record.index)

number = 3
"""


def plan(*words: str, says: str) -> Wrong:
    return wrong("plan", *SMALL, *words, says=says)


def run(*words: str, says: str) -> Wrong:
    return wrong("run", *SMALL, *words, "--out", "r", says=says)


NAMES = [
    plan("policy.scheduler=randm", says="did you mean random"),
    plan("radio.channel=rayliegh", says="did you mean rayleigh"),
    plan("fleet.duration=unifrom", says="did you mean uniform"),
    plan("fleet.availability=allways", says="did you mean always"),
    plan("radio.allocation=equal_bit", says="did you mean equal_bits"),
    plan("data.partition=shard", says="did you mean shards"),
    plan("data.name=mnsit", says="did you mean mnist"),
    plan("learning.trainer=torhc", says="did you mean torch"),
    plan("policy.scheduler=shards", says=r"it is one of data\.partition"),
    plan("radio.channel=equal_bits", says=r"it is one of radio\.allocation"),
    plan("data.name=tensorboard", says="it is one of tracker"),
    plan("policy.scheduler=''", says="scheduler='' is not known"),
    plan("policy.scheduler=' '", says="scheduler=' ' is not known"),
    plan("policy.scheduler=", says="the name of a part"),
    plan("radio.channel=3", says=r"radio\.channel=3.*the name of a part"),
    plan("radio.channel=[rayleigh]", says="the name of a part"),
    plan("policy.scheduler=:first", says="nothing on one side of the colon"),
    plan("policy.scheduler='mine.py:'", says="nothing on one side of the colon"),
    plan("policy.scheduler=mine.py", says="'mine.py' is not known.*path/to/file.py:name"),
    plan("policy.scheduler=mine.py:second", says="has no 'second'; it defines first"),
    plan("policy.scheduler=mine.py:number", says="cannot be called as"),
    plan("radio.channel=mine.py:prints", says=r"is called as \(seed, tick, time, device\)"),
    plan("learning.model=mine.py:model", says="made a int: return a fedtide.learning.model.Model"),
]

MAPPINGS = [
    plan("policy.scheduler={name: random, x: 1}", says="does not accept the arguments {'x': 1}.*it takes none"),
    plan("policy.scheduler={name: random, x: 1}", "policy.scheduler={y: 1}", says="the arguments {'x': 1, 'y': 1}"),
    plan(
        "timeline.name={name: periodic, period: 0.5}",
        "timeline.name={period: 1}",
        says=r"it has a key of its own, timeline\.period",
    ),
    plan("policy.scheduler={x: 1}", says="scheduler='proposed' does not accept"),
    plan("policy.scheduler={name: }", says="the name of a part"),
    plan("policy.scheduler={name: 3}", says="the name of a part"),
    plan("policy.scheduler={name: [random]}", says="the name of a part"),
    plan("policy.scheduler={name: {name: random}}", says="the name of a part"),
    plan("radio.channel={name: nosuch, x: 1}", says="channel='nosuch' is not known"),
    plan("radio.channel={name: rayleigh, snr: 1}", says="'snr'; it takes num_devices, snr_db, large_scale"),
    plan(
        "radio={channel: {name: rayleigh, snr_db: [1]}}",
        says=r"snr_db=\[1\] cannot be given here: it has a key of its own, radio\.snr_db",
    ),
    plan("fleet.duration={name: uniform, max_duration: true}", says="max_duration=True cannot be given here"),
    plan("fleet.duration={name: uniform, max-duration: 1}", says="'max-duration' is no name of a parameter"),
    plan("policy.scheduler={name: mine.py:first, skp: 1}", says="does not accept the arguments {'skp': 1}"),
]

ARGUMENTS = [
    *(
        plan(f"{key}={value}", says="the name of a part")
        for key in ("data.name", "data.partition", "fleet.duration", "fleet.availability")
        for value in ("3", "[1]")
    ),
    plan("radio.channel=", says="the name of a part"),
    plan("radio.coverage={name: umi, power_dbm: loud}", says=r"power_dbm='loud' cannot be"),
    plan("radio.channel={1: 2}", says="key 1 is not a word"),
    plan("radio.allocation={x: 1}", says="it takes none"),
    plan("fleet.availability={x: 1}", says="it takes none"),
    plan("fleet.duration={name: log_normal, sigma: -1}", says="greater than or equal to 0"),
    plan("data.partition={name: virtual_iid, samples_per_device: 2.5}", says="valid integer"),
    plan("data.name={num_train: -1}", says="num_train"),
    plan("data.name={num_train: many}", says="num_train='many' cannot be given here"),
    plan("data.num_train=1000000000000", says=r"data\.num_train=1000000000000.*less than or equal to"),
    plan("data.name={say: x}", says="does not accept|say"),
    plan("timeline.name={period: 0}", says="period=0 cannot be given here"),
    plan("timeline.period=1.0e-9", says=r"aggregations.*raise timeline\.period"),
    plan("codec.name={name: qsgd, num_levels: x}", says="num_levels|does not accept"),
    plan("codec.name=ideal", "codec.name={num_levels: 3}", says="it takes none"),
    plan("learning.model={x: 1}", says="does not accept the arguments {'x': 1}.*it takes none"),
    plan("learning.model={input_shape: 1}", says="does not accept the arguments"),
    run("learning.trainer={x: 1}", says="does not accept the arguments"),
    run("learning.trainer={task: 1}", says="does not accept the arguments"),
]

TRACKERS = [
    plan("tracker=tensorboard", says="a list of names.*valid tuple"),
    plan("tracker={name: tensorboard}", says="valid tuple"),
    plan("tracker=", says="valid tuple"),
    plan("tracker=[3]", says=r"tracker\.0=3.*the name of a part"),
    plan("tracker=[null]", says=r"tracker\.0=None.*the name of a part"),
    plan("tracker=[[tensorboard]]", says="the name of a part"),
    plan("tracker=['']", says="tracker='' is not known"),
    plan("tracker=[tensorbord]", says="did you mean tensorboard"),
    plan("tracker=[random]", says=r"it is one of policy\.scheduler"),
    plan("tracker=[{logdir: x}]", says="the name of a part"),
    plan("tracker=[{name: 3}]", says="the name of a part"),
    run("tracker=[{name: tensorboard, logdirr: x}]", says="does not accept the arguments.*it takes logdir"),
    run("tracker=[mine.py:nosuch]", says="has no 'nosuch'"),
    run("tracker=[nowhere.py:x]", says="not found in the working folder"),
    run("tracker=[mine.py:number]", says="tracks nothing"),
    run("tracker=[mine.py:first]", says=r"is called as \(record\)"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize("case", NAMES + MAPPINGS + ARGUMENTS + TRACKERS, ids=str)
def test_one_line_and_exit_2(here: Path, case: Wrong) -> None:
    line = refused(case)
    assert "Annotated" not in line
    assert not (here / "r").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("policy.scheduler={name: random}",),
        ("policy.scheduler.name=random",),
        ("policy.scheduler={name: age_based, pool_share: 0.9}",),
        ("policy={scheduler: {name: age_based, pool_share: 0.9}}",),
        ("policy.scheduler=age_based", "policy.scheduler={pool_share: 0.9}"),
        ("policy.scheduler={name: age_based}", "policy.scheduler={pool_share: 0.9}"),
        ("policy.scheduler={name: 'mine.py:first', skip: 0}",),
        ("tracker=[]",),
        ("learning.model={name: softmax}",),
    ],
)
def test_what_is_right_is_taken(words: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, ["plan", *SMALL, *words, "--json"])
    assert answer.exit_code == 0, answer.output


def test_a_tracker_that_fails_is_told_of_once_and_the_json_stays_clean(here: Path) -> None:
    words = ["tracker=[{name: 'mine.py:fails', text: 'no\n[/red] more'}, 'mine.py:prints']"]
    plain = json.loads(CliRunner().invoke(app, ["run", *SMALL, "--out", "plain", "--json"]).stdout)
    answer = CliRunner().invoke(app, ["run", *SMALL, *words, "--out", "r", "--json"])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert {**told, "folder": "plain"} == plain
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("warning:")]
    assert "tracker='mine.py:fails' raised RuntimeError: no [/red] more in round (mine.py:9)" in line
    assert "seen 1" in answer.stderr  # what a tracker prints does not get among the JSON
    assert (here / "r" / "rounds.jsonl").read_bytes() == (here / "plain" / "rounds.jsonl").read_bytes()


def test_a_tracker_of_ours_from_the_command_line(here: Path) -> None:
    pytest.importorskip("tensorboardX")
    answer = CliRunner().invoke(app, ["run", *SMALL, "tracker=[tensorboard]", "--out", "r", "--json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["complete"]
    assert list((here / "r").rglob("events.out.tfevents*"))
    assert "warning" not in answer.stderr


def test_an_own_partition_has_folder_and_figure(here: Path) -> None:
    (here / "deal").mkdir()
    (here / "deal" / "own.py").write_text(
        "import numpy as np\n"
        + "def by_turns(dataset, num_devices, seed):\n"
        + "    return [np.arange(k, len(dataset.train.labels), num_devices) for k in range(num_devices)]\n"
    )
    answer = CliRunner().invoke(app, ["run", *SMALL, "data.partition=deal/own.py:by_turns", "--json"])
    assert answer.exit_code == 0, answer.output
    (made,) = (here / "runs").iterdir()
    assert made.name.startswith("periodic-proposed-synthetic-")
    assert (made / "curve.png").exists()
    assert "no figure" not in answer.stderr
