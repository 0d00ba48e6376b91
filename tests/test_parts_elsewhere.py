"""Parts where one does not expect them: in a script, by default, beside a file, between two keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.deploy.settings import check_deployment_timeline
from fedtide.engine.system import build
from fedtide.errors import FedtideError, RunFolderError
from fedtide.radio.channel import Rayleigh
from fedtide.runs import policy_files
from fedtide.types import Link, Shares
from helpers import FakeTrainer, run, small, small_dataset

SCRIPT = """
import sys
import numpy as np
import fedtide

def first(candidates, limit, rng):
    return np.arange(min(limit, len(candidates.device)))

def stop(record, total):
    if record.index == 4 and len(sys.argv) > 1:
        raise KeyboardInterrupt

if __name__ == "__main__":
    fedtide.simulate(
        {"data": {"name": "synthetic", "num_train": 200, "num_test": 20, "num_shards": 20}, "fleet": {"num_devices": 5},
         "timeline": {"horizon": 2.0}, "policy": {"scheduler": first, "limit": 2}, "learning": {"model": "softmax"}},
        "run", on_round=stop)
"""


def test_a_run_begun_by_a_script_with_its_own_function_is_resumed_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    stopped = subprocess.run([sys.executable, "script.py", "stop"], capture_output=True, text=True)
    assert "KeyboardInterrupt" in stopped.stderr
    done = subprocess.run([sys.executable, "-m", "fedtide", "resume", "run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.npy").exists()


def test_a_file_that_is_a_parameters_default_belongs_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "from pathlib import Path\nimport numpy as np\n"
        "def flat(seed, tick, time, device, table: Path = Path('table.txt')):\n"
        "    return np.full(len(device), float(table.read_text()))\n"
    )
    Path("table.txt").write_text("2.0")
    wanted = small({"radio": {"channel": "own.py:flat"}})
    run(wanted, tmp_path / "run", on_round=None)
    before = policy_files(wanted)
    assert set(before) == {"own.py:flat", "table.txt"}
    Path("table.txt").write_text("3.0")
    assert policy_files(wanted) != before
    (tmp_path / "run" / "model.npy").unlink()
    with pytest.raises(RunFolderError, match=r"another version of table\.txt"):
        run(wanted, tmp_path / "run")


def test_what_fits_its_link_is_not_lost() -> None:
    def believed(seed: int, tick: int, time: float, device: Any) -> Link:
        return Link(np.full(len(device), 0.9), np.ones(len(device)))

    def half(capacity: Any, num_symbols: float) -> Shares:
        symbols = np.full(len(capacity), num_symbols / len(capacity))
        return Shares(symbols, 0.5 * symbols * capacity)

    experiment = small()
    system = build(experiment, dataset=small_dataset())
    careful = system._replace(channel=believed, allocation=half)
    assert not any(each.lost for each in fedtide.simulate(experiment, system=careful, trainer=FakeTrainer(195)).rounds)
    bold = system._replace(channel=believed)
    assert all(
        each.lost == each.picked for each in fedtide.simulate(experiment, system=bold, trainer=FakeTrainer(195)).rounds
    )


def test_a_channel_in_the_place_of_the_named_one_belongs_to_the_run(tmp_path: Path) -> None:
    experiment = small()
    system = build(experiment, dataset=small_dataset())
    other = system._replace(channel=Rayleigh(6, snr_db=40.0))
    fedtide.simulate(experiment, tmp_path / "run", system=other, trainer=FakeTrainer(195))
    (tmp_path / "run" / "model.npy").unlink()
    with pytest.raises(RunFolderError, match=r"channel is .* there and"):
        fedtide.simulate(experiment, tmp_path / "run", system=system, trainer=FakeTrainer(195))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["policy.scheduler==x"], "policy.scheduler='=x' is not known"),
        (["fleet.duration.min_duration=3"], "it has a key of its own, fleet.min_duration"),
    ],
)
def test_refused(words: list[str], says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        build(config.experiment(config.read_words(["data.name=synthetic", *words])))


def test_a_deployments_clock_goes_by_its_key() -> None:
    with pytest.raises(FedtideError, match=r"a deployment goes by timeline\.period"):
        check_deployment_timeline(config.experiment({"timeline": {"name": {"name": "buffered", "waits": False}}}))


def test_a_mapping_over_a_file_that_has_arguments(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("policy: {aggregator: {name: mix, mixing: 0.9}}\n")
    words = [str(tmp_path / "e.yaml"), "policy.aggregator={name: mix, mixing: 0.3}"]
    assert config.experiment(config.read_words(words)).policy.aggregator.args == {"mixing": 0.3}


def test_a_tracker_beside_the_experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "watch.py").write_text("def watch(record):\n    pass\n")
    (tmp_path / "there" / "e.yaml").write_text("tracker: [watch.py:watch]\n")
    monkeypatch.chdir(tmp_path)
    run(small({"tracker": config.experiment(Path("there/e.yaml")).tracker}))


def test_a_trainer_cannot_write_to_the_models_that_it_starts_from() -> None:
    class Rash(FakeTrainer):
        def train(self, jobs: Any) -> Any:
            for job in jobs:
                with pytest.raises(ValueError, match="read-only"):
                    job.start[:] = 0.0
                with pytest.raises(ValueError, match="read-only"):
                    job.indices[:] = 0
            return super().train(jobs)

    assert run(small(), trainer=Rash()).rounds == run(small()).rounds
