from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks, registry
from fedtide.parts.registry import resolve
from fedtide.parts.user_code import user_source_digest

SOURCE = """
from dataclasses import dataclass

def first(candidates, limit, rng, skip=0):
    return list(range(skip, skip + limit))
first.needs = ("update_sq_norm",)

@dataclass
class Every:
    step: int = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_ours() -> None:
    assert resolve("weighting", "a", {}, known={"a": lambda: 3})() == 3
    from fedtide.aggregate.averages import WEIGHTINGS, AgeAware

    assert resolve("weighting", "age_aware", {"age_base": 2.0}, known=WEIGHTINGS) == AgeAware(2.0)


def test_function_of_a_file_gets_its_arguments_with_every_call(file: Path) -> None:
    assert resolve("scheduler", f"{file}:first", {}, known={})(None, 2, None) == [0, 1]
    skipping = resolve("scheduler", f"{file}:first", {"skip": 3}, known={})
    assert skipping(None, 2, None) == [3, 4]
    assert skipping.needs


def test_class_of_a_file_is_made(file: Path) -> None:
    assert resolve("timeline", f"{file}:Every", {"step": 4}, known={}).step == 4


def test_two_files_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(f"def f():\n    return {value}\n")
    assert [registry.find_part("x", f"{tmp_path / folder / 'same.py'}:f", {})() for folder in "ab"] == [1, 2]


def test_module() -> None:
    assert registry.find_part("x", "functools:reduce", {}) is functools.reduce


def test_entry_point_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Offered:
        size: int = 0

    def offered(group: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="theirs", load=lambda: Offered)] if group == "fedtide.scheduler" else []

    monkeypatch.setattr(registry, "entry_points", offered)
    assert resolve("scheduler", "theirs", {"size": 2}, known={}) == Offered(2)
    with pytest.raises(FedtideError, match=r"did you mean theirs\?.*Known: ours, theirs"):
        resolve("scheduler", "thiers", {}, known={"ours": Offered})
    with pytest.raises(FedtideError, match="not known"):
        resolve("codec", "theirs", {}, known={})


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("randm", {}, r"scheduler='randm' is not known; did you mean random\?"),
        ("zzz", {}, r"not known\. Known: random, Path"),
        ("nowhere.py:f", {}, "file nowhere.py not found"),
        ("no_such_module_at_all:f", {}, "raised ModuleNotFoundError"),
        ("functools:nothing", {}, "functools has no 'nothing'"),
        ("random", {"colour": 3}, r"does not accept the arguments \{'colour': 3\}"),
    ],
)
def test_errors_are_one_line(name: str, args: dict, message: str) -> None:
    from fedtide.schedule.schedulers import Random

    with pytest.raises(FedtideError, match=message) as caught:
        resolve("scheduler", name, args, known={"random": Random, "Path": Path})
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_read_in(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("raise RuntimeError('broken')\n")
    with pytest.raises(FedtideError, match="raised RuntimeError: broken"):
        resolve("scheduler", f"{path}:f", {}, known={})
    path.write_text("def f(:\n")
    with pytest.raises(FedtideError, match="raised SyntaxError"):
        resolve("scheduler", f"{path}:f", {}, known={})
    path.write_text("def g():\n    pass\n")
    with pytest.raises(FedtideError, match="has no 'f'; it defines g"):
        resolve("scheduler", f"{path}:f", {}, known={})


def test_wrong_arguments_of_a_users_class(file: Path) -> None:
    with pytest.raises(FedtideError, match=r"it takes \(step: int = 1\)"):
        resolve("timeline", f"{file}:Every", {"stride": 1}, known={})


def test_arguments_that_a_users_function_does_not_take(file: Path) -> None:
    with pytest.raises(
        FedtideError, match=r"does not accept the arguments \{'skp': 1\}: .*'skp'; it takes \(cand.*skip=0\)"
    ):
        resolve("scheduler", f"{file}:first", {"skp": 1}, known={})


def test_a_package_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("no such library")

    monkeypatch.setattr(registry, "entry_points", lambda group: [SimpleNamespace(name="theirs", load=load)])
    with pytest.raises(FedtideError, match="scheduler='theirs': loading it raised ImportError: no such library"):
        resolve("scheduler", "theirs", {}, known={})


def test_a_guarded_policy_is_the_policy_itself(file: Path) -> None:
    guarded = registry.part("scheduler", f"{file}:first", {"skip": 2}, known={})
    assert guarded(None, 2, None) == [2, 3]
    assert guarded.needs
    assert not hasattr(guarded, "nothing")
    assert copy.copy(guarded) == guarded
    assert guarded.label == f"scheduler='{file}:first'"
    assert checks.part_label("scheduler", guarded) == f"{guarded.label} ({file}:4)"


def test_ours_is_guarded_only_with_a_users_arguments() -> None:
    from fedtide.aggregate.averages import AGGREGATORS, Mix

    assert (
        registry.resolve("aggregator", "mix", {"mixing": 0.3})
        == registry.part("aggregator", "mix", {"mixing": 0.3}).policy
    )
    assert registry.part("aggregator", "mix", {}, known=AGGREGATORS) == Mix()
    assert checks.part_label("aggregator", Mix()) == "the aggregator"
    with pytest.raises(FedtideError, match=r"aggregator='mix': mixing='much' cannot be: .*share of the device's model"):
        registry.part("aggregator", "mix", {"mixing": "much"})
    wrong = registry.part("aggregator", "mix", {"mixing": 10.0**200, "staleness": -(10.0**200)})
    ones = np.ones(1)
    with pytest.raises(TrainingError, match=r"aggregator='mix' raised .*; check the arguments that are given to it"):
        wrong(ones, ones[None], ones[None], ones, ones)


def test_the_original_error_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def f(candidates, limit, rng):\n    return help_(limit)\n\ndef help_(x):\n    return 1 / (x - x)\n"
    )
    with pytest.raises(TrainingError, match=r"raised ZeroDivisionError: division by zero \(.*mine\.py:5\)") as caught:
        registry.part("scheduler", f"{path}:f", {}, known={})(None, 2, None)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_a_library_raises_is_told_at_the_line_that_called_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import json\n\n\ndef f(candidates, limit, rng):\n    return json.loads('{')\n")
    with pytest.raises(TrainingError, match=r"raised JSONDecodeError: .* \(.*mine\.py:5\)"):
        registry.part("scheduler", f"{path}:f", {}, known={})(None, 2, None)


def test_a_function_without_python_text() -> None:
    guarded = registry.part("weighting", "math:ldexp", {}, known={})
    with pytest.raises(TrainingError, match=r"weighting='math:ldexp' raised TypeError: .* \(math\)"):
        guarded("a", "b")


def test_source_digest_follows_the_file(file: Path) -> None:
    before = user_source_digest(f"{file}:first")
    assert before == user_source_digest(f"{file}:Every") is not None
    file.write_text(SOURCE + "\n")
    assert user_source_digest(f"{file}:first") != before
    assert user_source_digest("random") is user_source_digest("a.b:c") is None
