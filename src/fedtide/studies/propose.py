"""Candidates from a large space: one of Optuna's samplers proposes settings, and the best few of them go into a race."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.core.yaml12 import shown, yaml_in_line
from fedtide.errors import FedtideError
from fedtide.studies import spec
from fedtide.studies.metrics import metric_named, metric_sign
from fedtide.studies.run import run_study, study_backend
from fedtide.studies.spec import Given
from fedtide.studies.store import kept_results
from fedtide.studies.table import by_label

_SCREENING_SEEDS = (1000, 1001)  # of no race: who is chosen by its luck on a seed must not race on it


def propose_candidates(
    space: Mapping[str, Any],
    *,
    base: Given = {},  # noqa: B006  # read only
    trials: int = 40,
    keep: int = 8,
    seeds: int | Sequence[int] = _SCREENING_SEEDS,
    metric: str = "mean_accuracy",
    validation: float | None = 0.1,
    study: Any = None,
    name: str = "proposals",
    store: Path | str | None = None,
    workers: int = 1,
    backend: str | None = None,
    address: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Search a space of settings with Optuna and return the best ones as candidates for `fedtide.race`.

    Needs `pip install 'fedtide[optuna]'`.

    space: a mapping of keys to a list of choices, a range such as `{"low": 0.01, "high": 1.0, "log": True}` (whole numbers if
    both ends are, optionally with `step`), or an Optuna distribution. trials: number of settings to try, `workers` at a time.
    keep: number of settings to return. seeds: the seeds of the trials; none of them may be used in the race. study: your own
    Optuna study, with its sampler and storage; trials that it already has count. None: TPE, in memory. base, metric,
    validation, name, store, workers, backend, address: as in `fedtide.race`.

    Returns: The best settings, as a mapping of names to keys.
    """
    optuna = _optuna()
    sign, measure = metric_sign(metric), metric_named(metric)
    if not isinstance(space, Mapping) or not space:
        raise FedtideError(f"space={shown(space)} is empty: give keys, each with choices or a range")
    among = {key: _distribution(optuna, key, given) for key, given in space.items()}
    listed = spec.checked_seeds(spec.listed_seeds(seeds))
    under = spec.given_base(base)
    held = {"data": {"validation": validation}} if validation else {}
    direction = "maximize" if sign > 0 else "minimize"
    study = study or optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=0))
    if study.direction.name.lower() != direction:
        raise FedtideError(f"the Optuna study is to {study.direction.name.lower()}, and {metric} is to {direction}")
    how = study_backend(workers, backend, address)
    with kept_results(store) as kept:
        while len(study.trials) < trials:
            asked = [study.ask(among) for _ in range(min(workers, trials - len(study.trials)))]
            labels = {f"trial {trial.number}": trial for trial in asked}
            trees = {
                label: config.experiment(under, config.nest(trial.params), held) for label, trial in labels.items()
            }
            made = spec.make_study(name, trees, listed)
            failures = {failed.run.label: failed.reason for failed in run_study(made, kept, **how)}
            for label, runs in by_label(made, kept).items():
                values = [measure(run) for run in runs.values() if run.diverged is None]
                lost = label in failures or len(values) < len(listed) or not np.isfinite(values).all()
                state = optuna.trial.TrialState.FAIL if lost else None
                study.tell(labels[label], None if lost else math.fsum(values) / len(values), state=state)
            if failures and len(failures) == len(trees) and not _finished(study):
                raise FedtideError(f"no trial can be run, the first one: {next(iter(failures.values()))}")
    best: dict[str, dict[str, Any]] = {}
    for trial in sorted(_finished(study), key=lambda trial: -sign * trial.value):
        if trial.params not in best.values() and len(best) < keep:
            best[f"trial {trial.number}: {_words(trial.params)}"[:100]] = dict(trial.params)
    if not best:
        raise FedtideError(f"all {len(study.trials)} trials diverged or have no {metric}: give a smaller space")
    return best


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _words(params: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.rpartition('.')[2]}={value:.4g}"
        if isinstance(value, float)
        else f"{key.rpartition('.')[2]}={yaml_in_line(value)}"
        for key, value in params.items()
    )


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise FedtideError(f"proposals need Optuna ({error}): pip install 'fedtide[optuna]', or race a grid") from error
    return optuna


def _distribution(optuna: Any, key: str, given: Any) -> Any:
    """Return the Optuna distribution of a key."""
    kinds = optuna.distributions
    if isinstance(given, kinds.BaseDistribution):
        return given
    remedy = "give a list of choices, or {'low': ..., 'high': ...} with 'log' or 'step' if you like"
    try:
        if isinstance(given, (list, tuple)):
            return kinds.CategoricalDistribution(given)
        whole = isinstance(given["low"], int) and isinstance(given["high"], int)
        return (kinds.IntDistribution if whole else kinds.FloatDistribution)(**given)
    except (TypeError, ValueError, KeyError) as error:
        raise FedtideError(f"{key}={shown(given)} is not a range ({error}); {remedy}") from None
