"""Fit the twin of the 5G drive tests (channel=drive_twin) to a copy of the data set, and compare both.

python tools/fit_drives.py 5G-production-dataset.zip            compares the data set with the committed fit
python tools/fit_drives.py 5G-production-dataset.zip --write    fits anew: src/fedtide/radio/drive_twin.json, docs/drives.md

The data set: D. Raca, D. Leahy, C. J. Sreenan, J. J. Quinlan, "Beyond throughput, the next generation: a 5G dataset with channel
and context metrics", ACM MMSys 2020, GPL-3.0, from https://github.com/uccmisl/5Gdataset. Every file counts the same, whatever
its length, as every device gets one. Only these statistics are stored, no row of the data.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, least_squares
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from fedtide.radio import drive_twin, measured

ROOT = Path(__file__).parents[1]
FITTED, PAGE = ROOT / "src/fedtide/radio/drive_twin.json", ROOT / "docs/drives.md"
SHARES = np.array([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99])
KNOTS = np.array([0.001, 0.01, 0.03, 0.06, *np.arange(0.1, 0.91, 0.1), 0.94, 0.97, 0.99, 0.999])
LAGS = np.array([1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240])  # in s
SHOWN_LAGS = (1, 10, 60)
DOWN_LAGS = np.array([5, 10, 20, 30, 60, 90, 120, 180, 240, 300])
LEAST = 60.0  # seconds with an SNR that a file needs, as channel=drive_test has it by default


def seconds_of(path: Path, state: measured.State) -> list[np.ndarray]:
    """Return the SNR in dB of each file, second by second, NaN where there is no link."""
    found = []
    for trace in measured.drive_tests(path, state):
        rows = measured.drive_snr(trace, 1.0, 5.0)
        at = np.arange(int(rows.end(np.zeros(1, np.int64))[0])) + 0.5
        found.append(rows.value[rows.row_at(np.zeros(len(at), np.int64), at, wrap=False)])
    return known_links(found)


def twin_seconds(state: measured.State, count: int, length: int) -> list[np.ndarray]:
    """Return the same of so many devices of the twin."""
    twin, device = drive_twin.DriveTwin(count, state=state), np.arange(count)
    snr = np.stack([twin(0, 0, float(second), device) for second in range(length)], axis=1)
    return known_links(list(snr))


def known_links(snr: list[np.ndarray]) -> list[np.ndarray]:
    """Return SNRs in dB, NaN where there is no link, without the series that hardly have one."""
    long = [each for each in snr if np.count_nonzero(each) >= LEAST]
    return [np.where(each > 0, 10 * np.log10(np.maximum(each, 1e-30)), np.nan) for each in long]


def pooled(series: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the SNRs of all series in ascending order, and up to which share each of them goes, all series alike."""
    known = [each[~np.isnan(each)] for each in series]
    value = np.concatenate(known)
    weight = np.concatenate([np.full(len(each), 1 / len(each) / len(known)) for each in known])
    value, which = np.unique(value.round(9), return_inverse=True)
    weight = np.bincount(which, weight)
    return value, np.cumsum(weight) - weight / 2  # the middle of its step: SNRs are whole decibels


def covariance(series: list[np.ndarray], lags: np.ndarray) -> np.ndarray:
    """Return the mean over series of x(t) x(t + s) where both are known, for every lag."""
    found = []
    for lag in lags:
        pairs = [(each[:-lag] * each[lag:]) for each in series if len(each) > lag]
        means = [np.nanmean(each) for each in pairs if np.count_nonzero(~np.isnan(each)) >= 30]
        found.append(np.mean(means))
    return np.array(found)


def statistics(series: list[np.ndarray]) -> dict[str, Any]:
    """Return what twin and data are compared by."""
    value, share = pooled(series)
    means = np.array([np.nanmean(each) for each in series])
    mean = means.mean()
    variance = np.mean([np.nanmean((each - mean) ** 2) for each in series])
    down = np.array([np.isnan(each).mean() for each in series])
    ends = sum(np.count_nonzero(np.diff(np.isnan(each).astype(int)) == 1) for each in series)
    return {
        "files": len(series),
        "mean_db": mean,
        "deviation_db": np.sqrt(variance),
        "deviation_of_means_db": means.std(),
        "quantiles_db": np.interp(SHARES, share, value).tolist(),
        "correlation": (covariance([each - mean for each in series], np.array(SHOWN_LAGS)) / variance).tolist(),
        "down_share": down.mean(),
        "never_down": np.mean(down == 0),
        "down_half_of_the_time": np.mean(down > 0.5),
        "losses_per_hour": 3600 * ends / sum(np.count_nonzero(~np.isnan(each)) for each in series),
    }


def fit(series: list[np.ndarray]) -> dict[str, Any]:
    """Return the twin's numbers for these series."""
    value, share = pooled(series)
    z = [np.interp(each, value, ndtri(share)) for each in series]
    z = [np.where(np.isnan(each), np.nan, made) for each, made in zip(series, z, strict=True)]
    said = covariance(z, LAGS) / np.mean([np.nanmean(each**2) for each in z])

    def weights_of(x: np.ndarray) -> np.ndarray:
        return np.exp([0.0, x[0], x[1]]) / np.exp([0.0, x[0], x[1]]).sum()

    def missed(x: np.ndarray) -> np.ndarray:
        weights, tau = weights_of(x), np.exp(x[2:])
        return weights[0] + weights[1] * np.exp(-LAGS / tau[0]) + weights[2] * np.exp(-LAGS / tau[1]) - said

    found = least_squares(missed, [0.0, 0.0, np.log(2.0), np.log(60.0)]).x
    down = [np.isnan(each).astype(float) for each in series]
    down_share = float(np.mean([each.mean() for each in down]))
    below = ndtri(down_share)

    def both(correlation: float) -> float:
        return float(multivariate_normal.cdf([below, below], cov=[[1, correlation], [correlation, 1]]))

    joint = covariance(down, DOWN_LAGS)
    normal = [brentq(lambda r, p=p: both(r) - p, 0.0, 0.9999) for p in np.minimum(joint, both(0.9998))]
    luck, tau = least_squares(
        lambda x: ndtr(x[0]) + (1 - ndtr(x[0])) * np.exp(-((DOWN_LAGS / np.exp(x[1])) ** 2) / 2) - normal,
        [0.0, np.log(200.0)],
    ).x
    return {
        "files": len(series),
        "quantile_z": ndtri(KNOTS).round(4).tolist(),
        "quantile_db": np.interp(KNOTS, share, value).round(2).tolist(),
        "weights": weights_of(found).round(4).tolist(),
        "tau": np.exp(found[2:]).round(2).tolist(),
        "down_share": round(down_share, 4),
        "down_luck": round(float(ndtr(luck)), 4),
        "down_tau": round(float(np.exp(tau)), 1),
        "measured": json.loads(json.dumps(statistics(series)), parse_float=lambda text: round(float(text), 3)),
    }


def rows_of(said: dict[str, Any]) -> dict[str, float]:
    """Return statistics by the names of the table."""
    found = {"mean SNR, dB": said["mean_db"], "standard deviation, dB": said["deviation_db"]}
    found["standard deviation of a file's mean, dB"] = said["deviation_of_means_db"]
    found |= {f"{share:.0%} point, dB": value for share, value in zip(SHARES, said["quantiles_db"], strict=True)}
    found |= {
        f"autocorrelation over {lag} s": value for lag, value in zip(SHOWN_LAGS, said["correlation"], strict=True)
    }
    found["share of the time without a link"] = said["down_share"]
    found["files that never lose it"] = said["never_down"]
    found["files without it for half of the time"] = said["down_half_of_the_time"]
    found["losses of the link per hour with one"] = said["losses_per_hour"]
    return found


def table(fitted: dict[str, Any]) -> str:
    """Return data set and twin side by side."""
    both = []
    for state in drive_twin.MOTIONS:
        length = 1800  # s, about a drive
        both += [rows_of(fitted[state]["measured"]), rows_of(statistics(twin_seconds(state, 1000, length)))]
    lines = ["| | static: measured | twin | driving: measured | twin |", "|---|---:|---:|---:|---:|"]
    for name in both[0]:
        digits = 1 if name.endswith(("dB", "hour with one")) else 2
        lines.append(f"| {name} | " + " | ".join(f"{each[name]:.{digits}f}" for each in both).replace("-", "−") + " |")
    return "\n".join(lines)


def main(path: Path, write: bool) -> None:
    """Fit and compare."""
    fitted = json.loads(FITTED.read_text("utf-8")) if FITTED.exists() else {}
    for state in drive_twin.MOTIONS:
        series = seconds_of(path, state)
        if write:
            fitted[state] = fit(series)
        else:
            fitted[state]["measured"] = statistics(series)
    if write:
        fitted["source"] = "Raca et al., MMSys 2020, https://github.com/uccmisl/5Gdataset (GPL-3.0)"
        fitted["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        FITTED.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")
        drive_twin.drive_statistics.cache_clear()
    made = table(fitted)
    print(made)
    if write:
        before, _, rest = PAGE.read_text("utf-8").partition("<!-- table -->\n")
        after = rest.partition("<!-- end -->")[2]
        PAGE.write_text(f"{before}<!-- table -->\n{made}\n<!-- end -->{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--write" in sys.argv[2:])
