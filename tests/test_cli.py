"""The command line as a user meets it: real processes for signals and exit codes, the runner for the rest."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedtide.cli.main import app
from fedtide.report.summary import ages_in_words
from fedtide_lab.theory.options import Options
from helpers import EXAMPLES

COMMAND = [sys.executable, "-m", "fedtide"]
SMALL = [
    "data.name=synthetic",
    "data.num_train=200",
    "data.num_test=50",
    "data.num_shards=20",
    "fleet.num_devices=6",
    "policy.limit=2",
    "timeline.horizon=2",
    "learning.model=softmax",
    "learning.local_epochs=1",
]


def invoke(*words: str, cwd: Path | None = None):
    return CliRunner().invoke(app, list(words))


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_run_show_and_run_again(tmp_path):
    found = invoke("run", *SMALL, "--out", "r", "--json")
    assert found.exit_code == 0, found.output
    summary = json.loads(found.stdout)
    assert summary["complete"]
    assert summary["aggregations"] == 8
    assert summary["uploads"] > 0
    assert 0 <= summary["final_accuracy"] <= 1
    for name in ("experiment.yaml", "versions.json", "rounds.jsonl", "checkpoint.npz", "model.npy", "curve.png"):
        assert (tmp_path / "r" / name).stat().st_size > 0
    before = (tmp_path / "r" / "rounds.jsonl").stat().st_mtime_ns
    assert json.loads(invoke("run", *SMALL, "--out", "r", "--json").stdout) == summary
    assert json.loads(invoke("show", "r", "--json").stdout) == summary
    assert (tmp_path / "r" / "rounds.jsonl").stat().st_mtime_ns == before
    text = invoke("show", "r").stdout
    assert "final test accuracy" in text
    assert "█" in text


def test_the_default_folder_names_what_it_holds(tmp_path):
    assert invoke("run", *SMALL).exit_code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch("periodic-proposed-synthetic-s0-[0-9a-f]{8}", folder.name)


def test_the_default_folder_lies_in_runs_whatever_the_names(tmp_path):
    timeline = f"timeline.name={EXAMPLES}/my_timeline.py:quick_start"
    assert invoke("run", *SMALL, timeline).exit_code == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("quick_start-proposed-synthetic-s0-")


def test_a_folder_with_brackets_and_a_figure_that_is_gone(tmp_path):
    found = invoke("run", *SMALL, "--out", "x[/red]y")
    assert found.exit_code == 0, found.output
    assert "x[/red]y (complete)" in found.stdout
    (tmp_path / "x[" / "red]y" / "curve.png").unlink()
    assert invoke("run", *SMALL, "--out", "x[/red]y").exit_code == 0
    assert (tmp_path / "x[" / "red]y" / "curve.png").exists()


def test_a_file_and_words_on_top(tmp_path):
    (tmp_path / "e.yaml").write_text("policy: {limit: 2, scheduler: random}\nfleet: {num_devices: 6}\n")
    found = invoke("run", "e.yaml", *SMALL, "policy.limit=3", "--out", "r", "--json")
    assert found.exit_code == 0, found.output
    text = (tmp_path / "r" / "experiment.yaml").read_text()
    assert "limit: 3" in text
    assert "scheduler: random" in text


def test_plan_says_what_a_run_then_does(tmp_path):
    plan = json.loads(invoke("plan", *SMALL, "--json").stdout)
    assert invoke("run", *SMALL, "--out", "r", "--json").exit_code == 0
    rounds = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    for planned, done in zip(plan["aggregations"], rounds, strict=True):
        for key in ("index", "time", "ready", "picked", "age", "symbols", "budget_bits", "num_kept", "label_variance"):
            assert planned[key] == done[key], key
    text = invoke("plan", *SMALL).stdout
    assert "kept share" in text
    assert "symbols granted" in text


@pytest.mark.parametrize("codec", ["sparse_quantized", "ideal"])
def test_plan_tells_what_is_sent_beside_the_budget(tmp_path, codec):
    words = [*SMALL, f"codec.name={codec}", "radio.num_symbols=9000"]
    plan = json.loads(invoke("plan", *words, "--json").stdout)
    assert invoke("run", *words, "--out", "r", "--json").exit_code == 0
    rounds = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert [row["sent_bits"] for row in plan["aggregations"]] == [row["sent_bits"] for row in rounds]
    sent = [bits for row in rounds for bits in row["sent_bits"]]
    assert plan["summary"]["sent_bits_per_upload"]["max"] == max(sent)
    budget = max(bits for row in rounds for bits in row["budget_bits"])
    assert plan["summary"]["budget_bits_per_upload"]["max"] == budget
    text = " ".join(invoke("plan", *words).stdout.split())
    assert f"to {budget:,.0f} sent in an upload" in text
    assert f"{max(sent):,}" in text
    assert ("does not keep to the budget" in text) == (codec == "ideal")


def test_plan_of_a_codec_that_cannot_tell_what_it_sends():
    found = invoke("plan", *SMALL, "codec.name=dead_zone")
    assert found.exit_code == 0
    assert "depends on the updates" in found.stdout
    told = json.loads(invoke("plan", *SMALL, "codec.name=dead_zone", "--json").stdout)
    assert told["summary"]["sent_bits_per_upload"] is None


def test_plan_sums_up_many_ages():
    words = [*SMALL, "framework=fedasync", "fleet.num_devices=20", "policy.limit=1", "timeline.horizon=8"]
    ages = json.loads(invoke("plan", *words, "--json").stdout)["summary"]["ages_of_ready"]
    assert len(ages) > 10
    found = invoke("plan", *words).stdout
    assert " ".join(found.split()).count("on average, 95 % at most") == 2
    assert len(found.split("First")[0]) < 2500
    every = sorted(int(age) for age, count in ages.items() for _ in range(count))
    at_most = next(age for place, age in enumerate(every, 1) if place >= 0.95 * len(every))
    told = ages_in_words({int(age): count for age, count in ages.items()})
    assert told.startswith(
        f"{sum(every) / len(every):.1f} on average, 95 % at most {at_most}, largest {every[-1]}; most"
    )
    assert ages_in_words({0: 1200, 3: 1}) == "0: 1,200, 3: 1"


def test_plan_of_a_scheduler_that_needs_norms():
    found = invoke("plan", *SMALL, "policy.scheduler=best_channel_best_norm")
    assert found.exit_code == 0
    assert "not known before training" in found.stdout


def test_plan_when_nobody_is_ever_ready():
    words = ["fleet.num_devices=2", "policy.limit=1", "fleet.min_duration=0.9", "timeline.horizon=0.5"]
    assert "nobody is ever ready" in invoke("plan", *SMALL, *words).stdout


def test_lists():
    keys = json.loads(invoke("run", "--keys", "--json").stdout)
    assert keys["policy.limit"]["default"] == 8
    assert all(row["about"] for row in keys.values())
    assert invoke("parts").exit_code == invoke("run", "--keys").exit_code == invoke("--version").exit_code == 0


def test_keys_of_the_theory():
    keys = json.loads(invoke("theory", "--keys", "--json").stdout)
    assert list(keys) == list(Options.model_fields)
    assert keys["num_levels"] == {"default": 4, "about": "nu"}
    text = invoke("theory", "--keys").stdout
    assert all(key in text for key in keys)
    assert "who uploads" in text


def test_data_status(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTIDE_CACHE", str(tmp_path / "cache"))
    found = json.loads(invoke("data", "--status", "--json").stdout)
    assert not found["complete"]
    assert len(found["files"]) == 4
    found = json.loads(invoke("data", "fashion_mnist", "cifar10", "--status", "--json").stdout)
    assert [(each["name"], each["complete"], len(each["files"])) for each in found] == [
        ("fashion_mnist", False, 4),
        ("cifar10", False, 4),
    ]
    found = json.loads(invoke("data", "shakespeare", "--status", "--json").stdout)
    assert (found["complete"], len(found["files"])) == (False, 37)
    for name, says in (("mnits", "mnits is not downloaded by fedtide"), ("synthetic", "not downloaded by fedtide")):
        refused = invoke("data", name)
        assert refused.exit_code == 2
        assert says in refused.output


def test_every_command_teaches():
    for words in (
        [],
        ["run"],
        ["plan"],
        ["resume"],
        ["show"],
        ["parts"],
        ["data"],
        ["scenario"],
        ["scenario", "list"],
        ["scenario", "show"],
        ["study"],
        ["study", "run"],
        ["paper"],
        ["theory"],
    ):
        found = invoke(*words, "--help")
        assert found.exit_code == 0
        assert len(found.stdout) > 200, words
    assert "timelines" in invoke("paper", "--help").stdout  # arguments are explained too
    assert "A study file" in invoke("study", "run", "--help").stdout


BAD_INPUT = [
    (["run", "policy.limt=3"], 2, "did you mean policy.limit?"),
    (["run", "limit=3"], 2, "did you mean policy.limit?"),
    (["run", "policy.limit=41"], 2, "exceeds fleet.num_devices=40"),
    (["run", "fleet.num_devices=0"], 2, "greater than or equal to 1"),
    (["run", "radio.snr_db=loud"], 2, "radio.snr_db='loud'"),
    (["run", "timeline.period=40"], 2, "horizon"),
    (["run", "policy.scheduler=randon"], 2, "did you mean random"),
    (["run", "nosuch.yaml"], 2, "experiment file not found"),
    (["run", "policy.limit"], 2, "experiment file not found"),
    (["run", str(EXAMPLES / "study.yaml")], 2, "study.yaml is a study file"),
    (["plan", str(EXAMPLES / "study.yaml")], 2, "use `fedtide study run"),
    (["run", "policy=random"], 2, "policy='random': it is a group of keys; name one of policy.scheduler"),
    (["run", *SMALL, "policy.scheduler=none.py:x"], 2, "file none.py not found"),
    (["run", "data.folder=nowhere"], 3, "does not exist"),
    (["show", "nowhere"], 4, "is not a run folder"),
    (["resume", "nowhere"], 4, "is not a run folder"),
    (["run", *SMALL, "learning.learning_rate=3.0e+38"], 5, "not finite"),
    (["paper", "fig9"], 2, "no figure 'fig9'"),
    (["study", "show", "nosuch.yaml"], 2, "study file not found"),
    (["theory", "nonsense=1"], 2, "nonsense"),
]


@pytest.mark.parametrize(("words", "code", "says"), BAD_INPUT)
def test_bad_input_is_one_line_and_a_code(words, code, says):
    found = invoke(*words)
    assert found.exit_code == code, found.stderr
    check_one_line(found.stderr, says)


@pytest.mark.parametrize(("code", "case"), {case[1]: case for case in BAD_INPUT}.items())
def test_a_real_command_line_for_each_exit_code(code, case):
    words, _, says = case
    found = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert found.returncode == code, found.stderr
    check_one_line(found.stderr, says)


def check_one_line(stderr: str, says: str) -> None:
    assert says in stderr
    assert len([line for line in stderr.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in stderr


BROKEN = """
import fedtide
from fedtide.codec.sparse_quantized import Ideal

def two(candidates, limit):
    return range(limit)

def raises(*args, **kwargs):
    raise KeyError("no such device")

def ragged(*args):
    return [[1], [2, 3]]

def nothing(*args):
    return None

def text(num_samples, age):
    return ["a"] * len(age)

def three(one, two, three):
    return []

class Picky:
    def __init__(self, size=1):
        if size > 1:
            raise ValueError(f"size={size}")

class Half(Ideal):
    def decode(self, packet):
        return super().decode(packet)[::2]

class Bare(Ideal):
    def encode(self, update, budget_bits, rng):
        return update

class Torn(Ideal):
    def num_kept(self, num_parameters, budget_bits):
        return [][0]

def late(clock):
    yield fedtide.Tick(1, 1.0, [], [])
    raise OSError("the clock stopped")

def numbers(clock):
    return [1, 2]

def power(num_samples, age, power=1.0):
    return num_samples / num_samples.sum()
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["policy.scheduler=p.py:two"], 2, "is called as (candidates, limit, rng), but it takes (candidates, limit)"),
        (["policy.scheduler=p.py:raises"], 5, "raised KeyError: 'no such device' (p.py:9)"),
        (["policy.scheduler=p.py:ragged"], 5, "returned positions [[1], [2, 3]]: they must be a one-dimensional"),
        (["policy.scheduler=p.py:Picky"], 2, "cannot be called as (candidates, limit, rng)"),
        (["policy.scheduler=p.py:Picky", "policy.scheduler={size: 2}"], 2, "raised ValueError: size=2 (p.py:26)"),
        (["policy.scheduler={pool_share: much}"], 2, "scheduler='proposed': pool_share='much' cannot be"),
        (["policy.scheduler={pool_share: -1e308}"], 5, "scheduler='proposed' raised OverflowError"),
        (
            ["policy.weighting=p.py:power", "policy.weighting={pwer: 1}"],
            2,
            "it takes (num_samples, age, power=1.0)",
        ),
        (["policy.weighting=p.py:power", "policy.weighting={age: 1}"], 2, "is called as (num_samples, age)"),
        (["policy.weighting=p.py:raises"], 5, "(p.py:9)"),
        (["policy.weighting=p.py:text"], 5, "weights >= 0 with sum 1"),
        (["policy.weighting=p.py:nothing"], 5, "returned None: it must give 2 weights"),
        (["policy.aggregator=p.py:raises"], 5, "(p.py:9)"),
        (["policy.aggregator=p.py:nothing"], 5, "returned None: it must give the 7850 numbers"),
        (["policy.aggregator=p.py:two"], 2, "is called as (model, starts, updates, weights, age)"),
        (["codec.name=p.py:Picky"], 2, "has no method encode(update, budget_bits, rng)"),
        (["codec.name=p.py:Half"], 5, "returned an array of shape (3925,): it must give the 7850 numbers"),
        (["codec.name=p.py:Bare"], 5, "encoded to a ndarray"),
        (["timeline.name=p.py:two"], 2, "is called as (clock), but it takes (candidates, limit)"),
        (["timeline.name=p.py:three"], 2, "is called as (clock)"),
        (
            ["timeline.name=p.py:two", "timeline.name={limit: 3}"],
            2,
            "timeline='p.py:two' (p.py:5) is inconsistent at tick 1: it is 0",
        ),
        (["timeline.name=p.py:Picky"], 2, "cannot be called as (clock)"),
        (["timeline.name=p.py:raises"], 2, "(p.py:9)"),
        (["timeline.name=p.py:late"], 2, "raised OSError: the clock stopped (p.py:42)"),
        (["timeline.name=p.py:numbers"], 2, "timeline='p.py:numbers'"),
    ],
)
def test_a_broken_policy_is_one_line_that_names_it(tmp_path, words, code, says):
    (tmp_path / "p.py").write_text(BROKEN)
    found = invoke("run", *SMALL, *words, "--out", "r")
    assert found.exit_code == code, (found.output, found.exception)
    (line,) = [line for line in found.output.splitlines() if line.startswith("error:")]
    assert says in line
    assert words[0].rpartition("=")[2] in line or "{" in words[0]


def test_a_broken_codec_in_a_plan(tmp_path):
    (tmp_path / "p.py").write_text(BROKEN)
    found = invoke("plan", *SMALL, "codec.name=p.py:Torn")
    assert found.exit_code == 5
    assert "codec='p.py:Torn' raised IndexError: list index out of range (p.py:38)" in found.output


def test_another_experiment_in_the_folder_is_refused():
    assert invoke("run", *SMALL, "--out", "r").exit_code == 0
    found = invoke("run", *SMALL, "seed=5", "--out", "r")
    assert found.exit_code == 4
    assert "seed is 0 there and 5 here" in found.stderr


@pytest.mark.parametrize("command", ["show", "resume"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda folder: (folder / "rounds.jsonl").write_bytes((folder / "rounds.jsonl").read_bytes()[:100]),
            "damaged or was edited",
        ),
        (lambda folder: (folder / "model.npy").write_bytes(b"nonsense"), "model.npy is damaged"),
        (lambda folder: (folder / "checkpoint.npz").unlink(), "no checkpoint.npz"),
        (
            lambda folder: (folder / "experiment.yaml").write_text(
                (folder / "experiment.yaml").read_text().replace("seed: 0", "seed: 1")
            ),
            "another experiment",
        ),
    ],
)
def test_a_damaged_run_is_not_complete(tmp_path, command, damage, says):
    assert invoke("run", *SMALL, "--out", "r").exit_code == 0
    damage(tmp_path / "r")
    found = invoke(command, "r")
    assert found.exit_code == 4, found.output
    assert says in found.output
    assert "complete)" not in found.stdout
    assert len([line for line in found.output.splitlines() if line.startswith("error:")]) == 1


def test_no_kept_share_while_the_size_of_the_model_is_not_known(tmp_path):
    assert invoke("run", *SMALL, "--out", "r").exit_code == 0
    for name in ("checkpoint.npz", "model.npy"):
        (tmp_path / "r" / name).unlink()
    assert invoke("show", "r").exit_code == 4
    rounds = tmp_path / "r" / "rounds.jsonl"  # as if it had been killed in its first round
    lines = rounds.read_text().splitlines(keepends=True)
    rounds.write_text(next(line for line in lines if '"picked":[]' not in line))
    found = json.loads(invoke("show", "r", "--json").stdout)
    assert (found["complete"], found["mean_kept_share"]) == (False, None)
    assert found["uploads"] == 0  # no checkpoint holds that round


def test_ctrl_c_leaves_a_run_that_resumes_to_the_same_bytes(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\n\ndef slow(candidates, limit, rng):\n    time.sleep(0.2)\n    return list(range(limit))\n"
    )
    words = [*SMALL, "policy.scheduler=slow.py:slow", "timeline.horizon=4"]
    process = subprocess.Popen(
        [*COMMAND, "run", *words, "--out", "r"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # shells ignore it for what runs in the background
    )
    rounds = tmp_path / "r" / "rounds.jsonl"
    end = time.monotonic() + 60
    while not (rounds.exists() and rounds.read_text().count("\n") >= 3):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "fedtide resume r" in said
    assert "Traceback" not in said
    assert invoke("resume", "r", "--json").exit_code == 0
    assert invoke("run", *words, "--out", "whole").exit_code == 0
    for name in ("rounds.jsonl", "model.npy"):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_reader_that_goes_away():
    found = subprocess.run(f"{' '.join(repr(word) for word in COMMAND)} parts | head -1", shell=True, capture_output=True,
                           text=True, check=False)  # fmt: skip
    assert "Traceback" not in found.stderr


def test_a_federation_is_not_resumed_by_the_simulator(tmp_path):
    assert invoke("run", *SMALL, "--out", "r").exit_code == 0
    (tmp_path / "r" / "trace.jsonl").write_text("")
    (tmp_path / "r" / "model.npy").unlink()
    assert invoke("resume", "r").exit_code == 4
    assert "ServerApp" in invoke("show", "r").stdout
