"""Several cells under one server: who is served by which, who shares whose symbols, and what cells hear of each other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks
from fedtide.radio.allocation import Allocation
from fedtide.types import Candidates, Floats, Grant, Ints, Tick

if TYPE_CHECKING:
    from fedtide.engine.system import System


def has_several_cells(coverage: Any) -> bool:
    """Say whether a coverage has several cells; raise if it does not say which, or what they hear of each other."""
    count = getattr(coverage, "num_cells", 1)
    label = checks.part_label("coverage", coverage)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise FedtideError(f"{label} has num_cells={shown(count)}: it must be a whole number of at least 1")
    for name in ("cell", "interference") if count > 1 else ():
        if not callable(getattr(coverage, name, None)):
            raise FedtideError(f"{label} has num_cells={count} and no method {name}; add it, as radio/sites.py says")
    return count > 1


def cells_at(system: System, device: Ints, time: float) -> Ints | None:
    """Return the cell that serves each device [m]; None: there is one."""
    if system.cells is None:
        return None
    found = np.asarray(system.cells.cell(system.experiment.seed, device, np.full(len(device), time)))
    label = checks.part_label("coverage", system.cells)
    if found.shape != device.shape or found.dtype.kind not in "iu":
        raise TrainingError(
            f"{label} serves {len(device)} devices from cells {shown(found, 100)}: give a number for each"
        )
    for cell in found[(found < 0) | (found >= system.num_cells)][:1]:
        raise TrainingError(f"{label} serves a device from cell {cell}: give one of 0 to {system.num_cells - 1}")
    return found.astype(np.int64, copy=False)


def shared_by_cell(allocation: Allocation, capacity: Floats, cell: Ints, num_symbols: float) -> tuple[Floats, Floats]:
    """Share the symbols of every cell among those that it serves: symbols [r] and bits [r]."""
    symbols, bits = np.zeros((2, len(cell)))
    for each in np.unique(cell):
        here = cell == each
        symbols[here], bits[here] = allocation(capacity[here], num_symbols)
    return symbols, bits


def powered_grant(system: System, tick: Tick, device: Ints, grant: Grant) -> Grant:
    """Return a grant with the powers at which these devices send [r]: those of power control, times what was decided."""
    assert system.power is not None
    power = np.asarray(system.power(system.experiment.seed, device, np.full(len(device), tick.time)), np.float64)
    if power.shape != device.shape or not (np.isfinite(power) & (power >= 0)).all():
        raise TrainingError(
            f"radio.coverage={system.experiment.radio.coverage.name} lets {len(device)} devices send at powers "
            f"{shown(power, 100)}: give a finite number >= 0 for each, relative to full power"
        )
    return grant._replace(power=power if grant.power is None else power * grant.power)


def interfered_grant(system: System, tick: Tick, rows: Candidates, grant: Grant, symbols: Floats) -> Grant:
    """Return a grant with the cells that the picked devices send to, and what each meets there of the others [r].

    I = sum_k n_k/n p_k P_k g_kc over the devices k of other cells that send, in times the noise: over all symbols of a tick, or
    over those of the block that a device was given. symbols: n_k, that their packets take [r].
    """
    assert rows.cell is not None
    device, cell, decision = rows.device[grant.picked], rows.cell[grant.picked], grant.decision
    share = symbols / system.num_symbols if system.num_symbols else np.zeros(len(cell))
    if decision is not None and decision.power is not None:
        share = share * decision.power
    if grant.silent is not None:
        share = np.where(grant.silent, 0.0, share)
    block = np.zeros(len(cell), np.int64)
    if decision is not None and decision.block is not None:
        block, share = decision.block, share * system.experiment.radio.num_blocks
    found = np.zeros(len(cell))
    for each in np.unique(block):
        here = block == each
        heard = system.cells.interference(system.experiment.seed, device[here], tick.time, share[here])
        found[here] = _checked(system.cells, "interference", heard, system.num_cells, "at each cell")[cell[here]]
    return grant._replace(cell=cell, interference=found)


def expected_interference(coverage: Any) -> Callable[[int, Ints, Floats], Floats] | None:
    """Return what the server asks before it decides: (seed, device [m], time [m]) -> I/N [m]; None: it reckons with nothing."""
    asks = has_several_cells(coverage) and callable(getattr(coverage, "expected_interference", None))
    return functools.partial(_expected, coverage) if asks else None


def _expected(coverage: Any, seed: int, device: Ints, time: Floats) -> Floats:
    expected = coverage.expected_interference(seed, device, time)
    return _checked(coverage, "expected_interference", expected, len(device), "for each device")


def _checked(coverage: Any, what: str, answer: Any, count: int, where: str) -> Floats:
    """Return so many I/N; raise if a coverage of the user's own says something else."""
    found = checks.answer_as_array(answer)
    is_right = found.shape == (count,) and (not count or found.dtype.kind in "fiu")
    if not is_right or not (np.isfinite(found) & (found >= 0)).all():
        raise TrainingError(
            f"{checks.part_label('coverage', coverage)} has {what} {shown(answer, 100)}: give {count} finite numbers >= 0, I/N "
            f"{where}"
        )
    return np.asarray(found, np.float64)
