"""What becomes of a grant before it is sent: powers, batteries that cannot pay for it, and what cells hear of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedtide.devices.energy import energy_of_bits
from fedtide.engine import cells, uplink
from fedtide.engine.step import granted_rates
from fedtide.errors import TrainingError
from fedtide.parts import checks
from fedtide.types import Candidates, Floats, Grant, Ints, Tick

if TYPE_CHECKING:
    from fedtide.engine.system import System

_SLACK = 1 + 1e-9  # what rounding may add to a product


def sending_joules(system: System, device: Ints, grant: Grant, symbols: Floats, rate: Floats) -> Floats:
    """Return what sending so many symbols, of so many bits each, takes from each device at the powers of a grant, in J [r]."""
    powered, seed = symbols if grant.power is None else symbols * grant.power, system.experiment.seed
    bits = np.zeros(len(device)) if system.over_the_air else symbols * rate
    of_symbols = system.energy(seed, device, np.zeros_like(device), powered)
    return of_symbols + energy_of_bits(system.energy, seed, device, bits)


def admit_grant(system: System, num_parameters: int, tick: Tick, rows: Candidates, grant: Grant) -> Grant:
    """Return the grant as it is sent: at which powers, without those who cannot pay for it (raise if that was decided).

    Of several cells, with what they hear of each other.
    """
    uplink.refuse_unused(system, tick, grant)
    device = rows.device[grant.picked]
    if system.power is not None:
        grant = cells.powered_grant(system, tick, device, grant)
    if tick.battery is not None and len(device):
        grant = _paid_for(system, num_parameters, tick, rows, grant)
    if system.cells is None:
        return grant
    symbols = uplink.planned_symbols(system, num_parameters, grant, granted_rates(rows, grant))
    return cells.interfered_grant(system, tick, rows, grant, symbols)


def _paid_for(system: System, num_parameters: int, tick: Tick, rows: Candidates, grant: Grant) -> Grant:
    """Return the grant with those silent whose batteries hold too little."""
    assert tick.battery is not None
    device = rows.device[grant.picked]
    rate = granted_rates(rows, grant)
    needed = sending_joules(system, device, grant, uplink.planned_symbols(system, num_parameters, grant, rate), rate)
    there = tick.battery[grant.picked]
    short = needed > there * _SLACK
    for at in np.flatnonzero(short)[:1] if grant.decision is not None else ():
        raise TrainingError(
            f"{checks.part_label('scheduler', system.policy.scheduler)} decided at aggregation {tick.index} that device "
            f"{device[at]} sends for {needed[at]:.6g} J, and its battery holds {there[at]:.6g} J; look at candidates.battery"
        )
    return grant._replace(silent=short if grant.silent is None else short | grant.silent) if short.any() else grant
