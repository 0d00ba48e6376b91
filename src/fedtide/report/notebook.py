"""What a notebook gets of a run: frames for computing, and cards to look at, a few numbers with a small picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedtide.report.summary import summary_mean

if TYPE_CHECKING:  # a plan needs no run folders
    from fedtide.runs import RoundRecord

_CELL = "text-align:left;padding:1px 12px 1px 0"


def notebook_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns of one length as a DataFrame, or as a mapping of arrays without pandas. Missing numbers are NaN."""
    arrays = {name: _array(values) for name, values in columns.items()}
    try:
        import pandas as pd
    except ImportError:
        return arrays
    return pd.DataFrame(arrays)


def notebook_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns; a row that lacks a name has None there."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return one column: numbers as numbers, all else as the objects that they are."""
    if any(value is not None and not isinstance(value, (bool, int, float, np.number)) for value in values):
        column = np.empty(len(values), object)
        column[:] = values
        return column
    if any(value is None for value in values) or not len(values):
        return np.array([np.nan if value is None else float(value) for value in values], np.float64)
    return np.array(values)


def notebook_round_rows(rounds: Iterable[RoundRecord]) -> list[dict[str, Any]]:
    """Return one row of numbers per aggregation, with the columns that `Result.frame` names; None where not measured."""
    return [
        {
            "index": record.index,
            "time": record.time,
            "num_ready": record.num_ready,
            "num_picked": len(record.picked),
            "num_arrived": record.num_arrived,
            "num_lost": len(record.lost),
            "num_silent": len(record.silent),
            "num_retransmitted": len(record.retransmitted),
            "mean_age": summary_mean(record.age),
            "mean_capacity": summary_mean(record.capacity),
            "mean_num_kept": summary_mean(record.num_kept),
            "budget_bits": float(sum(record.budget_bits)),
            "sent_bits": float(sum(record.sent_bits)),
            "overhead_bits": int(sum(record.overhead_bits)),
            "label_variance": record.label_variance,
            "proved_minimal": record.proved_minimal,
            "test_accuracy": record.test_accuracy,
            "test_loss": record.test_loss,
            "train_loss": record.train_loss,
            **{name: value for name, value in record.ledger._asdict().items() if (name, value) != ("co2_grams", None)},
            **({"mean_interference": summary_mean(record.interference)} if record.cell else {}),
            **{f"metrics/{name}": value for name, value in record.metrics.items()},
        }
        for record in rounds
    ]


def notebook_upload_columns(rounds: Iterable[RoundRecord]) -> dict[str, list[Any]]:
    """Return one row per upload, as columns: index, time, device, the values recorded for it, lost, silent, retransmitted."""
    from fedtide.runs.record import PER_UPLOAD, PER_UPLOAD_IF_ANY

    rounds = list(rounds)
    found: dict[str, list[Any]] = {
        "index": [record.index for record in rounds for _ in record.picked],
        "time": [record.time for record in rounds for _ in record.picked],
        "device": [device for record in rounds for device in record.picked],
    }
    more = [name for name in PER_UPLOAD_IF_ANY if any(getattr(record, name) for record in rounds)]
    found |= {name: [value for record in rounds for value in getattr(record, name)] for name in (*PER_UPLOAD, *more)}
    for name in ("lost", "silent", "retransmitted"):
        those = [(record.picked, set(getattr(record, name))) for record in rounds]
        found[name] = [device in some for picked, some in those for device in picked]
    return found


def notebook_card(title: str, table: str, figure: Any = None) -> str:
    """Return a title, a table and a Matplotlib figure (None: none) as one piece of HTML."""
    drawn = f"<br>{_picture(figure)}" if figure is not None else ""
    return f"<div><b>{escape(title)}</b>{table}{drawn}</div>"


def notebook_facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as an HTML table."""
    rows = "".join(
        f'<tr><td style="{_CELL};opacity:.65">{escape(name)}</td><td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in pairs
    )
    return f"<table>{rows}</table>"


def notebook_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of text under headings as an HTML table."""
    head = "".join(f'<th style="{_CELL}">{escape(each)}</th>' for each in headings)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(each)}</td>' for each in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _picture(figure: Any) -> str:
    """Return a figure as an image inside the page (PNG)."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    return f'<img alt="figure" src="data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}">'
