"""`fedtide theory claims`: what the paper says about Gamma, zeta and gradient descent, decided on convex tasks."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from fedtide.core import write_output
from fedtide.errors import FedtideError
from fedtide.studies import CONFIDENCE, Comparison, half_width, paired_difference
from fedtide.types import Floats
from fedtide_lab.prose import fill_prose, packaged_prose, prose_table
from fedtide_lab.theory import gradient_descent, heterogeneity
from fedtide_lab.theory.gradient_descent import Slowdown, TimedSystem
from fedtide_lab.theory.heterogeneity import IID, NUM_SAMPLES, PACES, SHARDS_PER_DEVICE, Settled, Spread, gamma_limit
from fedtide_lab.theory.measure import SayLine, silent

_Row = TypeVar("_Row", Spread, Settled, Slowdown)
_TEMPLATE = "theory/claims.md"
_BEGIN, _END = "<!-- fedtide theory claims -->\n", "<!-- end of fedtide theory claims -->\n"
_LARGEST = NUM_SAMPLES[-1]
_NEIGHBOURS = list(pairwise(SHARDS_PER_DEVICE))


def run_claims(folder: Path, page: Path | None = None, say: SayLine = silent) -> dict[str, str]:
    """Compute what the folder lacks, write the section of the page, and return every verdict by its statement."""
    values = claim_values(
        _stored(folder / "spread.csv", Spread, lambda: heterogeneity.spreads(say=say)),
        _stored(folder / "settled.csv", Settled, lambda: heterogeneity.settled_errors(say=say)),
        _stored(folder / "slowdown.csv", Slowdown, lambda: gradient_descent.slowdowns(say=say)),
    )
    if page is not None:
        before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
        _, end, after = rest.partition(_END)
        if not begin or not end:
            raise FedtideError(f"{page} has no lines {_BEGIN.strip()} and {_END.strip()}; name another page")
        page.write_text(before + claims_section(values) + after, encoding="utf-8")
        say(f"written: {page}")
    return {key.removeprefix("verdict "): str(value) for key, value in values.items() if key.startswith("verdict ")}


def claims_section(values: Mapping[str, Any]) -> str:
    """Return the section of docs/theory.md, with the lines around it."""
    return _BEGIN + fill_prose(packaged_prose(_TEMPLATE), values, _TEMPLATE) + _END


def _stored(file: Path, kind: type[_Row], make: Callable[[], Iterable[_Row]]) -> list[_Row]:
    if not file.is_file():
        write_rows(file, list(make()))
    return read_rows(file, kind)


def write_rows(file: Path, rows: Sequence[Spread | Settled | Slowdown]) -> None:
    """Write rows of one kind as CSV, numbers with seven digits."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(rows[0]._fields)
    lines.writerows([f"{cell:.7g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_output(file, text.getvalue().encode(), rows[0]._fields[0].encode(), "results of `fedtide theory claims`")


def read_rows(file: Path, kind: type[_Row]) -> list[_Row]:
    """Read what `write_rows` wrote."""
    types = get_type_hints(kind).values()
    with file.open(encoding="utf-8", newline="") as lines:
        head, *rows = csv.reader(lines)
    if tuple(head) != kind._fields:
        raise FedtideError(f"{file}: the columns are not {', '.join(kind._fields)}; delete it to compute it again")
    return [kind(*(read(cell) for read, cell in zip(types, row, strict=True))) for row in rows]


def verdict_on(pairs: Sequence[tuple[Floats, Floats]]) -> str:
    """Say whether the first of each pair is larger, by the rule of docs/paper.md; each side has a number per seed."""
    if all(_compared(one, other).low > 0 for one, other in pairs):
        return "holds"
    corrected = 1 - (1 - CONFIDENCE) / len(pairs)
    if any(_compared(one, other, corrected).high < 0 for one, other in pairs):
        return "contradicted"
    return "not resolved"


def _compared(one: Floats, other: Floats, confidence: float = CONFIDENCE) -> Comparison:
    return paired_difference(one.tolist(), other.tolist(), confidence)


def with_interval(values: Floats) -> str:
    """Write the mean over seeds with half of its 95 % interval, in as many decimals as that has meaning; alone if all are equal."""
    mean, half = float(values.mean()), float(half_width(values))
    if half < 1e-9 * abs(mean):
        return f"{mean:.3g}"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean:.{decimals}f} ± {half:.{decimals}f}"


def claim_values(
    spreads: Sequence[Spread], settled: Sequence[Settled], slowdowns: Sequence[Slowdown]
) -> dict[str, Any]:
    """Return every number, table and verdict of the section, by its name in the template."""
    seeds = {row.seed for row in spreads}
    if {row.seed for row in slowdowns} != seeds or not {row.seed for row in settled} <= seeds:
        raise FedtideError("the files of results/theory have different seeds; delete them to compute them again")
    return {
        "seeds": len(seeds),
        "last seed": max(seeds),
        "settling seeds": len({row.seed for row in settled}),
        **_gamma_values(spreads),
        **_zeta_values(spreads, settled),
        **_slowdown_values(slowdowns),
    }


def _gamma_values(rows: Sequence[Spread]) -> dict[str, Any]:
    gamma = {
        (shards, size): np.array([row.gamma for row in rows if (row.shards, row.samples) == (shards, size)])
        for shards in SHARDS_PER_DEVICE
        for size in NUM_SAMPLES
    }
    by_seed = {shards: np.array([gamma[shards, size] for size in NUM_SAMPLES]).T for shards in SHARDS_PER_DEVICE}
    limit = {shards: np.array([gamma_limit(NUM_SAMPLES, line) for line in by_seed[shards]]) for shards in by_seed}
    slopes = np.array([np.polyfit(np.log(NUM_SAMPLES), np.log(line), 1)[0] for line in by_seed[IID]])
    falls = [(gamma[IID, a], gamma[IID, b]) for a, b in pairwise(NUM_SAMPLES)]
    at_zero = _compared(limit[IID], np.zeros(len(slopes)))
    zero = np.zeros(len(slopes))
    uneven = [shards for shards in SHARDS_PER_DEVICE if shards != IID]
    table = [
        [f"{size:,}", *(with_interval(gamma[shards, size]) for shards in SHARDS_PER_DEVICE)] for size in NUM_SAMPLES
    ]
    table.append(["limit", *(with_interval(limit[shards]) for shards in SHARDS_PER_DEVICE)])
    return {
        "gamma table": prose_table(["samples", *map(_level, SHARDS_PER_DEVICE)], table),
        "slope": with_interval(slopes),
        "limit verdict": at_zero.verdict,
        "limit share": 100 * max(abs(at_zero.low), abs(at_zero.high)) / gamma[IID, _LARGEST].mean(),
        "gamma ratio": gamma[uneven[-1], _LARGEST].mean() / gamma[IID, _LARGEST].mean(),
        "limit of uneven": 100 * limit[uneven[-1]].mean() / gamma[uneven[-1], _LARGEST].mean(),
        "verdict Gamma falls towards 0 with i.i.d. data": verdict_on(falls),
        "verdict Gamma stays above 0 with non-i.i.d. data": verdict_on([(limit[shards], zero) for shards in uneven]),
        "verdict Gamma falls with more shards per device": verdict_on(
            [(gamma[one, _LARGEST], gamma[other, _LARGEST]) for one, other in _NEIGHBOURS]
        ),
    }


def _zeta_values(spreads: Sequence[Spread], settled: Sequence[Settled]) -> dict[str, Any]:
    def of_spread(shards: int, name: str) -> Floats:
        found = [getattr(row, name) for row in spreads if (row.shards, row.samples) == (shards, _LARGEST)]
        return np.array(found)

    def of_settled(shards: int, period: float, name: str) -> Floats:
        return np.array([getattr(row, name) for row in settled if (row.shards, row.period) == (shards, period)])

    def elasticity(period: float, name: str) -> Floats:
        y = np.log([of_settled(shards, period, name) for shards in SHARDS_PER_DEVICE]).T
        x = np.log([of_spread(shards, "zeta") for shards in SHARDS_PER_DEVICE]).T
        return np.array([np.polyfit(*line, 1)[0] for line in zip(x, y, strict=False)])  # the seeds that both have

    columns = [(period, name) for name in ("error", "loss") for period in PACES]
    table = [
        [
            _level(shards),
            *(with_interval(of_spread(shards, name)) for name in ("labels", "zeta", "distance")),
            *(with_interval(1e4 * of_settled(shards, *column)) for column in columns),
        ]
        for shards in SHARDS_PER_DEVICE
    ]
    steps = [
        [
            f"{_level(one)} less {_level(other)}",
            *(_difference(of_spread(one, name), of_spread(other, name)) for name in ("zeta", "distance")),
            *(_difference(1e4 * of_settled(one, *each), 1e4 * of_settled(other, *each)) for each in columns),
        ]
        for one, other in _NEIGHBOURS
    ]
    heads = [f"{name}, {_pace(period)}" for name in ("error", "excess loss") for period in PACES]
    return {
        "zeta table": prose_table(["shards per device", "labels per device", "ζ", "mean", *heads], table),
        "zeta steps": prose_table(["", "ζ", "mean", *heads], steps),
        "settled means fall": "yes"
        if all(of_settled(a, *each).mean() > of_settled(b, *each).mean() for a, b in _NEIGHBOURS for each in columns)
        else "no",
        "settling share": max(row.step_share for row in settled),
        **{f"elasticity {name} {_pace(period)}": with_interval(elasticity(period, name)) for period, name in columns},
        **{
            f"asynchronous {_level(shards)}": of_settled(shards, 0.25, "error").mean()
            / of_settled(shards, 1.0, "error").mean()
            for shards in (1, IID)
        },
        **{
            f"verdict the settled {name} grows with zeta over all levels": verdict_on(
                [(rise, np.zeros(len(rise))) for rise in (elasticity(period, name) for period in PACES)]
            )
            for name in ("error", "loss")
        },
        "verdict zeta falls with more shards per device": verdict_on(
            [(of_spread(one, "zeta"), of_spread(other, "zeta")) for one, other in _NEIGHBOURS]
        ),
        "verdict mean distance falls with more shards per device": verdict_on(
            [(of_spread(one, "distance"), of_spread(other, "distance")) for one, other in _NEIGHBOURS]
        ),
        **{
            f"verdict the settled {name} falls with more shards per device ({_pace(period)})": verdict_on(
                [(of_settled(one, period, name), of_settled(other, period, name)) for one, other in _NEIGHBOURS]
            )
            for period, name in columns
        },
    }


def _slowdown_values(rows: Sequence[Slowdown]) -> dict[str, Any]:
    def each(setting: TimedSystem, value: Callable[[Slowdown], float]) -> Floats:
        return np.array([value(row) for row in rows if TimedSystem(*row[:4]) == setting])

    def measured(setting: TimedSystem) -> Floats:
        return each(setting, lambda row: row.system / row.descent)

    settings = [
        setting for setting in gradient_descent.TIMED_SYSTEMS if any(TimedSystem(*row[:4]) == setting for row in rows)
    ]
    predictors: dict[str, Callable[[Slowdown], float]] = {
        "theorem": lambda row: row.theorem / row.nominal,
        "sharp": lambda row: row.sharp / row.nominal,
        "age": lambda row: row.age / row.kept,
        "generation": lambda row: row.predicted,
    }
    ratio = {
        name: np.array([each(s, lambda row, f=f: f(row) * row.descent / row.system).mean() for s in settings])  # type: ignore[misc]
        for name, f in predictors.items()
    }
    table = [
        [_task(s.task), _fleet(s), _pace(s.period), with_interval(measured(s))]
        + [with_interval(each(s, predictors[name])) for name in ("generation", "age", "sharp", "theorem")]
        + [with_interval(each(s, lambda row: row.claimed))]
        for s in settings
    ]
    synchronous = {(s.task, s.symbols): measured(s) for s in settings if s.period == 1}
    in_time = {
        s.period: measured(s) * s.period / synchronous[s.task, s.symbols]
        for s in settings
        if s.task == "softmax" and s.symbols == "plenty" and s.speeds == "spread"
    }
    slower = [(measured(s), synchronous[s.task, s.symbols]) for s in settings if s.period < 1]
    overstated = [(each(s, predictors["theorem"]), measured(s)) for s in settings]
    heads = [
        "task",
        "fleet and link",
        "period",
        "measured",
        "by mean generation",
        "by mean age",
        "`sharp`",
        "Theorem 1",
    ]
    return {
        "slowdown table": prose_table([*heads, "2 (a_lim + 1) d/r_min"], table),
        "descent within nominal": "yes" if all(row.descent <= row.nominal for row in rows) else "no",
        "largest step share": max(row.step_share for row in rows),
        **{
            f"synchronous {task}": with_interval(measured(TimedSystem(task, 1.0, "plenty", "spread")))
            for task in gradient_descent.TIMED_STEPS
        },
        **{
            f"slowdown {task} {_pace(period)}": with_interval(measured(TimedSystem(task, period, "plenty", "spread")))
            for task in gradient_descent.TIMED_STEPS
            for period in (0.5, 0.25, 0.125)
        },
        **{f"time {_pace(period)}": with_interval(found) for period, found in in_time.items()},
        "theorem synchronous": each(TimedSystem("softmax", 1.0, "plenty", "spread"), predictors["theorem"]).mean(),
        **{f"{name} least": float(found.min()) for name, found in ratio.items()},
        **{f"{name} most": float(found.max()) for name, found in ratio.items()},
        "verdict asynchrony slows the contraction per iteration": verdict_on(slower),
        "verdict asynchrony saves time without compression loss": verdict_on(
            [
                (synchronous[s.task, s.symbols], measured(s) * s.period)
                for s in settings
                if s.period < 1 and s.symbols == "plenty" and s.speeds == "spread"
            ]
        ),
        "verdict the theorem overstates the slowdown": verdict_on(overstated),
    }


def _difference(one: Floats, other: Floats) -> str:
    return with_interval(one - other) + ("" if _compared(one, other).low > 0 else " (!)")


def _level(shards: int) -> str:
    return "i.i.d." if shards == IID else f"{shards}"


def _pace(period: float) -> str:
    return "T_max" if period == 1 else f"T_max/{round(1 / period)}"


def _task(name: str) -> str:
    return name.replace("_", " ")


def _fleet(setting: TimedSystem) -> str:
    return (
        "all T_k = T_max" if setting.speeds == "same" else "r = d" if setting.symbols == "plenty" else "scarce symbols"
    )
