"""Many runs from Python: a study or a comparison, and what came out, paired over the seeds."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.forms import shown
from fedtide.core.guard import callback
from fedtide.errors import FedtideError
from fedtide.front.studied import StudyResult
from fedtide.studies import spec
from fedtide.studies.result import Store
from fedtide.studies.spec import Study
from fedtide.studies.table import by_label
from fedtide.studies.work import Failure, Outcome, run_study

SEEDS = 5  # unless told otherwise
Given = Experiment | Mapping[str, Any] | Path | str  # what an experiment may be given as
OnDone = Callable[[Outcome], None]


def study(
    base: Given = {},  # noqa: B006  # read only
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int | Iterable[int] | None = None,
    name: str = "study",
    store: Path | str | None = None,
    workers: int = 1,
    on_done: OnDone | None = None,
) -> StudyResult:
    """Run what is missing of a study; return everything that it has, paired over the seeds.

    base: an experiment (or what fedtide.experiment makes one of: a mapping, a file), or the path of a study file, which says
    all of axes, variants, seeds and name itself. axes: dotted keys, each with its values; variants: names, each with the keys
    that differ; both are crossed. seeds: how many, from 0 on, or which. store: a folder in which finished runs are kept and
    never repeated; None: nothing is kept on disk. workers: processes; 1: this one. on_done is called with every finished run.
    """
    path = base if isinstance(base, (str, Path)) and "=" not in str(base) else None
    if path is not None and _is_study(Path(path)):
        if axes is not None or variants is not None or seeds is not None:
            raise FedtideError(f"{path} is a study file with axes, variants and seeds of its own: change them there")
        made = spec.read(Path(path))
    else:
        for what, each in (("axes", axes), ("variants", variants)):
            if each is not None and not isinstance(each, Mapping):
                raise FedtideError(f"{what}={shown(each)} is no mapping: give names, each with what belongs to it")
        listed = {axis: _listed(values) for axis, values in (axes or {}).items()}
        made = spec.cross(name, _base(base), listed, variants or {}, _seeds(seeds))
    return _done(made, store, workers, on_done)


def compare(
    experiments: Mapping[str, Given],
    *,
    seeds: int | Iterable[int] = SEEDS,
    base: Given | None = None,
    name: str = "comparison",
    store: Path | str | None = None,
    workers: int = 1,
    on_done: OnDone | None = None,
) -> StudyResult:
    """Run named experiments on the same seeds; return their differences from the first one, seed by seed.

    Runs of one seed share data, fading, durations and batches, so what differs is what was changed. experiments: names, each
    with an experiment, a file, or the keys that differ from `base`. All else as in `fedtide.study`.
    """
    if not isinstance(experiments, Mapping) or not experiments:
        raise FedtideError(
            f"{shown(experiments)} names no experiments: give a mapping such as {{'random': e, 'proposed': f}}"
        )
    variants = {label: _base(each) for label, each in experiments.items()}
    for label, each in variants.items():
        if isinstance(experiments[label], Mapping) and "seed" in each:
            raise FedtideError(f"{shown(label)} gives a seed, which comparisons share; say seeds=[1, 2] or seeds=5")
    made = spec.side_by_side(name, variants, _seeds(seeds), None if base is None else _base(base))
    return _done(made, store, workers, on_done)


def _is_study(path: Path) -> bool:
    """Say whether a file is a study's; raise if there is none."""
    tree = config.read_file(path)
    return bool(tree.keys() & {"axes", "variants"}) or tree.keys() >= {"version", "name"}


def _base(given: Given) -> Any:
    """Return as it is laid under keys: an experiment as it is, all else as a nested mapping, a file's read once."""
    if isinstance(given, Experiment):
        return given
    if isinstance(given, (str, Path)):
        return config.read_words([str(given)])
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return config.nest(given)
    return config.experiment(given)  # raises, and says why


def _listed(values: Any) -> Any:
    """Return a range, an array or the like as a list; all else as it is, to be refused with the reason."""
    return list(values) if isinstance(values, (range, tuple, np.ndarray)) else values


def _seeds(seeds: Any) -> Any:
    seeds = _listed(SEEDS if seeds is None else seeds)
    return seeds.tolist() if isinstance(seeds, np.generic) else seeds


def _done(made: Study, store: Any, workers: Any, on_done: OnDone | None) -> StudyResult:
    """Run what is missing, and read everything that is there into memory."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise FedtideError(f"workers={shown(workers)} must be a whole number of at least 1")
    if store is not None and (not isinstance(store, (str, Path)) or not str(store) or "\0" in str(store)):
        raise FedtideError(f"store={shown(store)} names no folder: give a path, or None to keep nothing")
    how: dict[str, Any] = {"workers": workers, "backend": "local"} if workers > 1 else {"backend": "here"}
    with tempfile.TemporaryDirectory(prefix="fedtide-", ignore_cleanup_errors=True) as aside:
        kept = Store(Path(aside if store is None else store))
        failures = run_study(made, kept, **how, on_done=callback("on_done", on_done) or (lambda _: None))
        results = by_label(made, kept)
    _tell(made, failures, store)
    return StudyResult(made, results, tuple(failures))


def _tell(made: Study, failures: Sequence[Failure], store: Any) -> None:
    """Raise if every run failed; warn if some did."""
    if not failures:
        return
    first = failures[0]
    text = f"{first.run.label}, seed {first.run.experiment.seed}: {first.reason}"
    if len(failures) == len({run.name for run in made.runs}):
        error = FedtideError(text if len(failures) == 1 else f"all {len(failures)} runs failed, the first one, {text}")
        error.exit_code = first.exit_code
        raise error
    again = "call again to try only these" if store is not None else "name a store to keep the others"
    warnings.warn(f"{len(failures)} of {len(made.runs)} runs failed ({again}), the first one, {text}", stacklevel=4)
