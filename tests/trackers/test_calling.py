"""Trackers cannot harm a run: they fail alone, and once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.core import signals
from fedtide.errors import FedtideError
from fedtide.parts import user_code
from fedtide.trackers import Trackers, make_trackers


class Log:
    """Writes down what it is called with."""

    def __init__(self, tag: str = "") -> None:
        self.tag, self.calls = tag, []

    def begin(self, experiment: Any, folder: Any, total: int) -> None:
        self.calls.append(("begin", total))

    def round(self, record: Any) -> None:
        self.calls.append(("round", record.index))

    def end(self, result: Any) -> None:
        self.calls.append(("end", result is not None))


def _raise(error: BaseException) -> Any:
    raise error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_all_are_told_of_everything(session: Any, result: fedtide.Result) -> None:
    log, seen = Log(), []
    session([log, lambda record: seen.append(record.index)], result)
    rounds = list(range(1, len(result.rounds) + 1))
    assert log.calls == [("begin", 12), *(("round", index) for index in rounds), ("end", True)]
    assert seen == rounds
    assert session.warnings == []


@pytest.mark.parametrize("method", ["begin", "round", "end"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("two\nlines"), "raised ValueError: two lines"),
        (SystemExit(3), "raised SystemExit: 3"),
        (GeneratorExit(), "raised GeneratorExit"),
        (Unspeakable(), "raised Unspeakable"),
        (FedtideError("no disk: buy one"), ": no disk: buy one;"),
    ],
)
def test_a_failure_warns_once_and_ends_nothing(
    session: Any, result: fedtide.Result, method: str, error: BaseException, said: str
) -> None:
    class Fails(Log):
        pass

    setattr(Fails, method, lambda self, *_: self.calls.append(("failed", 0)) or _raise(error))
    fails, other = Fails(), Log()
    session([fails, other], result)
    assert len(session.warnings) == 1
    (warning,) = session.warnings
    assert warning.startswith("tracker='Fails'")
    assert said in warning
    assert "\n" not in warning
    if not isinstance(error, FedtideError):
        assert f" in {method} (" in warning
        assert Path(__file__).name in warning
    assert fails.calls[-1] == ("failed", 0)  # nor is it called again
    assert len(other.calls) == 14


def test_ctrl_c_passes(result: fedtide.Result) -> None:
    warnings: list[str] = []
    trackers = Trackers([lambda record: _raise(KeyboardInterrupt())], warnings.append)
    trackers.begin(result.experiment, None, 12)
    with pytest.raises(KeyboardInterrupt):
        trackers.round(result.rounds[0])
    assert warnings == []


@pytest.mark.parametrize("swallows", [True, False])
def test_ctrl_c_that_a_tracker_swallowed_passes_all_the_same(
    result: fedtide.Result, monkeypatch: pytest.MonkeyPatch, swallows: bool
) -> None:
    def tracker(record: Any) -> None:
        monkeypatch.setattr(signals, "_asked", 2)
        if not swallows:
            raise RuntimeError("was disturbed")

    log, warnings = Log(), []
    trackers = Trackers([tracker, log], warnings.append)
    trackers.begin(result.experiment, None, 12)
    with pytest.raises(KeyboardInterrupt):
        trackers.round(result.rounds[0])
    trackers.end(None)  # the run is being saved: everybody is told, nothing is raised
    assert log.calls[-1] == ("end", False)
    assert warnings == []


def test_a_failure_while_an_interrupted_run_ends_only_warns(
    result: fedtide.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        def end(self, result: Any) -> None:
            raise OSError("gone")

    log, warnings = Log(), []
    trackers = Trackers([Fails(), log], warnings.append)
    trackers.begin(result.experiment, None, 12)
    monkeypatch.setattr(signals, "_asked", 2)
    trackers.end(None)
    assert log.calls[-1] == ("end", False)
    assert len(warnings) == 1


def test_the_end_is_told_once_and_only_of_what_began(result: fedtide.Result) -> None:
    log = Log()
    trackers = Trackers([log], _raise)
    trackers.end(None)
    assert log.calls == []
    trackers.begin(result.experiment, None, 12)
    trackers.end(result)
    trackers.end(None)
    assert log.calls == [("begin", 12), ("end", True)]


def test_a_tracker_cannot_replace_what_it_is_given(session: Any, result: fedtide.Result) -> None:
    class Changes:
        def end(self, result: Any) -> None:
            result.model[:] = 99

    def assigns(record: Any) -> None:
        record.test_accuracy = 1.0

    seen: list[Any] = []
    model = result.model.copy()
    session([Changes(), assigns, seen.append], result)
    assert len(session.warnings) == 2
    assert "read-only" in session.warnings[1]
    assert np.array_equal(result.model, model)
    assert seen == result.rounds


OWN = """
import functools
SEEN = []
class Tracker:
    def __init__(self, tag="none"):
        self.tag = tag
    def round(self, record):
        SEEN.append((self.tag, record.index))
def function(record, tag="none"):
    SEEN.append((tag, record.index))
def two(record, other):
    pass
class Three:
    def end(self):
        pass
thing = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["Tracker", "function"])
@pytest.mark.parametrize("args", [{}, {"tag": "mine"}])
def test_ones_own_file(session: Any, result: fedtide.Result, name: str, args: dict[str, str]) -> None:
    session([{"name": f"own.py:{name}", **args}], result, slice(2))

    seen = user_code.user_code_attribute("tracker", "own.py:SEEN")
    assert seen[-2:] == [(args.get("tag", "none"), 1), (args.get("tag", "none"), 2)]
    assert session.warnings == []


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["tensorbord"], "tracker='tensorbord' is not known; did you mean tensorboard?"),
        ("tensorboard", "is not a list"),
        ({"name": "tensorboard"}, "is not a list"),
        ([{"logdir": "x"}], "has no name"),
        ([{"name": "tensorboard", "logdirr": "x"}], "does not accept the arguments"),
        ([{"name": "tensorboard", "logdir": 3}], "logdir=3 cannot be"),
        ([{"name": "wandb", "mode": "oflline"}], "mode='oflline' cannot be"),
        (["own.py:Trakcer"], "has no 'Trakcer'"),
        (["owm.py:Tracker"], "file owm.py not found"),
        (["own.py:thing"], "tracks nothing"),
        (["own.py:two"], "is called as (record), but it takes (record, other)"),
        (["own.py:Three"], "is called as end(result), but it takes end()"),
        ([object()], "tracks nothing"),
    ],
)
def test_what_cannot_be_made_is_refused_before_the_run(wanted: Any, said: str) -> None:
    with pytest.raises(FedtideError) as caught:
        Trackers(wanted, _raise)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_is_made() -> None:
    assert [each.name for each in make_trackers([Log, Log()])] == ["Log", "Log"]


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_a_package_that_is_not_installed(
    session: Any, result: fedtide.Result, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    session([name], result)
    (warning,) = session.warnings
    assert warning.startswith(f"tracker={name!r}: {package} cannot be imported")
    assert f"pip install 'fedtide[{name}]'" in warning
    assert list(session.folder.iterdir()) == []


def test_making_them_imports_no_package() -> None:
    code = (
        "import sys; from fedtide.trackers import TRACKERS, make_trackers; make_trackers(list(TRACKERS)); "
        "print(sorted({'tensorboardX', 'mlflow', 'wandb', 'torch', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
