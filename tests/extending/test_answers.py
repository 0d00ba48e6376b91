"""What the page says of mistakes, objects from Python and dice, on files of a user's own."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from page import cases
from test_extending import SMALL

import fedtide
from fedtide import config
from fedtide.cli.main import app
from fedtide.radio.cell import Equal

BAD = """
import numpy as np
from dataclasses import dataclass
from fedtide import Link, columns

def short(seed, tick, time, device): return np.ones(len(device) + 1)

@dataclass(frozen=True)
class Nan:
    def __call__(self, seed, tick, time, device):
        return np.full(len(device), np.nan)

def halves(seed, tick, time, device):
    return columns.uniform(seed, "mine", device * 0.5)
def no_time(seed, device, job): return np.zeros(len(device))
def early(seed, device, time): return time - 1
def greedy(capacity, num_symbols): return np.full(len(capacity), 2 * num_symbols)
def twice(dataset, num_devices, seed): return [[0, 0]] * num_devices
def three(): return 3
def owners():
    from fedtide.data import synthetic
    return synthetic(0, 60, 20)._replace(owners=np.ones(3))
def empty():
    from fedtide.data import synthetic
    return synthetic(0, 60, 20)._replace(num_labels=2)
def dice(seed, tick, time, device): return 1 + np.random.default_rng().random(len(device))
class Counting:
    def __init__(self): self.calls = 0
    def __call__(self, capacity, num_symbols):
        self.calls += 1
        return np.full(len(capacity), num_symbols / len(capacity) / self.calls)
"""
LINE = {text.split("(")[0].split(":")[0]: number for number, text in enumerate(BAD.splitlines(), 1)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text(BAD)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "line", "says", "code"),
    [
        ("radio.channel=bad.py:short", LINE["def short"], r"shape \(\d,\)", 5),
        ("radio.channel=bad.py:Nan", LINE["class Nan"] + 1, "nan at position 0", 5),
        ("radio.channel=bad.py:halves", LINE["def halves"] + 1, "give whole numbers", 5),
        ("fleet.duration=bad.py:no_time", LINE["def no_time"], "times > 0", 2),
        ("fleet.availability=bad.py:early", LINE["def early"], "or later", 2),
        ("radio.allocation=bad.py:greedy", LINE["def greedy"], "to share", 5),
        ("data.partition=bad.py:twice", LINE["def twice"], "some samples twice", 2),
        ("data.name=bad.py:three", LINE["def three"], "give a fedtide.types.Dataset", 3),
        ("data.name=bad.py:owners", LINE["def owners"], "owners must be whole numbers", 3),
        ("data.name=bad.py:empty", LINE["def empty"], "labels 0 to 1", 3),
    ],
)
def test_a_wrong_answer_is_one_line_with_the_part_and_its_place(word: str, line: int, says: str, code: int) -> None:
    found = CliRunner().invoke(app, ["run", *SMALL, word, "--out", "run"])
    text = found.stderr.strip()
    assert found.exit_code == code, text
    assert "\n" not in text
    assert (
        f"{word.split('.')[0] if word.startswith('data.name') else word.split('=')[0].split('.')[1]}='bad.py:" in text
    )
    assert f"(bad.py:{line})" in text
    assert re.search(says, text)


def test_dice_of_a_part_of_the_world_are_refused() -> None:
    found = CliRunner().invoke(app, ["run", *SMALL, "radio.channel=bad.py:dice", "--out", "run"])
    assert found.exit_code == 5
    assert (
        f"channel='bad.py:dice' (bad.py:{LINE['def dice']}) gives another answer when it is called again"
        in found.stderr
    )
    assert "\n" not in found.stderr.strip()


def test_state_of_a_part_of_the_world_is_refused() -> None:
    given = config.experiment(config.read_words([*SMALL, "radio.allocation=bad.py:Counting"]))
    with pytest.raises(fedtide.FedtideError, match=r"allocation='bad.py:Counting' \(bad.py:\d+\) gives another answer"):
        fedtide.simulate(given, "run")


def test_an_object_leaves_to_the_experiments_keys_what_it_was_not_given(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(case for case in cases() if case.title == "Rician fading").write(here)
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "rician", raising=False)
    rician = importlib.import_module("rician")
    made = fedtide.experiment(radio={"channel": rician.Rician(k_factor=6.0), "snr_db": 3.0})
    assert (made.radio.channel.name, made.radio.channel.args) == ("rician.py:Rician", {"k_factor": 6.0})
    assert fedtide.experiment(radio={"coverage": Equal(), "snr_db": 3.0}).radio.coverage == fedtide.config.Part("equal")
    monkeypatch.delitem(sys.modules, "rician")
