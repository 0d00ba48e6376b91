"""Whole runs over every radio: they resume to the same bytes, lose what they should, and know their files by content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.engine.system import System, build
from fedtide.errors import RunFolderError
from fedtide.radio import propagation
from fedtide.radio.channel import Jakes
from fedtide.runs import RoundRecord, policy_files, read_rounds
from fedtide.runs.manifest import run_identity
from fedtide.types import Floats, Ints
from helpers import FakeTrainer, run, small, small_dataset

RADIOS: dict[str, dict[str, Any]] = {
    "rician": {"channel": {"name": "rician", "k_factor": 6.0}},
    "nakagami": {"channel": "nakagami"},
    "walking": {"channel": "jakes", "coverage": {"name": "uma", "speed": 1.5}},
    "macro": {"coverage": {"name": "log_distance", "radius": 400.0}, "csi": {"name": "noisy", "margin_db": 1.0}},
    "street": {"channel": {"name": "jakes", "k_factor": 2.0}, "coverage": "umi", "csi": "pilots"},
    "losses": {"csi": {"name": "packet_error", "interference": 10.0}},
    "trace": {"channel": {"name": "trace", "path": "uplinks.csv"}, "csi": {"name": "noisy", "error": 0.5}},
    "placed": {"coverage": {"name": "log_distance", "positions": "spots.csv", "speed": 1.0}},
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{time},{1 + k + time}" for k in range(6) for time in range(3)]
    Path("uplinks.csv").write_text("\n".join(["device,time,value", *rows]))
    Path("spots.csv").write_text("\n".join(["device,x,y", *(f"{k},{50 * k + 50},10" for k in range(6))]))


def as_new() -> None:
    """Forget what is kept between ticks, as another process would."""
    for kept in (propagation._of_everyone, propagation._waves):
        kept.cache_clear()


def _stop(record: RoundRecord, total: int) -> None:
    if record.index == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("radio", RADIOS.values(), ids=RADIOS)
def test_resumes_to_the_same_bytes(radio: dict[str, Any]) -> None:
    experiment = small(radio=radio)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, Path("run"), on_round=_stop)
    as_new()
    run(experiment, Path("run"))
    run(experiment, Path("whole"))
    for name in ("rounds.jsonl", "model.npy"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()
    capacity = [each for record in read_rounds(Path("whole")) for each in record.capacity]
    assert len(set(capacity)) > 3


@pytest.mark.parametrize(("radio", "losing"), [("rician", False), ("losses", True), ("trace", True)])
def test_what_is_lost(radio: str, losing: bool) -> None:
    run(small(radio={**RADIOS[radio], "num_symbols": 60}), Path("run"))  # packets fill their grants
    assert any(record.lost for record in read_rounds(Path("run"))) == losing


@pytest.mark.parametrize(("radio", "file"), [("trace", "uplinks.csv"), ("placed", "spots.csv")])
def test_files_belong_to_a_run_by_content(radio: str, file: str) -> None:
    experiment = small(radio=RADIOS[radio])
    before = policy_files(experiment)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, Path("run"), on_round=_stop)
    Path(file).write_text(Path(file).read_text().replace("50", "60").replace("0,0,1", "0,0,9"))
    assert policy_files(experiment) != before
    with pytest.raises(RunFolderError, match=file):
        run(experiment, Path("run"))


def test_a_cell_reaches_the_channel() -> None:
    """Every fading channel is received as strongly as the coverage says; rayleigh keeps its gains."""
    device = np.arange(6)
    for channel in ("rayleigh", "rician", "nakagami", "jakes", "gilbert_elliott"):
        made = [
            build(
                small(radio={"channel": channel, "coverage": {"name": "umi", "power_dbm": power}}),
                dataset=small_dataset(),
            )
            for power in (10.0, 20.0)
        ]
        weak, strong = (2 ** each.channel(0, 1, 0.25, device).capacity - 1 for each in made)
        np.testing.assert_allclose(strong, 10 * weak, rtol=1e-6)


def _flat(seed: int, device: Ints, time: Floats) -> Floats:
    return np.full(len(device), 20.0)


def _handed(channel: Any) -> System:
    return build(small(radio=RADIOS["rician"]), dataset=small_dataset())._replace(channel=channel)


def test_a_users_part_inside_ours_is_known_by_name() -> None:
    """Where it is in memory differs from process to process: such a run could never be resumed."""
    system = _handed(Jakes(6, coverage=_flat))
    assert run_identity(system, FakeTrainer())["channel"].endswith("test_radios._flat)")


def test_ours_with_other_arguments_in_the_place_of_those_named() -> None:
    made = [
        build(small(radio={"channel": {"name": "jakes", "doppler": each}}), dataset=small_dataset()) for each in (3, 4)
    ]
    assert "channel" not in run_identity(made[0], FakeTrainer())
    assert "doppler=4" in run_identity(made[0]._replace(channel=made[1].channel), FakeTrainer())["channel"]
