"""Updates that are sent at once: what goes with them, and how many symbols they take."""

from __future__ import annotations

import math
from typing import Any

from fedtide.config import Experiment
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.parts import checks
from fedtide.radio.over_the_air import ANALOG_SYMBOLS_PER_PARAMETER, MIN_SNR, Access, symbols_over_the_air


def check_over_the_air(experiment: Experiment, access: Access, aggregator: Any) -> None:
    """Raise if something of an experiment needs updates one by one, or an access says of itself what cannot be."""
    radio, codec = experiment.radio, experiment.part("codec").name
    hears = f"radio.access={radio.access} lets the server hear"
    if not getattr(aggregator, "takes_sum", False):
        raise FedtideError(
            f"{hears} nothing but the weighted sum of the updates, and policy.aggregator={experiment.policy.aggregator} as it is "
            "needs them one by one: choose average_models, average_deltas, mix, buffered_mean with staleness=0 or a server "
            "optimizer around one of these; one of your own that uses them in sum_k w_k u_k alone says takes_sum = True"
        )
    if codec != "ideal":
        raise FedtideError(f"{hears} updates uncoded, and codec.name={codec} would not be used: add codec.name=ideal")
    if radio.allocation.name != "equal_bits":
        raise FedtideError(
            f"{hears} all devices on the same symbols, which radio.allocation={radio.allocation} would share: leave it out"
        )
    if radio.modem.name != "shannon":
        raise FedtideError(f"{hears} no bits, and radio.modem={radio.modem} would not be used: leave it out")
    _number(access, "min_snr", MIN_SNR, 0.0, ">= 0")
    _number(access, "symbols_per_parameter", ANALOG_SYMBOLS_PER_PARAMETER, 1e-9, "> 0")


def _number(access: Access, name: str, default: float, least: float, wanted: str) -> None:
    value = getattr(access, name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise FedtideError(
            f"{checks.part_label('access', access)} has {name}={shown(value)}: it must be a number {wanted}"
        )


def analog_symbols(experiment: Experiment, access: Access, num_parameters: int, num_symbols: float) -> float:
    """Return the symbols that d parameters take, whoever sends; raise if an aggregation has fewer."""
    needed, radio = symbols_over_the_air(access, num_parameters), experiment.radio
    if needed > num_symbols:
        raise FedtideError(
            f"radio.access={radio.access} takes {needed:,} symbols for {num_parameters:,} parameters, and an aggregation has "
            f"{num_symbols:,.0f}: raise radio.num_symbols={radio.num_symbols:g}, let the server act less often, or choose a "
            "smaller learning.model"
        )
    return float(needed)
