"""A federation's folder as a whole: the trace against the experiment, the rounds and the checkpoint. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.versioned import VersionedArray
from fedtide.deploy import trace as deploy_trace
from fedtide.deploy.settings import deployment
from fedtide.deploy.trace import Period, Trace, fingerprint
from fedtide.engine.step import REPORT_BITS, ServerState
from fedtide.engine.system import System
from fedtide.engine.verify_replay import Answered
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import RoundRecord, read_run
from fedtide.schedule.schedulers import make_candidates as rows_of
from fedtide.types import Candidates, Ints


class History(NamedTuple):
    """What a federation has left behind so far."""

    experiment: Experiment
    rounds: list[RoundRecord]
    trace: Trace
    user_folder: Path | None  # from which its own files were named


def read_history(folder: Path) -> History:
    """Read a federation, finished, stopped or going on; raise if its files do not fit together.

    The trace alone, with experiment.yaml beside it, can be read too: then there is nothing more to check it against.
    """
    if not folder.is_dir():
        raise RunFolderError(f"there is no run folder {folder}; name the folder that a deployment made")
    if not (folder / deploy_trace.NAME).exists():
        deploy_trace.read_trace(folder)  # says what a folder without a trace is
    # In the reverse order of writing, so that a federation that is going on fits together too.
    kept = read_run(folder)
    found = deploy_trace.read_trace(folder)
    path, periods = folder / deploy_trace.NAME, found.periods
    try:
        deployment(found.header.deployment)
    except FedtideError as error:
        raise RunFolderError(f"{path} is damaged (line 1: {error}); restore it from a copy") from error
    count, wanted = kept.experiment.fleet.num_devices, config.digest(kept.experiment)
    if found.header.num_devices != count or found.header.experiment not in (None, wanted):
        raise RunFolderError(
            f"{path} is of another run than experiment.yaml beside it, whose digest is {wanted}: restore the one or the other"
        )
    if len(periods) < len(kept.rounds) or (kept.complete and len(periods) != len(kept.rounds)):
        raise RunFolderError(
            f"{path} has {len(periods)} periods and rounds.jsonl {len(kept.rounds)}: lines were lost; restore it from a copy"
        )
    for period, record in zip(periods, kept.rounds, strict=False):
        if problem := _difference(period, record):
            raise RunFolderError(
                f"{path} does not fit rounds.jsonl: in period {period.tick} {problem} differs; restore both from a copy"
            )
    if kept.checkpoint is not None:
        _check_state(path, periods, kept.checkpoint.state)
    return History(kept.experiment, kept.rounds, found, kept.user_folder)


def is_begun(folder: Path, settings: Mapping[str, Any]) -> History | None:
    """Return what a federation with these settings can go on from; None if nothing has happened in this folder yet.

    Raises if the folder is a simulation's, if its files do not fit together, or if they were made with other settings.
    """
    if not (folder / deploy_trace.NAME).exists():
        kept = read_run(folder)
        if kept.rounds or kept.complete or kept.num_parameters is not None:
            raise RunFolderError(
                f"{folder} holds a run but no {deploy_trace.NAME}: it is a simulation's, or its trace was lost; "
                "choose another folder or restore the trace"
            )
        return None
    history = read_history(folder)
    if history.trace.periods and history.trace.header.deployment != settings:
        raise RunFolderError(f"{folder} was begun with other deployment settings; restore them or start anew")
    if len(history.trace.periods) > 1 and not (folder / "checkpoint.npz").exists():
        raise RunFolderError(
            f"{folder} has {len(history.trace.periods)} periods in {deploy_trace.NAME} but no checkpoint.npz to go on from; "
            "restore it or start in a new folder"
        )
    return history


def _difference(period: Period, record: RoundRecord) -> str | None:
    """Name what a period and the round of the same tick do not agree on."""
    place = {device: each for each, device in enumerate(period.ready)}
    picked = [place[device] for device in period.picked]
    silent = set(period.picked) - set(period.arrived) - set(period.lost or ())
    same = {
        "ready": period.ready == record.ready,
        "picked": period.picked == record.picked,
        "start": [period.tick - period.start[each] for each in picked] == record.age,
        "capacity": [period.capacity[each] for each in picked] == record.capacity,
        "symbols": period.symbols == record.symbols,
        "bits": period.bits == record.budget_bits,
        "arrived": not any(
            weight or sent
            for device, weight, sent in zip(record.picked, record.weight, record.sent_bits, strict=True)
            if device in silent
        ),
        "lost": (period.lost or []) == list(record.lost),
    }
    return next((name for name, fits in same.items() if not fits), None)


def _check_state(path: Path, periods: Sequence[Period], state: ServerState) -> None:
    """Raise unless the checkpoint's models are those of the trace, and its uploads those that arrived."""
    models = {period.tick + 1: period.model for period in periods}
    for version, model in state.models.items():
        if version > 1 and models.get(version) != fingerprint(model):
            raise RunFolderError(
                f"{path} does not fit checkpoint.npz: it has another model after period {version - 1}; "
                "restore both from a copy"
            )
    if not np.array_equal(uploads(periods[: state.version - 1], len(state.uploads)), state.uploads):
        raise RunFolderError(
            f"{path} does not fit checkpoint.npz, which counts other arrivals: restore both from a copy"
        )


def uploads(periods: Sequence[Period], num_devices: int) -> Ints:
    """Return how often each device was aggregated in these periods [N]."""
    found = np.zeros(num_devices, np.int64)
    for period in periods:
        found[period.arrived] += 1
    return found


def recorded_candidates(
    period: Period, num_devices: int, num_labels: int, before: Ints | VersionedArray, norms: bool = True
) -> Candidates:
    """Return what the scheduler saw in a period; before: how often each device had been aggregated [N]."""
    device = np.array(period.ready, np.int64)
    if any(len(row) != num_labels for row in period.label_counts):
        raise RunFolderError(
            f"the trace counts {len(period.label_counts[0])} labels in period {period.tick}, and the data has {num_labels}: "
            "the loader gives other data than the devices had"
        )
    reports = {
        name: np.array(column) for name in REPORT_BITS if norms and (column := getattr(period, name)) is not None
    }
    return rows_of(
        num_devices,
        period.tick,
        device,
        np.array(period.start, np.int64),
        np.array(period.num_samples, np.int64),
        np.array(period.label_counts, np.int64).reshape(len(device), num_labels),
        np.array(period.capacity, np.float64),
        before,
        reports,
    )


def answered(system: System, history: History) -> Iterator[Answered]:
    """Return what the policies of a federation saw and answered so far."""
    uploads = np.zeros(system.fleet.num_devices, np.int64)
    for period, record in zip(history.trace.periods, history.rounds, strict=False):
        rows = recorded_candidates(period, system.fleet.num_devices, system.dataset.num_labels, uploads)
        weight = dict(zip(record.picked, record.weight, strict=True))
        yield Answered(rows, period.picked, period.arrived, [weight[k] for k in period.arrived])
        uploads[period.arrived] += 1
