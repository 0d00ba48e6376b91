"""The benchmark from its store: what is still to run, stage by stage, and the tables of what has run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedtide.studies import Store, Study
from fedtide_lab.league.methods import LEAGUE_METHODS, PAPER_METHOD, REFERENCE
from fedtide_lab.league.ranking import Runs, Standings, standings
from fedtide_lab.league.tune import CONFIRMING, RANKING_SEEDS, Entry, combine, ranking_study, tuned, tuning
from fedtide_lab.paper.figures import stored_runs
from fedtide_lab.worlds.studies import World

_MOST_SEEDS = 20  # seeds that are looked for: those that rank, and the fresh ones


def entries(world: World, store: Store) -> list[Entry]:
    """Return every method that has been tuned in a world as it runs there, and last the combined one."""
    found = tuned(world, list(LEAGUE_METHODS.values()), store)
    together = combine(found)
    return [*found, *tuned(world, [together], store)] if together else found


def stages(worlds: Sequence[World], store: Store) -> Iterator[tuple[str, list[Study]]]:
    """Yield what to run, a stage at a time; what a stage has depends on the results of those before it."""
    yield "tuning", [tuning(world, list(LEAGUE_METHODS.values())) for world in worlds]
    together = [(world, combine(tuned(world, list(LEAGUE_METHODS.values()), store))) for world in worlds]
    yield "tuning the combined", [tuning(world, [method]) for world, method in together if method]
    yield "ranking", [ranking_study(world, entries(world, store), range(RANKING_SEEDS)) for world in worlds]
    asked: set[str] = set()
    while True:  # a winner that diverges there gives way to the next
        finals = [ranking_study(world, _finalists(world, store), CONFIRMING) for world in worlds]
        names = {run.name for part in finals for run in part.runs}
        if names <= asked:
            return
        asked |= names
        yield "fresh seeds", finals


def benchmark(world: World, store: Store) -> tuple[Standings, Runs] | None:
    """Return a world's table and the runs behind it; None if there are no runs."""
    found = entries(world, store)
    runs = stored_runs(ranking_study(world, found, range(_MOST_SEEDS)), store)
    made = standings(world, found, runs)
    return (made, runs) if made else None


def _finalists(world: World, store: Store) -> list[Entry]:
    """Return who meets again on fresh seeds: the winner and those ranked before it, of packets too, paper and reference."""
    found = benchmark(world, store)
    if found is None:
        return []
    last = (found[0].digital or found[0].winner).rank
    return [row.entry for row in found[0].rows if row.rank <= last or row.name in (PAPER_METHOD, REFERENCE)]
