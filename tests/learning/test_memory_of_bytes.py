"""A set of bytes stays bytes: no trainer makes float32 of the whole, which would take four times as much."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedtide.learning.trainer import TRAINERS

NUM_SAMPLES = 20_000  # 61 MB; as float32 245 MB

PEAK = """
import importlib
import sys
import numpy as np
from fedtide.learning.model import MODELS
from fedtide.learning.trainer import TRAINERS, LocalWork, Task
from fedtide.types import Job, Samples

shape = (3, 32, 32)
module, _, made = TRAINERS[sys.argv[1]].partition(":")
task = Task(MODELS["softmax"](shape, 10), LocalWork(50, None, 4), 1, shape, 10, 1)
trainer = getattr(importlib.import_module(module), made)(task)
start = trainer.initial_model(1)


def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))


def use(num):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (num, *shape), np.uint8), rng.integers(0, 10, num, np.uint8)
    table = Samples(images, labels, rng.standard_normal((3, 256)).astype(np.float32))
    trainer.train([Job(k, 1, start, 0.01, table, np.arange(k, num, 20)) for k in range(20)])
    trainer.evaluate(start, table)
    return images.nbytes


use(3000)  # whatever a trainer takes for its work
before = peak()
print(use(int(sys.argv[2])), peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
@pytest.mark.parametrize("name", TRAINERS)
def test_training_and_scoring_take_little_more_than_the_bytes(name: str) -> None:
    if name == "dask":
        pytest.skip("it packs what goes to its workers, of which each has a copy")
    done = subprocess.run([sys.executable, "-c", PEAK, name, str(NUM_SAMPLES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size, growth = map(int, done.stdout.split())
    assert growth < 1.6 * size
