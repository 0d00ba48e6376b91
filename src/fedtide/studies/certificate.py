"""What a judge found, as a file that others can verify: verdicts follow from its numbers, its numbers from runs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.files import refuse_other_file_kind, require_writable, write_atomically
from fedtide.runs import provenance
from fedtide.studies.judge_input import JudgedPart, JudgedWorld
from fedtide.studies.metrics import metric_if_reached, metric_sign
from fedtide.studies.results import RunResult
from fedtide.studies.sequential import anytime_margins, pair_level, within_margin, worse_candidates
from fedtide.studies.statistics import EQUIVALENT
from fedtide.studies.table import finite_table_value

FORMAT: Final = 1
SIDES: Final = ("part", "against")
UNRESOLVED: Final = "not resolved"
_MADE_BY: Final = ("fedtide", "commit", "python", "numpy", "scipy", "libm")

Numbers = Sequence[float | None]  # of a metric, a number per seed; None: the run diverged, or did not reach the target
Record = dict[str, Any]  # what a certificate tells of a world


def side_experiment(e: Experiment, *changes: Mapping[str, Any]) -> Experiment:
    """Return an experiment with parts and settings, given by dotted keys, in the place of its own."""
    return config.experiment(e, *map(config.nest, changes))


def measured_or_none(run: RunResult, metric: str, label: str) -> float | None:
    """Return the number of a run; None if it diverged, or has none because it did not reach the target."""
    value = metric_if_reached(metric, run, label)
    return None if run.diverged is not None or math.isnan(value) else value


def tuned_settings(tried: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Return the settings with numbers on most tuning seeds and, among those, the best mean; the first of equals."""

    def rank(entry: Mapping[str, Any]) -> tuple[int, float]:
        known = [value for value in entry["values"] if value is not None]
        return len(known), metric_sign(metric) * math.fsum(known)

    return dict(max(tried, key=rank)["settings"])


def decide(part: Numbers, against: Numbers, metric: str, level: float, margin: float | None) -> dict[str, Any]:
    """Return the verdict on paired numbers, looked at after every seed: the first look that decides counts.

    Differences are positive if the part is better. Once a seed has a number of one side only, such seeds alone decide, by a
    sign test: k of them against one side, and none against the other, decide if 2^(1 - k) <= level.
    """
    pairs = list(zip(part, against, strict=True))
    for number in range(1, len(pairs) + 1):
        whole = [pair for pair in pairs[:number] if None not in pair]
        missed = _missed(pairs[:number])
        word = ""
        if any(missed):
            if not all(missed) and 2.0 ** (1 - max(missed)) <= level:
                word = "worse" if missed[0] else "better"
        elif whole:
            values = metric_sign(metric) * np.array(whole, np.float64).T
            both = np.ones(2, np.bool_)
            if dropped := worse_candidates(values, both, level):
                word = "worse" if 0 in dropped else "better"
            elif margin is not None and within_margin(values, both, 0, level, margin).all():
                word = f"{EQUIVALENT} {margin:g}"
        if word:
            return _verdict(word, pairs[:number], metric, level)
    return _verdict(UNRESOLVED, pairs, metric, level)


def _missed(pairs: Sequence[tuple[float | None, float | None]]) -> tuple[int, int]:
    """Return on how many seeds only the part, and only the other, has no number."""
    alone = [pair.index(None) for pair in pairs if pair.count(None) == 1]
    return alone.count(0), alone.count(1)


def _verdict(
    word: str, pairs: Sequence[tuple[float | None, float | None]], metric: str, level: float
) -> dict[str, Any]:
    found: dict[str, Any] = {"difference": None, "low": None, "high": None}
    if whole := [pair for pair in pairs if None not in pair]:
        values = metric_sign(metric) * np.array(whole, np.float64).T
        gap, width = anytime_margins(values, pair_level(level, 2))
        ends = {"low": float(gap[0, 1] - width[0, 1]), "high": float(gap[0, 1] + width[0, 1])}
        found = {"difference": float(gap[0, 1]), **finite_table_value(ends)}
    notes = []
    if len(whole) < len(pairs):
        (mine, other), both = _missed(pairs), sum(pair == (None, None) for pair in pairs)
        notes.append(
            f"diverged, or did not reach the target: the part on {mine + both} seeds, the other on {other + both}"
        )
    if word == UNRESOLVED:
        notes.append("more seeds or a larger budget may resolve it" if pairs else "the budget was used up in tuning")
    return {"verdict": word, **found, "num_seeds": len(pairs), "note": "; ".join(notes)}


def world_verdict(record: Mapping[str, Any], metric: str, level: float, margin: float | None) -> dict[str, Any]:
    """Return the verdict on what was recorded of a world."""
    judging = record["judging"]
    return decide(judging["part"], judging["against"], metric, level, margin)


# The file.


def make_certificate(
    sides: Mapping[str, JudgedPart],
    settings: Mapping[str, Any],
    records: Sequence[Record],
    paths: Sequence[str],
    e: Experiment,
) -> dict[str, Any]:
    """Return everything that was found, with a digest over all of it. settings: metric, margin, level, seeds, salt, tune."""
    made = provenance(e)
    tree = {
        "format": FORMAT,
        "made_by": {name: made.get(name) for name in _MADE_BY},
        "instruction_paths": list(paths),
        **{name: {"keys": side.portable_keys(), "files": dict(side.files)} for name, side in sides.items()},
        "allowed": list(sides["part"].allowed),
        **settings,
        "worlds": list(records),
    }
    tree = json.loads(json.dumps(tree, allow_nan=False))
    return {**tree, "digest": certificate_digest(tree)}


def world_record(world: JudgedWorld) -> Record:
    """Return what a certificate says of a world itself."""
    told = {"world": world.name, "digest": world.digest, "changed": world.changed}
    return {**told, "experiment": world.portable_keys(), "files": world.files}


def certificate_digest(tree: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate without its own digest."""
    told = {key: value for key, value in tree.items() if key != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def refuse_other_certificate(path: Path) -> None:
    """Raise if something else than a certificate has this name, or nothing can be written there."""
    require_writable(path.parent)
    refuse_other_file_kind(path, rb'\{\s*"format"', "a certificate")


def write_certificate(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a certificate; replace nothing but another one."""
    refuse_other_certificate(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(tree, indent=1) + "\n").encode())


class CertifiedRun(NamedTuple):
    """A run whose number a certificate tells."""

    label: str
    experiment: Experiment
    value: float | None


def certified_runs(tree: Mapping[str, Any]) -> Iterator[CertifiedRun]:
    """Go through all runs of a certificate."""
    for record in tree["worlds"]:
        e = config.experiment(record["experiment"])
        tuning, judging = record["tuning"], record["judging"]
        for side in SIDES:
            keys = tree[side]["keys"]
            cases = [
                (tuning["changed"], tuning["seeds"], each["settings"], each["values"], "tuning")
                for each in tuning[side]
            ]
            cases.append(({}, judging["seeds"], record["chosen"][side], judging[side], "judging"))
            for changed, seeds, settings, values, use in cases:
                for seed, value in zip(seeds, values, strict=True):
                    made = side_experiment(e, changed, keys, settings, {"seed": seed})
                    yield CertifiedRun(f"{record['world']}, {side}, {use} seed {seed}", made, value)
