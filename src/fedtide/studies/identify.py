"""On which instruction path older results were made: their first evaluations, done again, agree to the last digit or not."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedtide import config
from fedtide.errors import FedtideError
from fedtide.runs import UNKNOWN_PATH, RoundRecord, names_files
from fedtide.studies.run import dataset_of, trained_on
from fedtide.studies.store import RunResult, Store, read_tree
from fedtide.studies.stored_format import RESULT_FORMAT, pack_result

_EVALUATIONS = 3
_NATIVE_PATHS = ("avx512", "avx2", "baseline")  # all that the kernel has for x86_64
# Other paths round otherwise, which moves the first loss by 1e-5 at most; what is further off is another run.
_NEAR = 1e-2
# What a result may depend on, and was not written down.
_NOT_KNOWN = ("python", "machine", "fedtide", "numpy", "scipy", "torch", "files", "commit", "date")


class _EnoughError(Exception):
    """Ends a run that has shown what it was run for."""


class _PathFound(NamedTuple):
    """What came out for one file: the path, or None, and how it was found or why not."""

    file: Path
    isa: str | None
    how: str


def of_unknown_path(store: Store) -> list[Path]:
    """Return the files of a store whose native results do not say on which path they were made."""
    files = [file for files in store.all_files().values() for file in files]
    return [file for file in files if store.read(file).path == UNKNOWN_PATH]


def identify(
    store: Store, files: Sequence[Path], paths: Sequence[str], replay: Callable[[RunResult, str], str] | None = None
) -> Iterator[_PathFound]:
    """Find out the path of each file's result, and write it down there; its numbers stay as they are."""
    for file in files:
        result = store.read(file)
        try:
            if names_files(config.experiment(result.experiment)):
                raise FedtideError("it names a policy file, which may have changed since")
            found = _PathFound(file, *_judge({path: (replay or replayed)(result, path) for path in paths}))
        except FedtideError as error:  # no data here, or a policy file that is gone
            found = _PathFound(file, None, str(error))
        if found.isa is not None:
            tree: dict[str, Any] = {**read_tree(file), "format": RESULT_FORMAT}
            tree["provenance"] = dict.fromkeys(_NOT_KNOWN) | {"isa": found.isa, "isa_found_by": found.how}
            store.write(file, pack_result(tree))
        yield found


def _judge(answers: dict[str, str]) -> tuple[str | None, str]:
    """Conclude from what each path's replay said: `same`, `near` or `far`."""
    same = [path for path, answer in answers.items() if answer == "same"]
    others = [path for path in _NATIVE_PATHS if path not in answers]
    if len(same) == 1:
        return same[0], f"replay of {_EVALUATIONS} evaluations"
    if same:
        return None, f"{' and '.join(same)} give the same"
    if "far" in answers.values():
        return None, "other numbers on every path: another data set or version?"
    if len(others) == 1 and len(answers) == len(_NATIVE_PATHS) - 1:
        return others[0], f"neither {' nor '.join(answers)}, by replay"
    return None, f"not {', not '.join(answers)}"


def replayed(result: RunResult, path: str) -> str:
    """Do the first evaluations of a run again; say whether they are the `same`, `near` (another path) or `far` off."""
    from fedtide.engine.simulate import simulate

    experiment = config.experiment(result.experiment)
    wanted = list(zip(*(result.columns[name] for name in ("index", "test_accuracy", "test_loss")), strict=True))
    seen: list[str] = []

    def compare(record: RoundRecord, _: int) -> None:
        if record.test_accuracy is None:
            return
        index, accuracy, loss = wanted[len(seen)]
        near = record.index == index and abs((record.test_loss or 0.0) - (loss or 0.0)) <= _NEAR * abs(loss or 1.0)
        same = near and (record.test_accuracy, record.test_loss) == (accuracy, loss)
        seen.append("same" if same else "near" if near else "far")
        if not same or len(seen) >= min(_EVALUATIONS, len(wanted)):
            raise _EnoughError

    with trained_on(path), contextlib.suppress(_EnoughError):
        simulate(experiment, dataset=dataset_of(experiment), on_round=compare)
    return seen[-1] if seen else "far"


class _ResultSource(NamedTuple):
    """Results of one origin, and how many there are."""

    path: str
    found_by: str | None
    version: str | None
    commit: str | None
    results: int = 0


def sources(store: Store) -> list[_ResultSource]:
    """Return of which origins the results of a store are, the most frequent first."""
    counts: Counter[_ResultSource] = Counter()
    for file in (file for files in store.all_files().values() for file in files):
        result = store.read(file)
        known = result.provenance or {}
        counts[_ResultSource(result.path, known.get("isa_found_by"), known.get("fedtide"), known.get("commit"))] += 1
    return [source._replace(results=count) for source, count in counts.most_common()]
