"""Files that the arguments of a user's part name belong to a run as the part's own file does."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

import fedtide
from fedtide import config
from fedtide.core import yaml12
from fedtide.errors import FedtideError, RunFolderError
from fedtide.parts import user_code
from fedtide.runs import policy_files

PART = """
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from fedtide import arg


@dataclass(frozen=True)
class Constant:
    path: Annotated[Path, arg("a number: the capacity")]
    spare: Path | None = None
    words: str = ""

    def __call__(self, seed, tick, time, device):
        return np.full(len(device), float(self.path.read_text()))


def told(seed, tick, time, device, path: Path = Path("capacity.txt")):
    return np.full(len(device), float(path.read_text()))
"""
SMALL = {
    "data": {"name": "synthetic", "num_train": 60, "num_test": 20, "num_shards": 6},
    "fleet": {"num_devices": 3},
    "policy": {"limit": 2},
    "timeline": {"horizon": 1.0},
    "radio": {"num_symbols": 12000},
    "learning": {"model": "softmax", "local_epochs": 1},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(PART)
    Path("capacity.txt").write_text("2.0")
    return tmp_path


def experiment(name: str = "own.py:Constant", **args: object) -> fedtide.Experiment:
    return config.experiment(SMALL, {"radio": {"channel": {"name": name, **(args or {"path": "capacity.txt"})}}})


def sha(place: str) -> str:
    return hashlib.sha256(Path(place).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "args", "named"),
    [
        ("own.py:Constant", {"path": "capacity.txt"}, ["capacity.txt"]),
        ("own.py:Constant", {"path": "capacity.txt", "spare": "own.py"}, ["capacity.txt", "own.py"]),
        ("own.py:Constant", {"path": "capacity.txt", "spare": None}, ["capacity.txt"]),
        ("own.py:Constant", {"path": "capacity.txt", "words": "own.py"}, ["capacity.txt"]),
        ("own.py:Constant", {"path": "gone.txt"}, []),
        ("own.py:Constant", {"path": "."}, []),
        ("own.py:Nothing", {"path": "capacity.txt"}, []),
        ("own.py:told", {"path": "capacity.txt"}, ["capacity.txt"]),
        ("rayleigh", {"snr_db": 3.0}, []),
    ],
)
def test_which_arguments_name_a_file(here: Path, name: str, args: dict[str, object], named: list[str]) -> None:
    own = {name: sha("own.py")} if name.startswith("own.py") else {}
    assert policy_files(experiment(name, **args)) == own | {place: sha(place) for place in named}


def test_ours_name_none(here: Path) -> None:
    given = config.experiment(SMALL, {"data": {"name": {"name": "mnist", "folder": "capacity.txt"}}})
    assert policy_files(given) == {}


def test_a_run_with_another_file_is_not_resumed(here: Path) -> None:
    fedtide.simulate(experiment(), "run")
    kept = Path("run/rounds.jsonl").read_bytes()
    Path("run/model.npy").unlink()
    Path("capacity.txt").write_text("3.0")
    with pytest.raises(RunFolderError, match=r"begun with another version of capacity\.txt; restore the file"):
        fedtide.simulate(experiment(), "run")
    Path("capacity.txt").write_text("2.0")
    assert len(fedtide.simulate(experiment(), "run").rounds) == 4
    assert Path("run/rounds.jsonl").read_bytes() == kept


def test_a_study_does_a_run_with_another_file_anew(here: Path) -> None:
    from fedtide.studies import spec
    from fedtide.studies.run import missing_runs, run_study
    from fedtide.studies.store import Store

    def study() -> spec.Study:
        return spec.make_study("own", {"mine": config.dump(experiment())}, [1])

    store = Store(here / "results")
    assert run_study(study(), store, workers=1) == []
    assert missing_runs(study(), store) == []
    Path("capacity.txt").write_text("3.0")
    assert len(missing_runs(study(), store)) == 1


HELPED = """
import json
import numpy as np
from helper import capacity


def helped(seed, tick, time, device):
    return np.full(len(device), capacity())
"""


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ({"helper.py": "def capacity(): return 2.0"}, {"helper.py"}),
        ({"helper.py": "import deep.inner as d\ndef capacity(): return d.value", "deep/inner.py": "value = 2.0"},
         {"helper.py", "deep/inner.py"}),
        ({"helper/__init__.py": "from .inner import capacity",
          "helper/inner.py": "from . import other\ndef capacity(): return other.v",
          "helper/other.py": "v = 2.0", "helper/unused.py": ""},
         {"helper/__init__.py", "helper/inner.py", "helper/other.py"}),
        ({"helper.py": "import helped\ndef capacity(): return 2.0", "unused.py": ""}, {"helper.py"}),
    ],
    ids=["file", "through another", "package", "in a circle"],
)  # fmt: skip
def test_what_a_file_imports_from_beside_it_belongs_to_it(here: Path, files: dict[str, str], counts: set[str]) -> None:
    Path("helped.py").write_text(HELPED)
    for place, text in files.items():
        Path(place).parent.mkdir(exist_ok=True)
        Path(place).write_text(text)
    first = user_code.user_source_digest("helped.py:helped")
    changed = set()
    for place, text in files.items():
        Path(place).write_text(f"{text}\n# edited")
        changed |= {place} if user_code.user_source_digest("helped.py:helped") != first else set()
        Path(place).write_text(text)
    assert changed == counts
    assert user_code.user_source_digest("helped.py:helped") == first
    assert user_code.user_source_digest("own.py:Constant") == sha("own.py")  # it imports nothing from here


def test_an_edited_helper_is_run_anew_and_with_its_new_content(here: Path) -> None:
    Path("helped.py").write_text(HELPED)
    Path("again.py").write_text(HELPED)
    Path("helper.py").write_text("def capacity(): return 2.0")

    def bits(name: str) -> float:
        mine = config.experiment(SMALL, {"radio": {"channel": f"{name}.py:helped"}})
        return fedtide.compare({"mine": mine}, seeds=1, store="results").results["mine"][0].columns["bits"][-1] or 0.0

    before = bits("helped")
    Path("helper.py").write_text("def capacity(): return 0.1")  # the same size, within a second
    assert before > bits("helped") == bits("again")


@pytest.mark.parametrize("name", ["own.py:Constant", "own.py:told"])
def test_files_beside_a_form_are_found_from_anywhere(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    Path("mine.yaml").write_text(yaml12.to_yaml(config.dump(experiment(name, path="capacity.txt"))))
    fedtide.simulate(experiment(name, path="capacity.txt"), "run")
    Path("run/model.npy").unlink()
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    read = config.experiment("../mine.yaml")
    assert read.radio.channel.args == {"path": str(here / "capacity.txt")}
    assert len(fedtide.simulate(read).rounds) == 4
    with user_code.search_user_folder(here):  # as `fedtide resume` does
        assert len(fedtide.simulate(experiment(name, path="capacity.txt"), "../run").rounds) == 4


def test_two_files_of_one_name_are_told_apart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "else").mkdir()
    (here / "else" / "capacity.txt").write_text("5.0")
    monkeypatch.chdir(here / "else")
    with user_code.search_user_folder(here), pytest.raises(FedtideError, match=r"capacity\.txt is there twice"):
        policy_files(experiment())


def test_an_object_from_python_names_its_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    from own import Constant  # type: ignore[import-not-found]

    given = fedtide.experiment(SMALL, **{"radio.channel": Constant(path=Path("capacity.txt"))})
    assert policy_files(given) == {"own.py:Constant": sha("own.py"), "capacity.txt": sha("capacity.txt")}
    assert len(fedtide.simulate(given).rounds) == 4
    monkeypatch.delitem(sys.modules, "own")


def test_the_demo_names_files_in_full_and_keeps_arguments(here: Path) -> None:
    pytest.importorskip("flwr")
    from fedtide.deploy.demo import Demo, demo_terms
    from fedtide.deploy.settings import Deployment, Terms, deployment_doubts

    changes = config.dump(experiment(path="capacity.txt", words="some"))["radio"]
    made = demo_terms(Demo(num_nodes=3, data="synthetic"), {"radio": changes, "policy": {"limit": 2}}).experiment.radio
    assert made.channel.name == f"{here}/own.py:Constant"
    assert made.channel.args == {"path": str(here / "capacity.txt"), "words": "some"}
    found = deployment_doubts(Terms(experiment(), Deployment()))
    assert any(each.startswith("radio.channel.path=capacity.txt: ") for each in found)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_names_that_are_not_utf8(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders and forms may have them, a key may not, and says so."""
    odd = here / os.fsdecode(b"odd-\xff")
    odd.mkdir()
    (odd / "own.py").write_text(
        "def first(candidates, limit, rng):\n    return range(min(limit, len(candidates.device)))\n"
    )
    monkeypatch.chdir(odd)
    run = config.experiment(SMALL, {"policy": {"scheduler": "own.py:first"}})
    assert fedtide.simulate(run, odd / "run").rounds == fedtide.load(odd / "run").rounds
    says = "^.*data.folder=.*odd-.udcff'.* the byte 0xff, which is not UTF-8; give the file or folder a name in UTF-8$"
    for given in ("data.folder=" + odd.name, {"data.folder": odd.name}):
        with pytest.raises(FedtideError, match=says):
            config.experiment(given)
