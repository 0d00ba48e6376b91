"""What commands print fits the terminal, with its labels whole; the curve has honest axes; folders have names to look for."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from fedtide import config
from fedtide.cli import progress as shown
from fedtide.cli.console import out
from fedtide.cli.main import app
from fedtide.cli.progress import _folder_name, default_folder
from fedtide.report.summary import chance_accuracy
from fedtide.report.terminal import TableColumn, terminal_curve, terminal_list, terminal_pairs
from helpers import EXAMPLES

SMALL = {
    "data": {"name": "synthetic", "num_train": 200, "num_test": 50, "num_shards": 20},
    "fleet": {"num_devices": 6},
    "policy": {"limit": 2},
    "timeline": {"horizon": 2},
    "learning": {"model": "softmax", "local_epochs": 1},
}
WIDTHS = (60, 80, 120)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Return a folder with a finished run r, a study and its results."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "e.yaml").write_text(yaml.safe_dump(SMALL))
    axes = {"policy.scheduler": ["random", "proposed"], "data.partition": ["shards", "iid"]}
    study = {"version": 1, "name": "a study with a name", "base": SMALL, "axes": axes, "seeds": 2}
    (folder / "s.yaml").write_text(yaml.safe_dump(study))
    for words in (["run", "e.yaml", "-o", "r"], ["study", "run", "s.yaml", "-s", "res", "--backend", "here"]):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
    return folder


# A command, and what stands in its lines whole at every width.
COMMANDS = {
    "show r": ("final test accuracy", "kept share r/d, mean", "not reached", "samples wasted", "1.00 ┤", "0.10 ┤"),
    "plan e.yaml --ticks 3": ("label variance proved minimal", "ages of scheduled devices", "variance", "granted"),
    "study show s.yaml -s res": ("scheduler=proposed", "seeds", "mean", "verdict"),
    "study show s.yaml -s res -m time_to_0.99": ("not reached", "scheduler=proposed"),
    "study paths res": ("instruction", "version"),
    "run --keys": ("data.partition", "learning.training_loss", "meaning"),
    "theory --keys": ("num_levels", "meaning"),
    "scenario list": ("iot_battery", "cross_silo"),
    "parts": ("best_of_random_subsets", "proposed"),
    "parts scheduler": ("best_of_random_subsets", "parameter", "meaning"),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", COMMANDS)
def test_tables_fit_and_labels_are_whole(place, monkeypatch, words, width):
    monkeypatch.chdir(place)
    monkeypatch.setattr(out, "width", width)  # which it has from COLUMNS when it is made
    found = CliRunner().invoke(app, words.split(), env={"COLUMNS": str(width)})
    assert found.exit_code == 0, found.output
    lines = [line for line in found.stdout.splitlines() if not line.startswith("figure:")]  # a path is for copying
    assert max(map(len, lines)) <= width
    assert "…" not in found.stdout
    for label in COMMANDS[words]:
        assert any(label in line for line in lines), label


def rendered(what, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


COLUMNS = (
    TableColumn("name", wraps=True),
    TableColumn("count", right=True),
    TableColumn("how it was found", wraps=True),
)
ROW = ("[bold]contradicted[/] claim", "1,234", "by looking at it long enough")


@pytest.mark.parametrize("width", range(20, 100))
def test_a_table_breaks_between_words_only(width):
    lines = rendered(terminal_list(COLUMNS, [ROW], width, "a title"), width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert set(words) >= {"contradicted", "claim", "1,234", "looking", "enough", "title"}
    beside = any("count" in line and "name" in line for line in lines)
    assert beside == (width >= 39)  # 16 + 5 + 16 characters, two gaps; below that one under the other


@pytest.mark.parametrize("word", ["x" * 10_000, "</script>[red]", "שלום " * 30])
def test_a_hostile_label_stays_in_the_room(word):
    from rich.markup import escape

    for made in (terminal_list(COLUMNS, [(escape(word), "1", "2")], 60), terminal_pairs({"a": word}, 60)):
        assert max(map(len, rendered(made, 60))) <= 60


def test_the_curve_is_drawn_on_0_to_1_with_a_chance_line():
    lines = str(terminal_curve([0.0, 4.0], [0.05, 0.05], 40, chance=0.3)).splitlines()
    assert lines[0].startswith(" 1.00 ┤")
    assert lines[7] == " 0.30 ┤" + "┄" * 33  # the third row from below ends at 0.3
    assert lines[9] == "      │" + "▄" * 33  # half of the lowest tenth
    assert lines[10] == " 0.00 └" + "─" * 33
    assert lines[11].split() == ["0", "4"]
    assert "chance, 0.3" in lines[-1]
    assert all(each.strip("│ ") == "" for each in lines[1:7])
    above = terminal_curve([0.0, 4.0], [0.9, 0.9], 40, chance=0.3)
    assert str(above).splitlines()[7] == " 0.30 ┤" + "┄" * 33  # seen through the columns, which are as high as before
    assert sum(span.style == "cyan reverse" for span in above.spans) == 33
    full = str(terminal_curve([0.0, 4.0], [1.0, 1.0], 40)).splitlines()
    assert full[0] == " 1.00 ┤" + "█" * 33
    assert "┄" not in "".join(full)
    assert "chance" not in "".join(full)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"name": "mnist"}, 0.1),
        ({"name": "cifar100"}, 0.01),
        ({"name": {"name": "cifar100", "labels": "coarse"}}, 0.05),
        ({"name": {"name": "npz", "file": "x.npz", "num_labels": 4}}, 0.25),
        ({"name": {"name": "npz", "file": "x.npz"}}, None),
    ],
)
def test_chance(data, wanted):
    assert chance_accuracy(config.Experiment.model_construct(data=config.Data(**data))) == wanted


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({}, "periodic-proposed-mnist-s0"),
        ({"framework": "fedavg", "seed": 3, "policy.scheduler": "random"}, "fedavg-random-mnist-s3"),
        ({"policy.scheduler": f"{EXAMPLES}/my_scheduler.py:freshest_first"}, "periodic-freshest_first-mnist-s0"),
    ],
)
def test_a_folder_is_named_by_what_a_person_would_look_for(keys, name):
    made = _folder_name(config.experiment(keys))
    assert re.fullmatch(re.escape(name) + "-[0-9a-f]{8}", made)


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("a/b.py:c", "c"),
        ("C:\\x\\y", "y"),
        ("p.m:..", "own"),
        ("f.py:a b<c>|?*", "a_b_c"),
        ("ü:é" + "x" * 300, "x" * 40),
    ],
)
def test_a_folder_name_is_safe(part, word):
    base = config.Experiment()
    experiment = base.model_copy(update={"policy": base.policy.model_copy(update={"scheduler": config.Part(part)})})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "digest", lambda _: "0123456789abcdef")
        assert _folder_name(experiment) == f"periodic-{word}-mnist-s0-01234567"


def test_folders_of_the_old_naming_are_found(place, tmp_path):
    experiment = config.experiment(SMALL)
    new = tmp_path / _folder_name(experiment)
    assert default_folder(experiment, tmp_path) == new
    old = tmp_path / f"periodic-proposed-shards-{config.digest(experiment)[:8]}"
    old.mkdir()
    assert default_folder(experiment, tmp_path) == new  # an empty folder is no run
    shutil.copy(place / "r" / "experiment.yaml", old)
    assert default_folder(experiment, tmp_path) == old
    assert default_folder(config.experiment(SMALL, seed=1), tmp_path) != old
    new.mkdir()
    assert default_folder(experiment, tmp_path) == new


@pytest.mark.parametrize("width", [50, *WIDTHS])
@pytest.mark.parametrize("name", ["paper", "a study whose name is longer than its bar could ever be, " * 3])
def test_a_study_keeps_bar_and_times(monkeypatch, width, name):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(shown, "err", console)
    bar, task = shown._bar(name, 10.0, "{task.fields[done]}/{task.fields[runs]} runs", done=12, runs=100)
    bar.update(task, completed=10.0)
    (line,) = rendered(bar.get_renderable(), width)
    assert len(line) <= width
    assert re.search(r"━{8,} *12/100 runs 0:00:00 left [-0]:..:..$", line), line
    with shown.study_progress(name, 3, 1.0) as advance:
        advance(0.5, 1, "x" * 500)
    assert "xxx…" in console.file.getvalue()  # type: ignore[attr-defined]
