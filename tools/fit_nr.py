"""Fit the block error curves of 5G NR to those that Sionna SYS ships: makes src/fedtide/radio/nr_curves.csv.

    pip download --no-deps sionna-no-rt==2.2.0 && unzip sionna_no_rt-2.2.0-*.whl
    python tools/fit_nr.py sionna/sys/bler_tables

Sionna's six tables (PUSCH with transform precoding 1 and 2, PDSCH 1 to 4) hold block errors over an AWGN channel. They share
most of their modulations and code rates, so the points of all of them are pooled by these two. Each curve is

    BLER = 1 / (1 + exp((SNR_dB - middle) / width)),  width = width_500 (code block / 500 bit)^exponent

with a middle for each of Sionna's code block sizes, of greatest likelihood over all points. Some curves of long blocks fall
from 1 to 0 between two points: middles from 500 bit on are a priori within about 0.1 dB of their neighbours. Prints the error
by size.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit

FILE = Path(__file__).parents[1] / "src/fedtide/radio/nr_curves.csv"
SIZES = np.array([24, 100, 500, 1000, 2000])  # of code blocks, in bit
BLOCKS = 1000  # simulated for a point, about
APART = 0.1  # dB, middles of neighbouring sizes
# Modulation order and 1024 times the code rate of every MCS index: TS 38.214, tables 5.1.3.1-1 to -4, 6.1.4.1-1 and -2 (q = 1)
_LOW = [120, 157, 193, 251, 308, 379, 449, 526, 602]
_QAM64 = [466, 517, 567, 616, 666, 719, 772]
ORDERS = {
    "PDSCH_table1": [2] * 10 + [4] * 7 + [6] * 12,
    "PDSCH_table2": [2] * 5 + [4] * 6 + [6] * 9 + [8] * 8,
    "PDSCH_table3": [2] * 15 + [4] * 6 + [6] * 8,
    "PDSCH_table4": [2] * 3 + [4] * 3 + [6] * 9 + [8] * 8 + [10] * 4,
    "PUSCH_table1": [1] * 2 + [2] * 8 + [4] * 7 + [6] * 11,
    "PUSCH_table2": [1] * 6 + [2] * 10 + [4] * 8 + [6] * 4,
}
_QAM16 = [378, 434, 490, 553, 616, 658]
_QAM256 = [682.5, 711, 754, 797, 841, 885, 916.5, 948]
RATES = {
    "PDSCH_table1": [*_LOW, 679, 340, *_QAM16, 438, *_QAM64, 822, 873, 910, 948],
    "PDSCH_table2": [120, 193, 308, 449, 602, *_QAM16, *_QAM64, 822, 873, *_QAM256],
    "PDSCH_table3": [30, 40, 50, 64, 78, 99, *_LOW, 340, *_QAM16[:-1], 438, *_QAM64],
    "PDSCH_table4": [120, 193, 449, 378, 490, 616, *_QAM64, 822, 873, *_QAM256, 805.5, 853, 900.5, 948],
    "PUSCH_table1": [240, 314, *_LOW[2:], 679, 340, *_QAM16, *_QAM64, 822, 873, 910, 948],
    "PUSCH_table2": [60, 80, 100, 128, 156, 198, *_LOW, 679, *_QAM16, 699, 772, 567, 616, 666, 772],
}


def pooled(folder: Path) -> dict[tuple[int, float], np.ndarray[Any, Any]]:
    """Return Sionna's points by modulation order and code rate: rows of (SNR in dB, position of the size, BLER)."""
    found = defaultdict(list)
    for name, orders in ORDERS.items():
        (category,) = json.loads((folder / f"{name}.json").read_text())["category"].values()
        (table,) = category["index"].values()
        for mcs, entry in table["MCS"].items():
            for size, block in entry["CBS"].items():
                at = int(np.flatnonzero(int(size) == SIZES)[0])
                points = zip(entry["SNR_db"], block["BLER"], strict=True)
                found[orders[int(mcs)], RATES[name][int(mcs)]] += [(snr, at, bler) for snr, bler in points]
    return {key: np.array(rows) for key, rows in sorted(found.items())}


def fitted(points: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return middles at the sizes, width at 500 bit and its exponent, rounded as they are stored; and the errors."""
    snr, bler = points[:, 0], points[:, 2]
    at = points[:, 1].astype(int)

    def scaled(made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (snr - made[at]) / (made[5] * (SIZES[at] / 500) ** made[6])

    def loss(made: np.ndarray[Any, Any]) -> float:
        if made[5] <= 0:
            return float("inf")
        away = scaled(made)
        unlikely = BLOCKS * -np.sum(bler * log_expit(-away) + (1 - bler) * log_expit(away))
        return float(unlikely + np.sum((np.diff(made[2:5]) / APART) ** 2) / 2)

    first = []
    for j in range(len(SIZES)):
        order = np.argsort(snr[at == j])
        first.append(np.interp(0.5, bler[at == j][order][::-1], snr[at == j][order][::-1]))
    options = {"maxiter": 40000, "maxfev": 40000, "xatol": 1e-6, "fatol": 1e-9, "adaptive": True}
    made = np.array([*first, 0.25, -0.4])
    for _ in range(3):  # begun anew where it ended
        made = minimize(loss, made, method="Nelder-Mead", options=options).x
    made = np.round(made, 4)
    return made, expit(-scaled(made)) - bler


def main() -> None:
    """Write the curves with their errors, and print the errors by code block size."""
    names = [f"snr_db_{size}" for size in SIZES]
    lines = [
        "# Block error of 5G NR over AWGN: BLER = 1/(1 + exp((SNR_dB - snr_db)/width)), width = width_db_500 (bits/500)^exponent.",
        "# snr_db_B: SNR in dB of BLER 1/2 for code blocks of B bit. rate: 1024 times the code rate. Errors: fit less Sionna's.",
        "# Fitted by tools/fit_nr.py to sionna/sys/bler_tables of sionna-no-rt 2.2.0 (NVIDIA, Apache-2.0).",
        ",".join(["order", "rate", *names, "width_db_500", "exponent", "points", "rms_error", "max_error"]),
    ]
    errors: dict[int, list[float]] = defaultdict(list)
    for (order, rate), points in pooled(Path(sys.argv[1])).items():
        if order == 10:
            continue  # 1024-QAM: not of the uplink
        made, error = fitted(points)
        for at, miss in zip(points[:, 1].astype(int), error, strict=True):
            errors[at].append(miss)
        rms, most = np.sqrt(np.mean(error**2)), np.abs(error).max()
        numbers = [f"{each:g}" for each in made]
        lines.append(",".join([str(order), f"{rate:g}", *numbers, str(len(points)), f"{rms:.4f}", f"{most:.4f}"]))
    FILE.write_text("\n".join(lines) + "\n")
    for at, found in sorted(errors.items()):
        miss = np.array(found)
        print(
            f"{SIZES[at]:5} bit: {len(miss)} points, rms {np.sqrt(np.mean(miss**2)):.4f}, max {np.abs(miss).max():.4f}"
        )


if __name__ == "__main__":
    main()
