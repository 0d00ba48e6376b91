"""Wrong places of what `report`, `explore`, `league`, `worlds`, `paper` and `theory` read and write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from judge import SMALL, Wrong, contents, refused, wrong

from fedtide.cli.main import app

NO_PAGE = "exists and is not a page of fedtide: name another file"
NO_FILE = "is a pipe, a device or a link to nothing"
MANY = "99999999999999999999"
NO_PLACE = "cannot be written .*(it is no folder|symbolic links).*"
CASES = [
    # a page that would take the place of something else
    wrong("report", "run", "-o", "pipe", says=NO_FILE),
    wrong("report", "run", "-o", "to_pipe", says=NO_FILE),
    *(
        wrong("report", "run", "-o", name, says=NO_PAGE)
        for name in ("text", "run/experiment.yaml", "run/model.npy", "run/rounds.jsonl", "run/curve.png")
    ),
    # options that mean nothing here
    wrong("report", "run", "--store", "store", says="--store store is where a study's results are, and run is a run"),
    wrong("explore", "run", "--no-browser", "--store", "store", says="leave it out"),
    wrong("explore", "run", "--no-browser", "--port", "99", says="--port 99 .*: say --live too"),
    *(
        wrong(name, "-j", MANY, says="is not in the range 1<=x<=1000")
        for name in ("league", "oracle", "external", "worlds", "skies", "paper")
    ),
    # places that are none, found before hours of runs and not after
    *(
        wrong(name, "-o", place, says=NO_PLACE, code=2 if name == "theory" else 4)
        for name in ("league", "oracle", "external", "worlds", "skies", "paper", "theory")
        for place in ("text", "text/below", "pipe")
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a text and a pipe."""
    folder = tmp_path_factory.mktemp("places")
    assert CliRunner().invoke(app, ["run", *SMALL, "-o", str(folder / "run")]).exit_code == 0
    (folder / "text").write_text("mine\n")
    os.mkfifo(folder / "pipe")
    (folder / "to_pipe").symlink_to("pipe")
    return folder


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_places(case: Wrong, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setattr("fedtide_lab.commands.do_study_runs", _begins)
    monkeypatch.setattr("fedtide_lab.theory.command._evaluate_problem", _begins)
    before = contents(made)
    refused(case)
    assert contents(made) == before
    assert (made / "pipe").is_fifo()
    assert (made / "to_pipe").is_symlink()


def _begins(*_: object, **__: object) -> None:
    raise AssertionError("began, and would say only at the end that the place is none")
