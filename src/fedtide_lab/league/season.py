"""A season from its store: what is still to run, stage by stage, and the tables of what has been played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedtide.studies.spec import Study
from fedtide.studies.store import Store
from fedtide_lab.league.methods import METHODS, PAPER_METHOD, REFERENCE
from fedtide_lab.league.ranking import Runs, Standings, standings
from fedtide_lab.league.tune import CONFIRMING, RANKING_SEEDS, Arena, Entry, joined, playing, results, tuned, tuning


def entries(arena: Arena, store: Store) -> list[Entry]:
    """Return every method that has been tuned in a world as it plays there, and last the joined one."""
    found = tuned(arena, list(METHODS.values()), store)
    together = joined(found)
    return [*found, *tuned(arena, [together], store)] if together else found


def stages(arenas: Sequence[Arena], store: Store) -> Iterator[tuple[str, list[Study]]]:
    """Yield what to run, a stage at a time; what a stage has depends on the results of those before it."""
    yield "tuning", [tuning(arena, list(METHODS.values())) for arena in arenas]
    together = [(arena, joined(tuned(arena, list(METHODS.values()), store))) for arena in arenas]
    yield "tuning the joined", [tuning(arena, [method]) for arena, method in together if method]
    yield "season", [playing(arena, entries(arena, store), range(RANKING_SEEDS)) for arena in arenas]
    asked: set[str] = set()
    while True:  # a winner that diverges there gives way to the next
        finals = [playing(arena, _finalists(arena, store), CONFIRMING) for arena in arenas]
        names = {run.name for part in finals for run in part.runs}
        if names <= asked:
            return
        asked |= names
        yield "fresh seeds", finals


def played(arena: Arena, store: Store) -> tuple[Standings, Runs] | None:
    """Return a world's table and the runs behind it; None if nobody has played there."""
    found = entries(arena, store)
    runs = results(arena, found, store)
    made = standings(arena, found, runs)
    return (made, runs) if made else None


def _finalists(arena: Arena, store: Store) -> list[Entry]:
    """Return who meets again on fresh seeds: the winner and those ranked before it, of packets too, paper and reference."""
    found = played(arena, store)
    if found is None:
        return []
    last = (found[0].digital or found[0].winner).rank
    return [row.entry for row in found[0].rows if row.rank <= last or row.name in (PAPER_METHOD, REFERENCE)]
