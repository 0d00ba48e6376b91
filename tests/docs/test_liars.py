"""The tables of lies and servers on docs/deploy.md are those of the stored runs, and the recommended server holds."""

from __future__ import annotations

import importlib.util
import sys
import warnings

import pytest

from helpers import ROOT

if importlib.util.find_spec("flwr") is None:
    pytest.skip("the cap on counts is the coordinator's, which needs Flower", allow_module_level=True)
sys.path.insert(0, str(ROOT / "benchmarks"))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Flower's own
    import liars  # type: ignore[import-not-found]

RUNS = liars.stored()


def test_every_run_is_stored() -> None:
    assert set(RUNS) >= set(liars.cells())


def test_the_page_has_the_stored_tables() -> None:
    assert f"<!-- liars -->\n{liars.tables(RUNS)}\n<!-- end of liars -->" in liars.PAGE.read_text()


@pytest.mark.parametrize("lie", [lie for lie in liars.LIES if lie != liars.UNCAPPED])
@pytest.mark.parametrize("count", [1, 2])
def test_the_recommended_server_is_close_to_an_honest_federation(lie: str, count: int) -> None:
    """Within 0.02 of the plain mean of honest devices with the dense codec, within 0.03 with the sparse one."""
    for codec, most in (("dense", 0.02), ("sparse", 0.03)):
        honest = liars.mean(RUNS, codec=codec, aggregator="mean", lie="none", liars=0)
        found = liars.mean(RUNS, codec=codec, aggregator=liars.RECOMMENDED, lie=lie, liars=count)
        assert found > honest - most


@pytest.mark.slow
def test_a_stored_run_is_what_the_benchmark_comes_to() -> None:
    cell = liars.Cell("dense", liars.RECOMMENDED, "shards", "colluding", 2, 0)
    assert abs(liars.accuracy(cell) - RUNS[cell]) < 0.02  # other instruction paths round otherwise
