"""Parts handed over as Python objects: found again by name, known by their file, refused with the reason if they cannot be."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config, data
from fedtide.config import Part
from fedtide.errors import FedtideError, RunFolderError
from fedtide.radio.cell import Equal, Umi
from fedtide.radio.channel import Jakes, Rayleigh
from fedtide.schedule.schedulers import AgeBased, Random
from fedtide.studies.run import _dataset_of

HALVES: Any = np.full(5, 0.5)

SMALL: dict[str, Any] = {
    "data": {"name": "synthetic", "num_train": 120, "num_test": 30, "partition": "iid"},
    "fleet": {"num_devices": 5},
    "timeline": {"horizon": 1.0},
    "policy": {"limit": 2},
    "learning": {"model": "softmax", "local_epochs": 1},
}
SOURCE = """
from dataclasses import dataclass, field
import fedtide

def first(candidates, limit, rng, skip=0):
    return list(range(min(limit, len(candidates.device))))

def last(candidates, limit, rng):
    return list(range(len(candidates.device)))[::-1][:limit]

@dataclass(frozen=True)
class Every:
    step: int = 1
    made: int = field(default=7, init=False)

    def __call__(self, candidates, limit, rng):
        return list(range(0, len(candidates.device), self.step))[:limit]

class Plain:
    def __call__(self, candidates, limit, rng):
        return [0]

    def method(self, candidates, limit, rng):
        return [0]

def outer():
    def inner(candidates, limit, rng):
        return [0]
    return inner
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "callable_parts.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield importlib.import_module("callable_parts")
    del sys.modules["callable_parts"]


def given(module: ModuleType) -> dict[str, tuple[Any, str, dict[str, Any]]]:
    """Return objects, each with the name and the arguments that it becomes."""
    return {
        "function": (module.first, "callable_parts.py:first", {}),
        "partial": (functools.partial(module.first, skip=1), "callable_parts.py:first", {"skip": 1}),
        "partial of a partial": (functools.partial(functools.partial(module.first), skip=2), "callable_parts.py:first",
                                 {"skip": 2}),
        "class": (module.Every, "callable_parts.py:Every", {}),
        "partial of a class": (functools.partial(module.Every, step=2), "callable_parts.py:Every", {"step": 2}),
        "dataclass object": (module.Every(3), "callable_parts.py:Every", {"step": 3}),
        "plain class": (module.Plain, "callable_parts.py:Plain", {}),
        "ours, a class": (Random, "random", {}),
        "ours, an object": (AgeBased(0.4), "age_based", {"pool_share": 0.4}),
        "mapping": ({"name": module.first, "skip": 3}, "callable_parts.py:first", {"skip": 3}),
    }  # fmt: skip


CASES = [
    "function", "partial", "partial of a partial", "class", "partial of a class", "dataclass object", "plain class",
    "ours, a class", "ours, an object", "mapping",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_an_object_becomes(mine: ModuleType, case: str) -> None:
    part, name, args = given(mine)[case]
    forms = [
        fedtide.experiment(SMALL, {"policy.scheduler": part}),
        fedtide.experiment(SMALL, {"policy": {"scheduler": part}}),
        fedtide.experiment(SMALL, policy={"scheduler": part}),
        fedtide.experiment(SMALL, **{"policy.scheduler": part}),
        fedtide.experiment(fedtide.experiment(SMALL), {"policy.scheduler": part}),
    ]
    for made in forms:
        assert (made.policy.scheduler.name, made.policy.scheduler.args) == (name, args)
        assert config.experiment(config.dump(made)) == made
    assert fedtide.simulate(forms[0]).rounds == fedtide.simulate(config.experiment(config.dump(forms[0]))).rounds


def test_every_case_is_listed(mine: ModuleType) -> None:
    assert list(given(mine)) == CASES


@pytest.mark.parametrize(
    ("key", "part", "name"),
    [
        ("data.partition", data.iid, "iid"),
        ("data.name", data.synthetic_shapes, "synthetic"),
        ("data.partition", data.natural, "natural"),
    ],
)
def test_ours_are_known_also_where_the_table_wraps_them(key: str, part: Any, name: str) -> None:
    assert config.key_value(fedtide.experiment({key: part}), key) == Part(name)


def test_ours_that_are_imported_when_used_are_known() -> None:
    trainer = pytest.importorskip("fedtide.learning.torch").TorchTrainer
    assert fedtide.experiment({"learning.trainer": trainer}).learning.trainer == Part("torch")


def from_a_prompt() -> Any:
    """Return a function as a notebook's cell makes it: without a file."""
    there: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def mine(candidates, limit, rng):\n    return [0]\n", "<ipython-input-1>", "exec"), there)
    return there["mine"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda m: lambda candidates, limit, rng: [0], "lambda.*not at the top of a file"),
        (lambda m: m.outer(), "inner is not at the top of a file"),
        (lambda m: m.Plain.method, r"Plain\.method is not at the top of a file"),
        (lambda m: m.Plain().method, r"Plain\.method is not at the top of a file"),
        (lambda m: functools.partial(lambda a, b, c, x: [0], x=1), "lambda.*not at the top of a file"),
        (lambda m: functools.partial(m.first, 1), "positional arguments"),
        (lambda m: from_a_prompt(), "has no source file"),
        (lambda m: m.Plain(), "a Plain cannot be written down"),
        (lambda m: len, "has no source file"),
        (lambda m: object(), "is a object"),
        (lambda m: functools.partial(m.first, skip=object()), "is a object"),
        (lambda m: {"name": lambda a, b, c: [0]}, "lambda.*not at the top of a file"),
    ],
)
def test_what_cannot_be_found_again_is_refused(mine: ModuleType, make: Any, says: str) -> None:
    part = make(mine)
    calls = [
        lambda: fedtide.experiment(SMALL, {"policy.scheduler": part}),
        lambda: fedtide.study(SMALL, variants={"a": {"policy.scheduler": part}}, seeds=1),
        lambda: fedtide.study(SMALL, axes={"policy.scheduler": [part, "random"]}, seeds=1),
        lambda: fedtide.study({**SMALL, "policy": {"limit": 2, "scheduler": part}}, seeds=1),
        lambda: fedtide.compare({"a": {"policy.scheduler": part}}, base=SMALL, seeds=1),
    ]
    for call in calls:
        with pytest.raises(FedtideError, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [1, 2])
def test_studies_take_them(mine: ModuleType, tmp_path: Path, workers: int) -> None:
    parts = [mine.first, functools.partial(mine.Every, step=2), "random", mine.Every(3)]
    crossed = fedtide.study(SMALL, axes={"policy.scheduler": parts}, seeds=1, store=tmp_path / "s", workers=workers)
    named = fedtide.study(
        SMALL, variants={f"v{place}": {"policy": {"scheduler": part}} for place, part in enumerate(parts)}, seeds=1,
        store=tmp_path / "s",
    )  # fmt: skip
    compared = fedtide.compare(
        {f"v{place}": {"policy.scheduler": part} for place, part in enumerate(parts)}, base=SMALL, seeds=1,
        store=tmp_path / "s",
    )  # fmt: skip
    names = [{run.name for run in each.study.runs} for each in (crossed, named, compared)]
    assert names[0] == names[1] == names[2], "the same runs, however they were given"
    assert len(names[0]) == len(crossed.results) == 4
    picked = [next(iter(runs.values())).experiment["policy"] for runs in crossed.results.values()]
    assert [Part.of(each["scheduler"]).args for each in picked] == [{}, {"step": 2}, {}, {"step": 3}]


SCRIPT = """
import json, sys
from pathlib import Path
import fedtide

with open("executed", "a") as log:
    log.write(__name__ + "\\n")

def first(candidates, limit, rng):
    return list(range(min(limit, len(candidates.device))))

if __name__ == "__main__":
    e = fedtide.experiment(json.loads(sys.argv[1]), {"policy.scheduler": first})
    assert e.policy.scheduler.name == "script.py:first", e.policy.scheduler
    fedtide.simulate(e, "run")
    if len(sys.argv) > 2:
        fedtide.compare({"a": e, "b": {**json.loads(sys.argv[1]), "policy.scheduler": "random"}}, seeds=2, workers=2)
"""


def test_a_script_is_not_executed_twice(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py", json.dumps(SMALL)]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "executed").read_text() == "__main__\n"
    subprocess.run([*words, "study"], cwd=tmp_path, check=True, capture_output=True)
    executed = (tmp_path / "executed").read_text().split()
    assert executed.count("__main__") == 2
    assert "__mp_main__" not in executed  # a worker loads the part's file, once, and does not run the script
    assert len(executed) <= 2 + 2


def test_the_identity_is_the_files_content_and_the_name(mine: ModuleType, tmp_path: Path) -> None:
    e, other = (fedtide.experiment(SMALL, {"policy.scheduler": part}) for part in (mine.first, mine.last))
    assert config.digest(e) != config.digest(other)
    whole = fedtide.simulate(e)

    def stop(record: Any, total: int) -> None:
        if record.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(e, "run", on_round=stop)
    with pytest.raises(RunFolderError):
        fedtide.simulate(other, "run")
    source = tmp_path / "callable_parts.py"
    source.write_text(SOURCE + "\n# changed\n")
    with pytest.raises(RunFolderError, match=r"callable_parts\.py"):
        fedtide.simulate(e, "run")
    source.write_text(SOURCE)
    assert fedtide.simulate(e, "run").rounds == whole.rounds


OWN_DATA = """
import fedtide
from typing import Annotated
from fedtide.data.synthetic import synthetic

reads = []

def own(size: int = 60, seed: Annotated[int, fedtide.arg("of the drawing", key="seed")] = 0):
    reads.append((size, seed))
    return synthetic(seed, size, 20)

def same(size: int = 60):
    reads.append(size)
    return synthetic(0, size, 20)
"""


def test_a_data_set_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets.py").write_text(OWN_DATA)

    def made(name: str, **more: Any) -> Any:
        return _dataset_of(
            fedtide.experiment(SMALL, {"data": {"name": name, "num_train": None, **more.pop("data", {})}, **more})
        )

    one = made("sets.py:same")
    assert made("sets.py:same", seed=4) is one  # it does not depend on the seed
    assert made("sets.py:same", data={"partition": "shards", "num_shards": 20}) is one
    assert made("sets.py:same", data={"name": {"name": "sets.py:same", "size": 70}}) is not one
    seeded = made("sets.py:own")
    assert made("sets.py:own") is seeded
    assert made("sets.py:own", seed=4) is not seeded
    again = made("sets.py:own")
    (tmp_path / "sets.py").write_text(OWN_DATA + "\n# changed\n")
    assert made("sets.py:own") is not again


@pytest.mark.parametrize("radio", [{"channel": Rayleigh(5, large_scale=HALVES)}, {"coverage": Equal(9.0, HALVES)}])
def test_what_has_a_key_of_its_own_is_given_by_that_key(radio: dict[str, Any]) -> None:
    with pytest.raises(fedtide.FedtideError, match=r"cannot be given with it: it has a key of its own, radio\.\w+$"):
        fedtide.experiment(SMALL, {"radio": radio})
    made = fedtide.experiment(SMALL, {"radio": {"channel": Rayleigh(5), "large_scale": HALVES}})
    assert (made.radio.channel, made.radio.large_scale) == (Part("rayleigh"), (0.5,) * 5)
    assert fedtide.plan(made)


@pytest.mark.parametrize(
    "radio",
    [
        {"channel": Jakes(5, coverage=Umi(5))},
        {"channel": {"name": "jakes", "coverage": "umi"}},
        {"downlink": {"name": "unicast", "coverage": {"name": "umi"}}},
    ],
)
def test_a_coverage_is_named_by_its_own_key(radio: dict[str, Any]) -> None:
    with pytest.raises(fedtide.FedtideError, match=r"coverage=.* cannot be given .*: name it as radio\.coverage$"):
        fedtide.plan(fedtide.experiment(SMALL, {"radio": radio}))


CHANNEL = """
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fedtide import arg


@dataclass(frozen=True)
class Steady:
    coverage: Annotated[object, arg("average SNR of each link", key="run.coverage")]
    loss: Annotated[float, arg("of the antenna", gt=0)] = 2.0

    def __call__(self, seed, tick, time, device):
        return self.coverage(seed, device, np.full(len(device), time)) / self.loss
"""


def test_none_is_left_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "steady_channel.py").write_text(CHANNEL)
    channel = importlib.import_module("steady_channel").Steady(None, 4.0)
    made = fedtide.experiment(SMALL, {"radio": {"channel": channel, "coverage": "umi"}})
    assert made.radio.channel.args == {"loss": 4.0}
    assert fedtide.plan(made)
