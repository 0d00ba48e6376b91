"""A study as a table: each variant's mean, its reference, its paired difference; and its export."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.files import write_output
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.studies.metrics import FATES, SHARES, Reaching, metric_margin, metric_named
from fedtide.studies.moderation import SHARED, VariancePrior, variance_prior
from fedtide.studies.results import COLUMNS, IF_ABSENT, METRIC_PREFIX, RunResult, SeedResults
from fedtide.studies.spec import Study, cell_text
from fedtide.studies.statistics import (
    aligned_seeds,
    diverged_runs_note,
    mixed_pairs_note,
    paired_difference,
    paired_results,
    pairs_on_shared_paths,
)
from fedtide.studies.store import Store

# Which variant each variant is compared with: the one that differs from it in one thing only.


class Reference(NamedTuple):
    """What a variant is compared with."""

    label: str
    text: str  # what of it differs, as a reader should see it


def table_references(study: Study, against: str | None = None) -> dict[str, Reference | None]:
    """Return every variant's reference by its label; None for a reference itself.

    Without `against` it is the cell with the first value on the first axis that has several (or the first variant), all other
    axes being equal. against: a variant's label, for all; or a part of labels (`scheduler=random`, a variant's name, a bare
    value; several with commas): the cell that has this, all else being equal.
    """
    cells = study.places
    if against is None:
        wanted = {axis: values[0] for axis, values in list(study.axes.items())[:1]}
    else:
        wanted = dict(cells[against]) if against in cells else _wanted(study, against)
    by_cell = {cell: label for label, cell in cells.items()}
    found: dict[str, Reference | None] = {}
    for label, cell in cells.items():
        place = tuple((axis, wanted.get(axis, value)) for axis, value in cell)
        text = cell_text((axis, value) for axis, value in place if axis in wanted)
        found[label] = None if place == cell else Reference(by_cell[place], text)
    return found


def _wanted(study: Study, against: str) -> dict[str, str]:
    """Return which value on which axis is meant by `axis=value`, `key=value` or a value; the fullest form counts."""
    pairs = [(axis, value) for axis, values in study.axes.items() for value in values]

    def places(word: str) -> list[tuple[str, str]]:
        forms = ([f"{axis}={value}", cell_text([(axis, value)]), value] for axis, value in pairs)
        ranks = [form.index(word) if word in form else len(form) for form in forms]
        return [pair for pair, rank in zip(pairs, ranks, strict=True) if rank == min(ranks) < 3]

    wanted: dict[str, str] = {}
    for word in [against] if places(against) else map(str.strip, against.split(",")):
        found = places(word)
        if len(found) != 1:
            reason = "is no variant" if not found else f"is on several axes ({', '.join(axis for axis, _ in found)})"
            parts = [cell_text([pair]) for pair in pairs]
            more = f" and {len(parts) - 6} more" if len(parts) > 6 else ""
            whole = ", and whole labels" if len(study.axes) > 1 else ""
            known = f"{', '.join(map(repr, parts[:6]))}{more}{whole}"
            raise FedtideError(f"against {shown(word)} {reason}; there are {known}")
        wanted |= dict(found)
    return wanted


# A study as a table: every variant's mean (or median), and its paired difference from the variant it is compared with.


def by_label(study: Study, store: Store) -> dict[str, dict[int, RunResult]]:
    """Return the finished results of every variant, by seed."""
    found: dict[str, dict[int, RunResult]] = {label: {} for label in study.labels}
    for run in study.runs:
        if store.has(run.name):
            found[run.label][run.experiment.seed] = store.load(run.name)
    return found


def table_rows(
    study: Study,
    results: SeedResults,
    metric: str,
    against: str | None = None,
    margin: float | None = None,
    moderate: bool = False,
) -> list[dict[str, Any]]:
    """Return one row per variant, as plain data; `against` as in `table_references`, `margin` as in `metric_margin`.

    moderate: intervals use what the variances of all differences have in common (`moderation`). Rows with a diverged run, or with
    a seed that does not reach an accuracy, hold outliers: they keep Student's interval, and the others do not learn from them.
    """
    measure, margin = metric_named(metric), metric_margin(metric, margin)
    compared, even = table_references(study, against), aligned_seeds(results)
    table, prior = [], None
    numbers: dict[str, tuple[list[float], list[float]]] = {}  # of the pairs of a variant
    outliers = set[str]()
    for label in study.labels:
        runs, reference = list(results[label].values()), compared[label]
        pairs = list(paired_results(results[label], results[reference.label]).values()) if reference else []
        alike = list(even.get(label, {}).values())  # on the seeds that all have
        row: dict[str, Any] = {
            "variant": label,
            "seeds": sum(run.label == label for run in study.runs),
            "done": len(runs),
        }
        if isinstance(measure, Reaching):
            median, reached, seeds = measure.over_seeds(alike)
            row |= finite_table_value({"median": median, "reached": reached, "reached_of": seeds})
        else:
            row["mean"] = sum(map(measure, alike)) / len(alike) if alike else None
        row |= {
            # of the uploads, on these seeds; None: not stored
            **{f"{fate}_share": _mean_share(f"{fate}_share", alike) for fate in FATES},
            "verdict": "",
            "reason": _reason(measure, metric, label, runs, pairs, reference),  # why nothing is compared, or no mean
            "paths": dict(Counter(path for each in runs for path in each.paths)),  # a run may be there on several
            "paths_note": "",
            "diverged_note": diverged_runs_note(runs),
            "censored_note": "",  # some seeds do not reach the accuracy, and count with all that they spent
            "counts_note": measure.counted_note(runs) if isinstance(measure, Reaching) else "",
            "against": reference.label if reference else None,
            "against_part": reference.text if reference else None,  # what of it differs from this variant
        }
        if pairs and isinstance(measure, Reaching) and _some_reach(measure, row["reason"], pairs):
            row |= {"censored_note": row["reason"], "reason": ""}
        if pairs and not row["reason"]:
            number = measure.at_least if isinstance(measure, Reaching) else measure
            ours, theirs = ([number(pair[side]) for pair in pairs] for side in (0, 1))
            numbers[label] = ours, theirs
            row["paths_note"] = mixed_pairs_note(pairs)
            if row["censored_note"] or any(each.diverged is not None for pair in pairs for each in pair):
                outliers.add(label)
        table.append(row)
    if moderate:
        prior = _table_prior([each for label, each in numbers.items() if label not in outliers])
    for row in table:
        if pair := numbers.get(row["variant"]):
            own = None if row["variant"] in outliers else prior
            found = paired_difference(*pair, margin=margin, prior=own)
            told = finite_table_value(found._asdict())
            row |= {"difference": told.pop("mean"), **told, "verdict": found.verdict}
            row |= {"moderated": own is not None} if moderate else {}
    return table


def _table_prior(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> VariancePrior:
    """Return what the variances of these differences have in common; one seed has none."""
    differences = [np.subtract(*each) for each in pairs if len(each[0]) > 1]
    return variance_prior(
        [float(each.var(ddof=1)) for each in differences], [len(each) - 1 for each in differences], SHARED
    )


def _some_reach(measure: Reaching, reason: str, pairs: Sequence[Sequence[RunResult]]) -> bool:
    """Say whether some seeds of both variants reach the accuracy: the others count with all that they spent."""
    reached = [any(not math.isnan(measure(pair[side])) for pair in pairs) for side in (0, 1)]
    return " seeds reach " in reason and all(reached)


def _reason(
    measure: Any,
    metric: str,
    label: str,
    runs: Sequence[RunResult],
    pairs: Sequence[Sequence[RunResult]],
    reference: Reference | None,
) -> str:
    """Say why some runs have no such number, or raise if it is one that every run should have; nothing if all have."""
    if isinstance(measure, Reaching):
        others = [other for _, other in pairs]
        theirs, mixed = measure.reason(others), measure.counted_note([*runs, *others])
        if pairs and mixed != measure.counted_note(runs):
            return mixed
        return measure.reason(runs) or (f"{reference.label}: {theirs}" if reference and theirs else "")
    if any(math.isnan(measure(result)) for result in runs):
        raise FedtideError(f"metric {metric} needs runs {_need(metric, runs)}; {label!r} has none")
    return ""


def _need(metric: str, runs: Sequence[RunResult]) -> str:
    """Say what runs have to be like to have a number."""
    if metric in SHARES:
        return "of this version, which counts it"
    if metric.startswith(METRIC_PREFIX):
        measured = sorted({name for each in runs for name in each.metrics})
        more = f" and {len(measured) - 6} more" if len(measured) > 6 else ""
        told = f"{', '.join(measured[:6])}{more}" if measured else "nothing"
        return f"that measured it (learning.metrics, or a scheduler); measured was {told}"
    return "with learning.training_loss=true" if "loss" in metric else "with more evaluations in their second half"


def _mean_share(name: str, results: Sequence[RunResult]) -> float | None:
    """Return a share of the uploads of these runs; None if it is not stored."""
    shares = [(SHARES[name](each), each.totals.get("uploads") or 0.0) for each in results]
    if not shares or any(math.isnan(share) for share, _ in shares):
        return None
    return math.fsum(share * count for share, count in shares) / max(math.fsum(count for _, count in shares), 1)


def table_effect(row: Mapping[str, Any]) -> str:
    """Write an effect with its interval, and the seeds that would resolve it."""
    difference = row.get("difference", row.get("mean"))
    if difference is None:
        return "-" if row["verdict"] == "runs missing" else "runs too short to tell"
    note = "".join(f"; {row[each]}" for each in ("censored_note", "paths_note", "diverged_note") if row.get(each))
    form = "+.4f" if abs(difference) < 1000 else "+,.0f"  # accuracies and losses, or counts
    if row["low"] is None:
        return f"{difference:{form}} (one seed){note}"
    more = f"; about {row['seeds_needed']} would resolve it" if row["seeds_needed"] else ""
    return f"{difference:{form}} ({row['low']:{form}} to {row['high']:{form}}; {row['num_seeds']} seeds{more}){note}"


def table_row_cells(row: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Write a row of `table_rows`: variant, seeds, mean (or median and who reached it), difference, verdict."""
    nothing = "not reached" if " seeds reach " in row["reason"] + row["censored_note"] else "-"
    middle = row.get("mean", row.get("median"))
    some = f", {row['reached']} of {row['reached_of']}" if row.get("reached") != row.get("reached_of") else ""
    if "difference" in row:
        compared, verdict = table_effect(row), row["verdict"]
    else:
        compared = nothing if row["against"] else "(others' reference)"
        verdict = "; ".join(filter(None, [row["reason"], row["diverged_note"]]))
    number = (
        nothing
        if middle is None
        else f"{middle:.4f}{some}"
        if abs(middle) >= 1e-3 or not middle
        else f"{middle:.3g}{some}"
    )
    return row["variant"], f"{row['done']}/{row['seeds']}", number, compared, verdict


_LATEX: Mapping[int, str] = {
    ord(each): f"\\{each}" for each in "&%$#_{}"
} | {ord("\\"): r"\textbackslash{}", ord("~"): r"\textasciitilde{}", ord("^"): r"\textasciicircum{}", ord("≥"): r"$\ge$"}  # fmt: skip


def latex_table(study: Study, rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Return a table as LaTeX with booktabs: means, paired differences with their 95 % intervals, seeds."""
    middle = "median" if rows and "median" in rows[0] else "mean"
    lines = []
    for row in rows:
        variant, done, number, _, verdict = table_row_cells(row)
        difference, low, high = (row.get(name) for name in ("difference", "low", "high"))
        compared = "--" if difference is None else f"${difference:+.4f}$"
        compared += "" if low is None else f" $[{low:+.4f},\\,{high:+.4f}]$"
        cells = [variant, done.partition("/")[0], number]
        lines.append(" & ".join([*(cell.translate(_LATEX) for cell in cells), compared, verdict.translate(_LATEX)]))
    against = next((row["against_part"] for row in rows if row["against_part"]), "the reference")
    kind = "moderated " if any(row.get("moderated") for row in rows) else ""
    name, metric_name, other = (text.translate(_LATEX) for text in (study.name, metric.replace("_", " "), against))
    body = " \\\\\n".join(lines)
    return (
        "% needs \\usepackage{booktabs}\n\\begin{table}\n  \\centering\n"
        f"  \\caption{{{name}: {metric_name}, with paired differences from {other} and their {kind}95\\,\\% intervals.}}\n"
        f"  \\begin{{tabular}}{{lrrrl}}\n\\toprule\nvariant & seeds & {middle} & difference & verdict \\\\\n\\midrule\n"
        f"{body} \\\\\n\\bottomrule\n  \\end{{tabular}}\n\\end{{table}}\n"
    )


def finite_table_value(tree: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an interval of one seed is null."""
    return {key: None if isinstance(each, float) and math.isinf(each) else each for key, each in tree.items()}


# A study as one long table on disk: a row per run and evaluation.


def long_table_rows(study: Study, results: SeedResults) -> list[dict[str, Any]]:
    """Return a row per run and evaluation: the run, the keys that differ within the study, what made it, the columns.

    uploads, lost, silent and retransmitted count up to then, as symbols and bits do. metrics/NAME: what was measured.
    """
    runs = [run for run in study.runs if run.experiment.seed in results[run.label]]
    chosen, rows = pairs_on_shared_paths(results), []
    measured = sorted({name for runs_ in chosen.values() for each in runs_.values() for name in each.metrics})
    for run, differing in zip(runs, differing_keys(run.experiment for run in runs), strict=True):
        result = chosen[run.label][run.experiment.seed]
        keys = {"study": study.name, "variant": run.label, "run": run.name, **differing}
        source = result.provenance or {}
        keys |= {"path": result.path, "version": source.get("fedtide"), "date": source.get("date")}
        keys |= {name: _plain(value) for name, value in IF_ABSENT.items()}
        columns = {name: result.columns[name] for name in COLUMNS if name in result.columns} | _arrivals(result)
        columns |= {name: result.columns[name] for name in measured if name in result.columns}
        plain = {name: list(map(_plain, each.tolist())) for name, each in columns.items()}
        lacking = dict.fromkeys(name for name in measured if name not in columns)
        rows += [keys | dict(zip(plain, values, strict=True)) | lacking for values in zip(*plain.values(), strict=True)]
    return rows


def differing_keys(experiments: Iterable[Experiment]) -> list[dict[str, Any]]:
    """Return the keys in which experiments differ, and the seed: a mapping for each of them."""
    trees = [_flat(config.dump(experiment)) for experiment in experiments]
    differing = [
        key for key in (trees[0] if trees else {}) if len({repr(tree[key]) for tree in trees}) > 1 or key == "seed"
    ]
    for key in differing:  # a column is of one kind
        if any(not isinstance(tree[key], (int, float, str, bool, NoneType)) for tree in trees):
            trees = [tree | {key: repr(tree[key])} for tree in trees]
    return [{key: tree[key] for key in differing} for tree in trees]


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _arrivals(result: RunResult) -> dict[str, Any]:
    """Return how many uploads there were, and what became of them, up to every evaluation; NaN: not stored."""
    index, sent = result.columns["index"], result.uploads_if_stored()
    unknown = np.full(len(index), np.nan)
    if sent is None:
        return dict.fromkeys(("uploads", "lost", "silent", "retransmitted"), unknown)
    ends = sent.offsets[np.minimum(index, len(sent.time))]  # a diverged run has evaluations after its last aggregation
    again = np.zeros_like(sent.lost) if sent.retransmitted is None else sent.retransmitted
    fates = {"lost": sent.lost, "silent": sent.silent, "retransmitted": again}
    return {"uploads": ends} | {
        name: unknown if those is None else np.concatenate([[0], np.cumsum(those)])[ends]
        for name, those in fates.items()
    }


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= {f"{key}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def export_table(study: Study, results: SeedResults, path: Path) -> int:
    """Write CSV or Parquet, by the file's ending; return the number of rows."""
    rows = long_table_rows(study, results)
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_output(path, text.getvalue().encode(), rb"study,variant,run,", "the export of a study (CSV)")
    elif path.suffix == ".parquet":
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise FedtideError(
                f"Parquet needs pyarrow ({error}): pip install 'fedtide[export]', or export to .csv"
            ) from error
        buffer = io.BytesIO()
        columns = {key: pa.array([row[key] for row in rows]) for key in rows[0]}
        empty = {key: pa.string() if key in ("version", "date") else pa.float64() for key in columns
                 if pa.types.is_null(columns[key].type)}  # fmt: skip
        pq.write_table(pa.table(columns | {key: columns[key].cast(kind) for key, kind in empty.items()}), buffer)
        write_output(path, buffer.getvalue(), rb"PAR1", "a Parquet file")
    else:
        raise FedtideError(f"{path} ends with {path.suffix!r}; name a .csv or .parquet file")
    return len(rows)
