"""What `-o` names: a new file or one of the same kind; nothing of a user's is replaced, and nothing is swept away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedtide import config
from fedtide.cli.main import app
from fedtide.core.files import refuse_other_file_kind, write_output
from fedtide.errors import FedtideError
from fedtide.plot.figure import figure_style, save_figure
from fedtide.runs import RunFolder
from helpers import ROOT


def _report(*words: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.mark.parametrize(
    "content",
    [b"", b"name: mine\nversion: 1\n", b"<!doctype html>\n<title>mine</title>\n", b"\0\1\2", b"x" * 1_000_000],
    ids=["empty", "study", "another page", "bytes", "large"],
)
def test_a_page_replaces_nothing_but_a_page(content: bytes, made_run: Callable[..., Path], tmp_path: Path) -> None:
    to = tmp_path / "mine.html"
    to.write_bytes(content)
    done = _report(made_run(), "-o", to)
    assert to.read_bytes() == content
    assert done.exit_code == 2
    assert "is not a page of fedtide: name another file" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine.html"]


@pytest.mark.parametrize("name", ["rounds.jsonl", "checkpoint.npz", "experiment.yaml", "versions.json", ".lock"])
def test_a_run_keeps_its_files(name: str, made_run: Callable[..., Path]) -> None:
    path = made_run() / name
    before = path.read_bytes()
    done = _report(made_run(), "-o", path)
    after = path.read_bytes()
    path.write_bytes(before)
    assert (done.exit_code, after) == (2, before)


@pytest.mark.parametrize("name", ["model.npy", "trace.jsonl", "deployment.json"])
def test_a_page_does_not_take_the_name_of_a_file_that_a_run_may_have(
    name: str, made_run: Callable[..., Path], tmp_path: Path
) -> None:
    shutil.copytree(made_run(), tmp_path / "run")
    (tmp_path / "run" / "model.npy").unlink()  # under way
    before = sorted((tmp_path / "run").iterdir())
    done = _report(tmp_path / "run", "-o", tmp_path / "run" / name)
    assert sorted((tmp_path / "run").iterdir()) == before
    assert done.exit_code == 2
    assert _report(tmp_path / "run", "-o", tmp_path / "run" / "report.html").exit_code == 0


def test_a_pipe_a_device_and_a_dangling_link_stay(made_run: Callable[..., Path], tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nothing")
    for to in (pipe, link):
        done = _report(made_run(), "-o", to)
        assert done.exit_code == 2
        assert "is a pipe, a device or a link to nothing" in done.stderr
    assert pipe.is_fifo()
    assert link.is_symlink()
    with pytest.raises(FedtideError, match="/dev/null is a pipe, a device"):
        refuse_other_file_kind(Path("/dev/null"), b"", "a page")


def test_a_page_is_replaced_by_a_page(made_run: Callable[..., Path], tmp_path: Path) -> None:
    to = tmp_path / "page.html"
    assert _report(made_run(), "-o", to).exit_code == 0
    first = to.read_bytes()
    assert _report(made_run(policy={"scheduler": "random"}), "-o", to).exit_code == 0
    assert to.read_bytes() != first


def test_a_new_run_leaves_hidden_files_of_the_user(tmp_path: Path) -> None:
    mine = [".notes.part", ".big.iso.1234.part", ".x.fedtide-1-mine.part"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".x.fedtide-1-0123abcd.part").write_text("ours")
    RunFolder.open(tmp_path, config.experiment({})).close()
    assert {each.name for each in tmp_path.glob(".*.part")} == set(mine)


def test_a_figure_replaces_nothing_but_a_figure(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_text("no picture")
    with figure_style("screen"):
        from matplotlib.figure import Figure

        with pytest.raises(FedtideError, match=r"mine\.png exists and is not a figure \(PNG\)"):
            save_figure(Figure(), tmp_path / "mine")
        assert [each.name for each in tmp_path.iterdir()] == ["mine.png"], "none is written if one cannot be"
        (tmp_path / "mine.png").unlink()
        assert len(save_figure(Figure(), tmp_path / "mine")) == len(save_figure(Figure(), tmp_path / "mine")) == 3


@pytest.mark.parametrize("name", ["paper", "worlds", "skies", "league", "oracle", "external"])
def test_a_page_of_results_replaces_nothing_but_itself(name: str, tmp_path: Path) -> None:
    """The pages in the repository are recognised; a user's notes of the same name are kept."""
    kind = rf"# .*fedtide {name}".encode()
    path = tmp_path / f"{name}.md"
    path.write_bytes((ROOT / "docs" / f"{name}.md").read_bytes())
    write_output(path, b"# anew", kind, "a page of ours")
    assert path.read_bytes() == b"# anew"
    path.write_text("# My notes\n")
    with pytest.raises(FedtideError, match="is not a page of ours"):
        write_output(path, b"", kind, "a page of ours")
    assert path.read_text() == "# My notes\n"
