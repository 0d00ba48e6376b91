"""What a user's part may answer that breaks its contract: one line that names it, a documented exit code, nothing lost.

Every row is a file of a few lines, run through `fedtide run`. 2: before the run, 3: data, 5: while the run is on.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from judge import SMALL, refused, wrong

from fedtide.cli.main import app
from fedtide.parts.kinds import KINDS
from fedtide.runs import read_run

HEAD = """
import itertools, math, os, sys
import numpy as np
from fedtide.codec.base import Packet, packet
from fedtide.codec.sparse_quantized import SparseQuantized
from fedtide.data.synthetic import synthetic
from fedtide.learning.model import Dropout, Linear, MaxPool2d, Model, ReLU
from fedtide.learning.trainer import Score
from fedtide.types import Dataset, Link, Samples, Selection, Shares, Signal, Tick, Trained, Work

D = 7850
DATA = synthetic(0, 200, 50)
TRAIN, TEST = DATA.train, DATA.test
DEALT = [np.arange(k, 200, 6) for k in range(6)]

def fail(what=ValueError("I cannot")):
    raise what

class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")
    __repr__ = __str__

class Odd:
    def _fail(self, *args, **kwargs):
        raise Mute
    __len__ = __iter__ = __array__ = __repr__ = __str__ = __getitem__ = __float__ = _fail

def thrice():
    yield [0]
    fail()

def late():
    # Says yes once a few rounds are saved, if the file `broken` is there.
    try:
        with open("r/rounds.jsonl") as file:
            return os.path.exists("broken") and sum(1 for _ in file) >= 2
    except OSError:
        return False
"""

# What is written around an answer, by where it is given. GOOD is what would have been right.
SHAPES = {
    "data": ("def bad():\n    return {}", "DATA"),
    "partition": ("def bad(dataset, num_devices, seed):\n    return {}", "DEALT"),
    "duration": ("def bad(seed, device, job):\n    return {}", "np.ones(len(device))"),
    "availability": ("def bad(seed, device, time):\n    return {}", "time"),
    "channel": ("def bad(seed, tick, time, device):\n    return {}", "np.ones(len(device))"),
    "coverage": ("def bad(seed, device, time):\n    return {}", "np.ones(len(device))"),
    "csi": ("def bad(seed, tick, time, device, snr):\n    return {}", "Signal(snr, snr)"),
    "modem": ("def bad(snr):\n    device = snr\n    return {}", "np.log2(1 + snr)"),
    "modem.achieved": (
        "class bad:\n    def __call__(self, snr):\n        return np.log2(1 + snr)\n"
        "    def achieved(self, snr, estimated_snr):\n        device = snr\n        return {}",
        "np.log2(1 + snr)",
    ),
    "modem.error": (
        "class bad:\n    def __call__(self, snr):\n        return np.log2(1 + snr)\n"
        "    def error(self, snr):\n        device = snr\n        return {}",
        "np.zeros(len(snr))",
    ),
    "access": ("def bad(updates, weights, snr, rng):\n    return {}", "weights @ updates"),
    "downlink": ("def bad(seed, device, time, bits):\n    return {}", "np.zeros(len(device))"),
    "energy": ("def bad(seed, device, samples, symbols):\n    return {}", "np.ones(len(device))"),
    "allocation": ("def bad(capacity, num_symbols):\n    return {}", "np.full(len(capacity), num_symbols / len(capacity))"),
    "retransmission": ("def bad(carried, before):\n    device = carried\n    return {}\nbad.attempts = 3", "carried"),
    "selector": ("def bad(idle, count, rng):\n    return {}", "np.arange(count)"),
    "metric": ("def bad(model, context):\n    return {}", "dict(mine=1.0)"),
    "work": ("def bad(seed, device, job):\n    return {}", "Work()"),
    "schedule": ("def bad(elapsed):\n    device = elapsed\n    return {}", "np.ones(len(elapsed))"),
    "timeline": ("def bad(clock):\n    return {}", "[Tick(1, 1.0, np.arange(6), np.ones(6))]"),
    "scheduler": ("def bad(candidates, limit, rng):\n    return {}", "np.arange(limit)"),
    "weighting": ("def bad(num_samples, age):\n    return {}", "np.full(len(age), 1 / len(age))"),
    "aggregator": ("def bad(model, starts, updates, weights, age):\n    return {}", "model + weights @ updates"),
    "codec.encode": (
        "class bad(SparseQuantized):\n    def encode(self, update, budget_bits, rng):\n"
        "        good = super().encode(update, budget_bits, rng)\n        return {}",
        "good",
    ),
    "codec.decode": (
        "class bad(SparseQuantized):\n    def decode(self, packet):\n        good = super().decode(packet)\n        return {}",
        "good",
    ),
    "codec.num_kept": (
        "class bad(SparseQuantized):\n    def encode(self, update, budget_bits, rng):\n"
        "        return packet(9, len(update), 1, bytes(10**6), 8 * 10**6)\n"
        "    def decode(self, packet):\n        return np.zeros(D)\n"
        "    def num_kept(self, num_parameters, budget_bits):\n        return {}",
        "num_parameters",
    ),
    "model": ("def bad(input_shape, num_labels):\n    return {}", "Model(input_shape, (Linear(num_labels),))"),
    "trainer": ("def bad(task):\n    return {}", "None"),
    **{
        f"trainer.{method}": (
            "class bad:\n    def __init__(self, task):\n        pass\n"
            + "".join(
                f"    def {name}(self, {given}):\n        return {'{}' if name == method else good}\n"
                for name, given, good in (
                    ("initial_model", "seed", "np.zeros(D, np.float32)"),
                    ("train", "jobs", "np.zeros((len(jobs), D), np.float32)"),
                    ("evaluate", "model, samples", "Score(0.5, 1.0)"),
                )
            ),
            good,
        )
        for method, good in (
            ("initial_model", "np.zeros(D, np.float32)"),
            ("train", "np.zeros((len(jobs), D), np.float32)"),
            ("evaluate", "Score(0.5, 1.0)"),
        )
    },
    "tracker": ("bad = {}", "print"),
    **{
        f"{kind}.{where}": (
            f"class bad{base}:\n    def init(self, {init}):\n        return {start if where == 'call' else '{}'}\n"
            f"    def {method}(self, memory, {given}):\n        good = {good}\n"
            f"        return {'{}' if where == 'call' else '(good, memory)'}\n",
            start if where == "init" else "(good, memory)",
        )
        for kind, base, init, method, given, good in (
            ("scheduler", "", "num_devices", "__call__", "candidates, limit, rng", "np.arange(limit)"),
            ("weighting", "", "num_devices", "__call__", "num_samples, age, device", "np.full(len(age), 1 / len(age))"),
            ("aggregator", "", "model", "__call__", "model, starts, updates, weights, age, device",
             "model + (weights @ updates).astype(np.float32)"),
            ("codec", "(SparseQuantized)", "num_parameters", "encode", "update, budget_bits, rng",
             "super().encode(update, budget_bits, rng)"),
        )
        for where, start in (("init", "dict(t=np.zeros(3))"), ("call", "dict(t=np.zeros(3))"))
    },
    **{
        f"trainer.{where}": (
            "class bad:\n    def __init__(self, task):\n        pass\n"
            f"    def init(self, num_parameters):\n        return {'{}' if where == 'init' else 'dict(t=np.zeros(3))'}\n"
            "    def initial_model(self, seed):\n        return np.zeros(D, np.float32)\n"
            "    def evaluate(self, model, samples):\n        return Score(0.5, 1.0)\n"
            "    def train(self, jobs):\n        good, kept = np.zeros((len(jobs), D)), [job.memory for job in jobs]\n"
            f"        return {'{}' if where == 'call' else 'Trained(good, kept)'}\n",
            "dict(t=np.zeros(3))" if where == "init" else "Trained(good, kept)",
        )
        for where in ("init", "call")
    },
}  # fmt: skip
KEYS = {kind: f"{each.key}=p.py:bad" for kind, each in KINDS.items()} | {
    "tracker": "tracker=[p.py:bad]",
    "metric": "learning.metrics=[p.py:bad]",
}
BESIDES = {
    "modem": ["radio.csi=noisy"],
    "access": ["codec.name=ideal"],
    "selector": ["fleet.concurrency=3"],
}  # what a part needs of the rest of the experiment


class Row(NamedTuple):
    """One wrong answer: where it is given, the answer, what the line must say, the exit code."""

    where: str
    answer: str
    says: str
    code: int = 5

    @property
    def kind(self) -> str:
        return self.where.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.where}: {self.answer}"[:80]


def rows(where: str, code: int, *table: tuple[str, str]) -> list[Row]:
    return [Row(where, answer, says, code) for answer, says in table]


RAISES = [
    ("fail()", r"raised ValueError: I cannot \(p.py:\d+\)"),
    ("sys.exit(0)", r"raised SystemExit: 0 \(p.py:\d+\)"),
    ("fail(Mute())", r"raised Mute \(p.py:\d+\)"),
]

NO_COLUMN = [
    ("None", "returned None: it must give [0-9]+"),
    ("1.0", r"shape \(\)"),
    ("'many'", "returned"),
    ("np.ones(99)", r"shape \(99,\)"),
    ("['a'] * len(device)", "type <U1"),
    ("itertools.count()", "returned count"),
    ("Odd()", "returned"),
]
NO_AMOUNT = [
    ("np.full(len(device), np.nan)", "nan at position 0 .*: it must give finite"),
    ("np.full(len(device), np.inf)", "inf at position 0"),
    ("-np.ones(len(device))", r"-1\.0 at position 0"),
]
FOR_CAPACITY = [(answer.replace("device", "capacity"), says) for answer, says in [*NO_COLUMN, *NO_AMOUNT]]

# Memory that is none, or that does not stay as it began.
NO_MEMORY = [
    ("None", "p.py:bad.*NoneType.*memory"),
    ("[np.zeros(3)]", "p.py:bad.*list.*memory"),
    ("dict(t=None)", r"memory\['t'\] is None, which is not an array of numbers"),
    ("dict(t='words')", r"memory\['t'\] is 'words'"),
    ("dict(t=object())", r"memory\['t'\] is <object"),
    ("{'two words': np.zeros(3)}", "two words"),
    ("{7: np.zeros(3)}", "7"),
    ("dict(t=np.full(3, np.nan))", r"memory\['t'\] holds nan"),
]
CHANGED = [
    ("dict(t=np.append(memory['t'], 1.0))", r"memory\['t'\] was float64\[3\] and is float64\[4\]"),
    ("dict(t=memory['t'].astype(int))", r"memory\['t'\] was float64\[3\] and is int64\[3\]"),
    ("dict(memory, more=np.zeros(3))", r"memory\['more'\] is new"),
    ("{}", r"memory\['t'\] is gone"),
    ("dict(t=memory['t'] + np.inf)", r"memory\['t'\] holds inf"),
    ("dict(t='x')", r"memory\['t'\] is 'x', which is not an array of numbers"),
]
REMEMBERING = ("scheduler", "weighting", "aggregator", "codec", "trainer")

ROWS = [
    *rows("data", 2, *RAISES),
    *rows(
        "data", 3,
        ("None", "is a NoneType: give a fedtide.types.Dataset"),
        ("itertools.count()", "is a count"),
        ("Odd()", "is a Odd"),
        ("DATA._replace(num_labels=Odd())", "num_labels=a Odd"),
        ("DATA._replace(num_labels=0)", "num_labels=0: it must be"),
        ("DATA._replace(num_labels='ten')", "num_labels='ten'"),
        ("DATA._replace(num_labels=5)", "labels from 0 to 9.*labels 0 to 4"),
        ("DATA._replace(num_labels=True)", "num_labels=True"),
        ("DATA._replace(train=None)", "train is a NoneType"),
        ("DATA._replace(train=Samples([[1.0]], [0]))", "train is a Samples"),
        ("DATA._replace(train=Samples(TRAIN.images.astype(int), TRAIN.labels))", r"images int64\[200, 1, 28, 28\]"),
        ("DATA._replace(train=Samples(TRAIN.images.reshape(200, 784), TRAIN.labels))", r"images float32\[200, 784\]"),
        ("DATA._replace(train=Samples(TRAIN.images, TRAIN.labels * 1.0))", r"labels float64\[200\]"),
        ("DATA._replace(train=Samples(TRAIN.images, TRAIN.labels[:7]))", r"labels uint8\[7\]"),
        ("DATA._replace(train=Samples(TRAIN.images, TRAIN.labels.astype(int) - 1))", "labels from -1 to 8"),
        ("DATA._replace(train=Samples(TRAIN.images[:0], TRAIN.labels[:0]))", "no samples"),
        ("DATA._replace(train=Samples(TRAIN.images * np.nan, TRAIN.labels))", "NaN or infinity"),
        ("DATA._replace(train=Samples(TRAIN.images.astype(float) + 1e300, TRAIN.labels))", "NaN or infinity"),
        ("DATA._replace(train=TRAIN._replace(images=TRAIN.images.astype(np.uint8)))",
         r"train has uint8 images without values: give values float32 .1 256., .* or float32 images"),
        ("DATA._replace(train=TRAIN._replace(values=np.zeros((1, 256), np.float32)))", "give uint8 images, or no values"),
        *((f"DATA._replace(test=TEST._replace(values={values}, images=TEST.images.astype(np.uint8)))", says)
          for values, says in (
              ("[[0.0] * 256]", "test has values that are a list: give float32"),
              ("np.zeros((1, 256))", r"values that are float64\[1, 256\]: give float32"),
              ("np.zeros((3, 256), np.float32)", r"values that are float32\[3, 256\]: give float32 .1 256."),
              ("np.full((1, 256), np.nan, np.float32)", "values with NaN or infinity"),
          )),
        ("DATA._replace(test=Samples(TEST.images[:, :, :8, :8], TEST.labels))", r"test.*\[1, 8, 8\].*\[1, 28, 28\]"),
        ("DATA._replace(name=3)", "name"),
        ("DATA._replace(owners=[1, 2])", "owners must be whole numbers"),
        ("DATA._replace(owners=np.ones(200))", "owners must be whole numbers"),
    ),
    *rows(
        "partition", 2, *RAISES,
        ("None", "returned a NoneType: return one array"),
        ("'abcdef'", "gives device 0"),
        ("7", "returned a int"),
        ("Odd()", "p.py:bad'"),
        ("DEALT[:-1]", "dealt to 5 devices: there are fleet.num_devices=6"),
        ("[*DEALT, DEALT[0]]", "fleet.num_devices=6"),
        ("itertools.repeat(DEALT[0])", "fleet.num_devices=6"),
        ("thrice()", "I cannot"),
        ("[*DEALT[:-1], []]", r"gives device 5 float64\[0\]"),
        ("[*DEALT[:-1], np.array([200])]", "gives device 5 sample numbers from 200 to 200; there are 200 samples"),
        ("[*DEALT[:-1], np.array([-1])]", "gives device 5 sample numbers from -1"),
        ("[*DEALT[:-1], [3, 3]]", "gives device 5 some samples twice"),
        ("[*DEALT[:-1], [1.5]]", r"gives device 5 float64\[1\]"),
        ("[*DEALT[:-1], ['x']]", r"gives device 5 <U1\[1\]"),
        ("[*DEALT[:-1], [[1], [2, 3]]]", "gives device 5"),
        ("[*DEALT[:-1], Odd()]", "p.py:bad'"),
        ("np.full((6, 3), np.nan)", r"gives device 0 float64\[3\]"),
    ),
    *rows(
        "duration", 2, *RAISES, *NO_COLUMN,
        ("np.zeros(len(device))", "0.0 at position 0 .device=0, job=1.: it must give times > 0"),
        ("-np.ones(len(device))", "-1.0 at position 0 .device=0, job=1"),
        ("np.full(len(device), np.nan)", "nan at position 0 .device=0, job=1"),
        ("np.where(job > 1, 0.0, 1.0)", "0.0 at position 0 .device=0, job=2"),
    ),
    *rows(
        "availability", 2, *RAISES, *NO_COLUMN,
        ("time - 1", "-1.0 at position 0 .device=0, time=0.0.: it must give when the device is next there"),
        ("np.full(len(device), np.nan)", "nan at position 0 .device=0"),
        ("np.where(time > 0, 0.0, time)", "0.0 at position .*device=.*, time="),
    ),
    *rows(
        "channel", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT,
        ("Link(np.ones(len(device)), np.ones(99))", r"shape \(99,\).*estimated"),
        ("Link(np.ones(len(device)), None)", "returned None.*estimated"),
        ("Link(np.ones(len(device)), np.full(len(device), np.nan))", "nan at position 0 .*: .*estimated"),
        ("Link(None, np.ones(len(device)))", "returned None: .*capacities"),
    ),
    *rows("coverage", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT),
    *rows(
        "csi", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT,
        ("Signal(snr, np.ones(99))", r"shape \(99,\).*estimated"),
        ("Signal(None, snr)", "returned None: .*SNRs"),
    ),
    *rows("modem", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT),
    *rows("modem.achieved", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT),
    *rows("modem.error", 5, *RAISES, *NO_COLUMN, ("np.full(len(device), 1.1)", "1.1 at position 0 .*probabilities from 0 to 1")),
    *rows("retransmission", 5, *RAISES, *NO_COLUMN, ("np.full(len(device), np.nan)", "nan at position 0"), NO_AMOUNT[2]),
    *rows(
        "selector", 5, *RAISES,
        ("None", "returned positions None: they must be a one-dimensional array of whole numbers"),
        ("np.zeros(count)", "whole numbers"),
        ("np.arange(count + 1)", "at most"),
        ("np.zeros(count, int)", "duplicates"),
        ("np.arange(count) + 9", "they must lie in"),
        ("Odd()", "returned positions"),
    ),
    *rows(
        "metric", 5, *RAISES,
        ("None", "returned None: it must give numbers by name"),
        ("dict(mine=np.nan)", "returned mine=nan: it must be a finite number"),
        ("dict(mine='high')", "returned mine='high': it must be a finite number"),
        ("{1: 2.0}", "named a number 1: a name is a short text"),
    ),
    *rows(
        "access", 5, *RAISES,
        ("None", "returned None: it must give the 7850 numbers"),
        ("updates", "an array of shape"),
        ("updates[0][:-1]", r"an array of shape \(7849,\)"),
        ("updates[0] * np.nan", "nan at position 0: it must give finite"),
        ("itertools.repeat(0.0)", "returned repeat"),
    ),
    *rows(
        "downlink", 2, *RAISES, *NO_COLUMN,
        ("-np.ones(len(device))", r"-1\.0 at position 0 .device=0.*: it must give times >= 0"),
        ("np.full(len(device), np.nan)", "nan at position 0 .device=0"),
        ("np.full(len(device), np.inf)", "no aggregation .* has a device that is ready"),
    ),
    *rows("energy", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT),
    *rows(
        "work", 2, *RAISES,
        ("None", "returned None: it must give fedtide.Work"),
        ("np.ones(len(device))", "it must give fedtide.Work"),
        ("Work(np.ones(len(device)), np.ones(len(device)))", "it must give fedtide.Work"),
        ("Work(epochs=np.ones(99))", r"shape \(99,\).*whole numbers of epochs"),
        ("Work(epochs=np.full(len(device), 1.5))", "1.5 at position 0 .device=0, job=1.: it must give whole numbers of epochs"),
        ("Work(steps=np.zeros(len(device)))", "0.0 at position 0 .*whole numbers of steps from 1"),
        ("Work(batch_size=np.full(len(device), np.nan))", "nan at position 0 .*whole numbers of batch_size"),
        ("Work(rate=-np.ones(len(device)))", "-1.0 at position 0 .*finite rates > 0"),
        ("Work(epochs=np.full(len(device), 10**9))", "the order of the .* samples of one local training"),
    ),
    *rows("schedule", 5, *RAISES, *NO_COLUMN, *NO_AMOUNT),
    *rows(
        "allocation", 5, *RAISES, *FOR_CAPACITY,
        ("np.full(len(capacity), num_symbols)", "symbols in all: there are .* to share"),
        ("Shares(np.zeros(len(capacity)), np.ones(len(capacity)))", "1 bits at position 0: its 0 symbols carry 0"),
        ("Shares(np.zeros(99), np.zeros(99))", r"shape \(99,\)"),
        ("Shares(np.ones(len(capacity)), None)", "returned None.*bits"),
    ),
    *rows(
        "timeline", 2, *RAISES,
        ("None", "p.py:bad'.*None"),
        ("7", "p.py:bad'"),
        ("'abc'", "p.py:bad'"),
        ("[None]", "p.py:bad'.*tick 1"),
        ("[]", "no aggregation"),
        ("[Tick(2, 1.0, np.arange(6), np.ones(6))]", "tick 1: .*index is 2"),
        ("[Tick(1, 1.0, np.arange(6), np.ones(6)), Tick(2, 0.5, [], [])]", "tick 2: its time 0.5 lies before"),
        ("[Tick(1, 9.0, np.arange(6), np.ones(6))]", "its time 9.0 lies beyond timeline.horizon=2"),
        ("[Tick(1, math.nan, [], [])]", "tick 1: its time nan"),
        ("[Tick(1, 'now', [], [])]", "p.py:bad'.*now"),
        ("[Tick(1, 1.0, [6], [1])]", r"ready devices \[6\] are not"),
        ("[Tick(1, 1.0, [2, 1], [1, 1])]", r"ready devices \[2, 1\] are not"),
        ("[Tick(1, 1.0, ['x'], [1])]", "p.py:bad'"),
        ("[Tick(1, 1.0, [0.5], [1])]", "p.py:bad'.*0.5"),
        ("[Tick(1, 1.0, [[0], [1]], [1])]", "p.py:bad'"),
        ("[Tick(1, 1.0, None, None)]", "p.py:bad'"),
        ("[Tick(1, 1.0, [0], [7])]", r"start versions \[7\] should be \[1\]"),
        ("[Tick(1, 1.0, [0], ['x'])]", "p.py:bad'"),
        ("(Tick(t, 1.0, [], []) for t in itertools.count(1))", "clock stands still"),
        ("(Tick(t, 1e-9 * t, [], []) for t in itertools.count(1))", "at its pace"),
        ("(fail() for _ in range(3))", r"raised ValueError: I cannot \(p.py:\d+\)"),
    ),
    *rows(
        "scheduler", 5, *RAISES,
        ("None", "returned positions None: they must be"),
        ("'ab'", "must be a one-dimensional array of whole numbers"),
        ("[0.5]", "whole numbers"),
        ("[True]", "whole numbers"),
        ("[[0]]", "one-dimensional"),
        ("[0, 0]", "duplicates"),
        ("[-1]", "must lie in 0.."),
        ("[999]", "must lie in 0..*positions within the candidates"),
        ("range(limit + 1)", "at most min"),
        ("itertools.count()", "returned positions count"),
        ("[math.nan]", "whole numbers"),
        ("Selection(None)", "returned positions None"),
        ("Selection([7, 8, 9])", "at most min"),
    ),
    *rows(
        "weighting", 5, *RAISES,
        ("None", "returned None: it must give . weights >= 0 with sum 1"),
        ("'half'", "returned 'half'"),
        ("np.ones(99) / 99", "it must give . weights"),
        ("np.zeros(len(age))", "the sum is 0"),
        ("np.full(len(age), np.nan)", "the sum is nan"),
        ("np.full(len(age), np.inf)", "the sum is inf"),
        ("-np.ones(len(age))", "weights >= 0"),
        ("age * 1j", "returned"),
        ("itertools.repeat(0.5)", "returned repeat"),
    ),
    *rows(
        "aggregator", 5, *RAISES,
        ("None", "returned None: it must give the 7850 numbers"),
        ("model[:-1]", r"an array of shape \(7849,\)"),
        ("updates", "an array of shape"),
        ("model * np.nan", "nan at position 0: it must give finite"),
        ("model.astype(float) + 1e300", "at position 0: it must give finite"),
        ("'model'", "returned 'model'"),
        ("itertools.repeat(0.0)", "returned repeat"),
        ("np.array(['x'] * 7850)", "p.py:bad'"),
    ),
    *rows(
        "codec.encode", 5, *RAISES,
        ("None", "encoded to a NoneType"),
        ("good.data", "encoded to a bytes"),
        ("good._replace(data='text')", "data is a str"),
        ("good._replace(bits=-1)", "bits=-1"),
        ("good._replace(bits=None)", "bits=None"),
        ("good._replace(bits=10**9)", "bits=1000000000"),
        ("good._replace(num_kept=1.5)", "num_kept=1.5"),
        ("good._replace(num_kept=D + 1)", "num_kept=7851"),
        ("good._replace(num_parameters=3)", "num_parameters=3"),
        ("packet(9, D, 1, bytes(10**6), 1)", "encoded to 1000028 bytes and calls them 1 bits: count every bit"),
        ("packet(9, D, 1, bytes(10**6), 8 * 10**6)", "encoded to 8000000 bits, and .* were granted"),
    ),
    *rows(
        "codec.decode", 5, *RAISES,
        ("None", "returned None: it must give the 7850 numbers"),
        ("good[:-1]", r"shape \(7849,\)"),
        ("np.ones((2, D))", r"shape \(2, 7850\)"),
        ("good * np.nan", "nan at position 0"),
        ("good.tolist() + ['x']", "p.py:bad'"),
        ("iter(good)", "p.py:bad'"),
    ),
    *rows("codec.num_kept", 5, *RAISES, ("None", "num_kept.*=None"), ("-1", "=-1"), ("0.5", "=0.5"), ("'x'", "='x'")),
    *rows(
        "model", 2, *RAISES,
        ("None", "p.py:bad'.* a NoneType"),
        ("7", "p.py:bad'.* a int"),
        ("Model", "p.py:bad'.* a type"),
        ("Odd()", "p.py:bad'.* a Odd"),
        ("Model(input_shape, ())", "p.py:bad'"),
        ("Model(input_shape, None)", "p.py:bad'"),
        ("Model(input_shape, (None, Linear(num_labels)))", "p.py:bad'.*layer 0"),
        ("Model(input_shape, ('Linear',))", "p.py:bad'.*layer 0"),
        ("Model(input_shape, (ReLU(),))", "p.py:bad'.*add a Linear layer"),
        ("Model(input_shape, (Linear(3),))", "p.py:bad'.*3 logits.*10 labels"),
        ("Model(input_shape, (Linear('x'),))", "p.py:bad'.*layer 0"),
        ("Model(input_shape, (Linear(math.nan),))", "p.py:bad'.*layer 0"),
        ("Model(input_shape, (Linear(0), Linear(num_labels)))", "p.py:bad'.*layer 0"),
        ("Model(input_shape, (Dropout(1.5), Linear(num_labels)))", "p.py:bad'.*layer 0"),
        ("Model(input_shape, (MaxPool2d(99), Linear(num_labels)))", "p.py:bad'.*layer 0"),
        ("Model((1, 8, 8), (Linear(num_labels),))", r"p.py:bad'.*\(1, 8, 8\).*\(1, 28, 28\)"),
        ("Model(None, (Linear(num_labels),))", "p.py:bad'"),
    ),
    *rows(
        "trainer", 2, *RAISES,
        ("None", "p.py:bad' has no method initial_model"),
        ("7", "p.py:bad' has no method"),
        ("Odd()", "p.py:bad'"),
        ("SparseQuantized()", "has no method initial_model"),
    ),
    *rows("trainer.initial_model", 5, *RAISES),
    *rows(
        "trainer.train", 5, *RAISES,
        ("None", "p.py:bad.*returned updates"),
        ("np.zeros((len(jobs), 3))", "p.py:bad.*returned updates"),
        ("np.zeros((99, D))", "p.py:bad.*returned updates"),
        ("np.full((len(jobs), D), 'x')", "p.py:bad.*returned updates"),
        ("np.full((len(jobs), D), np.nan)", "p.py:bad.*not finite|not finite.*p.py:bad"),
        ("itertools.count()", "p.py:bad"),
    ),
    *rows(
        "trainer.evaluate", 5, *RAISES,
        ("None", "p.py:bad.*accuracy from 0 to 1"),
        ("0.5", "p.py:bad.*accuracy from 0 to 1"),
        ("Score(2.0, 1.0)", "p.py:bad.*accuracy from 0 to 1"),
        ("Score(math.nan, 1.0)", "p.py:bad.*accuracy from 0 to 1"),
        ("Score('a', 'b')", "p.py:bad.*accuracy from 0 to 1"),
        ("Score(0.5, 'low')", "p.py:bad"),
    ),
    *rows(
        "tracker", 2,
        ("None", "p.py:bad'.*tracks nothing"),
        ("3", "tracks nothing"),
        ("Odd()", "p.py:bad'"),
        ("lambda: None", r"p.py:bad' is called as \(record\)"),
        ("lambda record, other: None", r"is called as \(record\)"),
        ("type('Bad', (), {'begin': lambda self: None})()", r"is called as begin\(experiment, folder, total\)"),
    ),
    *(row for kind in REMEMBERING for row in rows(f"{kind}.init", 5, *RAISES, *NO_MEMORY)),
    *(
        row
        for kind in REMEMBERING[:-1]
        for row in rows(
            f"{kind}.call", 5,
            ("good", "a part with memory returns"),
            ("(good, None)", "gave a NoneType for memory"),
            ("(good, memory, memory)", "a part with memory returns"),
            *((f"(good, {memory})", says) for memory, says in CHANGED),
        )
    ),
    *rows(
        "trainer.call", 5,
        ("good", "has memory and returned (a|Trained with)"),
        ("(good, kept)", "has memory and returned (a|Trained with)"),
        ("Trained(good, kept[1:])", "has memory and returned (a|Trained with)"),
        *((f"Trained(good, [{memory.replace('memory', 'each')} for each in kept])", says) for memory, says in CHANGED),
    ),
]  # fmt: skip


# The same in the middle of a run: where, and what is answered from the fifth call on.
LATE = [
    ("channel", "np.full(len(device), np.nan)"),
    ("channel", "fail()"),
    ("access", "updates"),
    ("allocation", "np.full(len(capacity), num_symbols)"),
    ("scheduler", "[0, 0]"),
    ("scheduler", "sys.exit(0)"),
    ("weighting", "np.zeros(len(age))"),
    ("aggregator", "model[:-1]"),
    ("codec.encode", "None"),
    ("codec.decode", "good * np.nan"),
    ("trainer.train", "np.zeros((99, D))"),
    ("trainer.evaluate", "None"),
    ("scheduler.call", "(good, {})"),
    ("weighting.call", "(good, None)"),
    ("aggregator.call", "(good, dict(t=np.append(memory['t'], 1.0)))"),
    ("codec.call", "(good, dict(t=None))"),
    ("trainer.call", "Trained(good, [{} for _ in kept])"),
]


def write(where: str, answer: str) -> None:
    Path("p.py").write_text(f"{HEAD}\n{SHAPES[where][0].replace('{}', answer, 1)}\n", encoding="utf-8")


def words(where: str, folder: str) -> list[str]:
    kind = where.partition(".")[0]
    return ["run", *SMALL, KEYS[kind], *BESIDES.get(kind, []), "-o", folder]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_bad_answer_is_one_line(row: Row) -> None:
    write(row.where, row.answer)
    line = refused(wrong(*words(row.where, "r"), says=row.says, code=row.code))
    assert "p.py:bad" in line
    if Path("r").exists():  # what is there says so itself
        found = CliRunner().invoke(app, ["show", "r"])
        assert found.exit_code in (0, 4), found.output
        assert not read_run(Path("r")).complete


@pytest.mark.parametrize(("where", "answer"), LATE)
def test_what_was_saved_before_stays_and_goes_on(where: str, answer: str) -> None:
    write(where, f"({answer}) if late() else ({SHAPES[where][1]})")
    whole = CliRunner().invoke(app, words(where, "whole"))
    assert whole.exit_code == 0, whole.output
    Path("broken").touch()
    line = refused(wrong(*words(where, "r"), says="p.py:bad", code=5))
    half, all_rounds = read_run(Path("r")).rounds, read_run(Path("whole")).rounds
    assert 0 < len(half) < len(all_rounds), line
    assert half == all_rounds[: len(half)]
    assert CliRunner().invoke(app, ["show", "r"]).exit_code == 0
    Path("broken").unlink()
    resumed = CliRunner().invoke(app, ["resume", "r"])
    assert resumed.exit_code == 0, resumed.output
    for file in ("rounds.jsonl", "model.npy"):
        assert Path("r", file).read_bytes() == Path("whole", file).read_bytes()


@pytest.mark.parametrize("where", [where for where in SHAPES if where not in ("trainer", "codec.num_kept")])
def test_the_right_answer_is_taken(where: str) -> None:
    """The rows are refused for what they answer, not for how they are written."""
    write(where, SHAPES[where][1])
    found = CliRunner().invoke(app, words(where, "r"))
    assert found.exit_code == 0, found.stderr


def test_every_kind_is_here() -> None:
    assert {row.kind for row in ROWS} == {*KINDS}
    assert len({str(row) for row in ROWS}) == len(ROWS) >= 80
