"""The page of performance: the peers' job is the experiment's own, and the table is what was stored."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedtide import config
from fedtide.engine.system import build, parameter_count

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import modules of benchmarks/peers as its scripts do, by their bare names."""
    monkeypatch.syspath_prepend(str(PEERS))
    monkeypatch.delenv("FEDTIDE_PEERS_ROUNDS", raising=False)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(PEERS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_peers_job_is_the_papers_experiment(peers: Any) -> None:
    job = peers("job").JOB
    for experiment in (config.experiment({}), peers("export").experiment()):
        assert job.num_devices == experiment.fleet.num_devices
        assert job.clients_per_round == experiment.policy.limit
        assert job.batch_size == experiment.learning.batch_size
        assert job.local_epochs == experiment.learning.local_epochs
        assert job.learning_rate == experiment.learning.learning_rate
        assert (experiment.part("data").name, experiment.data.partition.name) == ("mnist", "shards")
    assert peers("export").experiment().learning.proximal == 0.0
    assert job.samples_per_round == 36_000


def test_what_is_exported_is_what_fedtide_trains_on(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, export = peers("job"), peers("export")
    system = build(export.experiment())
    assert parameter_count(system) == job.JOB.num_parameters == 21_840
    monkeypatch.setenv(job.FILE, str(tmp_path / "job.npz"))
    job.save(tmp_path / "job.npz", export.exported(system))
    data = job.load()
    assert data.held.shape == (job.JOB.num_devices, job.JOB.samples_per_client)
    for held, mine in zip(data.held, system.fleet.partition, strict=True):  # type: ignore[call-overload]
        assert held.tolist() == mine.tolist()
    assert (data.images == system.dataset.train.floats()).all()
    assert (data.labels == system.dataset.train.labels).all()


def test_the_peers_model_has_the_papers_layers(peers: Any) -> None:
    pytest.importorskip("torch")
    from fedtide.learning.torch import build_module

    module, ours = peers("network").CNN(), build_module(build(peers("export").experiment()).model)
    shapes = [tuple(each.shape) for each in module.parameters()]
    assert shapes == [tuple(each.shape) for each in ours.parameters()]
    assert sum(each.numel() for each in module.parameters()) == 21_840
    kinds = [type(each).__name__.replace("SeededDropout", "Dropout").replace("Dropout2d", "Dropout") for each in module]
    assert kinds == [type(each).__name__.replace("SeededDropout", "Dropout") for each in ours]


def test_the_table_is_what_was_stored(peers: Any) -> None:
    page = peers("peers_page")
    stored = json.loads(page.STORED.read_text())
    text = page.PAGE.read_text()
    assert page.rewritten(text, stored) == text
    assert {row["peer"] for row in stored["rows"]} == set(page.PEERS)
    assert stored["job"] == {**peers("job").described(), "rounds": stored["job"]["rounds"]}


def test_the_table_has_ratios_and_reasons(peers: Any) -> None:
    page = peers("peers_page")
    rows = [
        {
            "peer": "fedtide-whole",
            "version": "1",
            "samples": 72_000,
            "seconds": 2.0,
            "processor_seconds": 4.0,
            "accuracy": 0.5,
        },
        {
            "peer": "flower",
            "version": "2",
            "samples": 36_000,
            "seconds": 5.0,
            "processor_seconds": 6.0,
            "accuracy": 0.5,
        },
        {"peer": "flgo", "version": "3", "failed": "no wheel"},
    ]
    job = {"samples_per_round": 36_000, "cores": 2, "rounds": 2}
    machine = {"isa": "avx2", "python": "3"}
    stored = {"job": job, "machine": machine, "busy": False, "threads": 2, "passes": 1, "rows": rows}
    lines = page.table(stored).splitlines()
    assert [cell.strip() for cell in lines[-2].split("|")[5:-1]] == ["7,200", "5.00", "5.0", "6.00", "3.0", "0.50"]
    assert "not measured: no wheel" in lines[-1]
    assert len({line.count("|") for line in lines[2:]}) == 1  # as many cells in every row


def test_growth_curves_are_drawn_if_they_were_measured(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(PEERS.parent))
    draw = importlib.import_module("draw_performance")
    draw.main(tmp_path / "scale.json", tmp_path / "scale.png")
    assert "is not there" in capsys.readouterr().out
    rows = [
        {"what": what, "num_devices": n, "build_seconds": n / 1e5, "seconds_per_aggregation": 0.01, "peak_mb": 90.0}
        for what in ("random", "per arrival")
        for n in (100_000, 1000)
    ]
    rows[0]["bytes_per_aggregation"] = None
    (tmp_path / "scale.json").write_text(json.dumps(rows))
    assert draw.curves(rows, "build_seconds")["random"] == [(1000.0, 0.01), (100_000.0, 1.0)]
    draw.main(tmp_path / "scale.json", tmp_path / "scale.png")
    assert (tmp_path / "scale.png").read_bytes()[:4] == b"\x89PNG"
