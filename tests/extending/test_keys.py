"""What a part may ask a run for: listed completely, and refused in one line if there is no such key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtide import config
from fedtide.cli.parts import key_rows
from fedtide.core.yaml12 import yaml_in_line
from fedtide.engine import making, pace, system
from fedtide.errors import FedtideError
from fedtide.parts.kinds import KINDS, NAMED
from helpers import ROOT, small, small_dataset

PAGE = ROOT / "docs" / "extending.md"
CHANNEL = """
from typing import Annotated
import numpy as np
from fedtide import arg

class Mine:
    def __init__(self, x: Annotated[float, arg("x", key={key!r})] = 1.0):
        self.x = x
    def __call__(self, seed, tick, time, device):
        return np.ones(len(device))
"""


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("radio.snr", r"is not a key of an experiment: did you mean radio\.snr_db\?"),
        ("zzz.qqq", r"is not a key of an experiment: see `fedtide run --keys` and `fedtide parts channel`"),
        ("radio", "is not a key of an experiment"),
        ("run.cover", r"did you mean run\.coverage\?"),
        ("fleet.samples_per_job", "is filled in for a duration only; ask for another key"),
    ],
)
def test_a_key_that_does_not_exist_is_one_line(tmp_path: Path, key: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(CHANNEL.format(key=key))
    wanted = small({"radio": {"channel": f"{tmp_path / 'mine.py'}:Mine"}})
    with pytest.raises(FedtideError, match=says) as caught:
        system.build(wanted, dataset=small_dataset())
    assert "\n" not in str(caught.value)
    assert key in str(caught.value)


ASKING = """
from typing import Annotated
from fedtide import arg

class Mine:
    def __init__(self, {made_with}x: Annotated[float, arg("x", key="radio.snr_bd")] = 1.0):
        pass
"""
MODEL = """
from typing import Annotated
from fedtide import arg

def Mine(input_shape, num_labels, x: Annotated[float, arg("x", key="radio.snr_bd")] = 1.0):
    pass
"""


@pytest.mark.parametrize("kind", NAMED)
def test_whatever_asks_is_told_what_it_may_have_meant(tmp_path: Path, kind: str) -> None:
    made_with = "".join(f"{name}, " for name in KINDS[kind].made_with)
    (tmp_path / "mine.py").write_text(MODEL if kind == "model" else ASKING.format(made_with=made_with))
    reacting = {"fleet.concurrency": 2} if kind == "selector" else {}  # nobody else waits for a free place
    wanted = small({KINDS[kind].key: f"{tmp_path / 'mine.py'}:Mine"}, reacting)
    with pytest.raises(FedtideError, match=r"asks for radio\.snr_bd .*: did you mean radio\.snr_db\?") as caught:
        system.make_trainer(system.build(wanted))
    assert str(caught.value).startswith(f"{kind}=")


def key_line(key: str, row: dict[str, Any]) -> str:
    """Return the line of the page about a key."""
    default = "null" if row["default"] is None else yaml_in_line(row["default"])
    return f"| `{key}` | `{default}` | {row['about'].replace('|', chr(92) + '|')} |"


def test_every_key_of_an_experiment_is_on_the_page() -> None:
    """Replace the table by what this prints if it fails."""
    table = "\n".join(key_line(key, row) for key, row in key_rows().items())
    assert table in PAGE.read_text(), f"\n{table}"


def test_what_runs_fill_in_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `fedtide parts` and the page list is what a run offers, no more and no less."""
    offered: dict[str, set[str]] = {}
    part = making.experiment_part

    def noted(experiment: Any, kind: str, **more: Any) -> Any:
        offered.setdefault(kind, set()).update(name.replace("_", ".", 1) for name in more)
        return part(experiment, kind, **more)

    for module in (making, pace):
        monkeypatch.setattr(module, "experiment_part", noted)
    made = system.build(small({"fleet": {"concurrency": 2}}))  # so that a selector is made, too
    system.make_trainer(made)
    for kind, known in KINDS.items():
        given = {f"run.{name}" for name in known.made_with}
        assert offered.get(kind, set()) - given == {*known.fills}, kind
    assert not {key for known in KINDS.values() for key in known.fills} & {*config.all_keys()}
    page = PAGE.read_text()
    for kind, known in KINDS.items():
        for key, about in known.fills.items():
            assert f"| {kind} | `{key}` | {about} |" in page
