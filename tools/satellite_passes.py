"""Contact times of satellites by SGP4 and Skyfield, beside those of fedtide: makes tests/fixtures/satellite_passes.csv.

python tools/satellite_passes.py      needs `pip install sgp4 skyfield` beside fedtide, in an environment to throw away

Mean elements of circular orbits, without drag, are given to SGP4 at midnight UTC of 20 March 2000, day 80 of the year: the mean
motion such that its (Brouwer) semi-major axis is fedtide's. Skyfield takes positions from TEME to Earth (GMST, UT1 from its
own table, no polar motion) and gives elevations over the WGS 84 ellipsoid without refraction. Rises and sets are looked for
every 10 s and then bisected.
"""

from __future__ import annotations

import csv
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import sgp4
import skyfield
from scipy.optimize import brentq
from sgp4.api import WGS84, Satrec
from skyfield.api import EarthSatellite, load, wgs84

from fedtide.radio.orbit import EARTH_MU, EARTH_RADIUS, Orbits, Sky, ground_stations, sun_and_greenwich, walker_orbits

TABLE = Path(__file__).parents[1] / "tests" / "fixtures" / "satellite_passes.csv"
DAY, EPOCH = 86400.0, float((date(2000, 3, 20) - date(1949, 12, 31)).days)  # s; days, as SGP4 counts them
STATIONS = {
    "Bremen": (53.08, 8.80),
    "Svalbard": (78.23, 15.41),
    "Singapore": (1.32, 103.70),
    "Awarua": (-46.53, 168.38),
}
CONSTELLATIONS = {  # i, t, p, f, altitude in km; satellites, elevation of the mask
    "80: 40/5/1 at 2000 km": ((80.0, 40, 5, 1, 2000.0), (0, 13, 39), 10.0),
    "53: 24/6/1 at 550 km": ((53.0, 24, 6, 1, 550.0), (0, 7, 18), 10.0),
    "97.6: 12/3/1 at 550 km": ((97.6, 12, 3, 1, 550.0), (5, 8), 25.0),
}


def propagated(orbits: Orbits, satellite: int) -> Satrec:
    """Return SGP4's satellite on one of these orbits."""
    motion = math.sqrt(EARTH_MU / orbits.radius**3) * 60  # rad/min
    for _ in range(5):  # from Brouwer's mean motion to Kozai's, which SGP4 is given
        made = Satrec()
        angles = (0.0, orbits.inclination, float(orbits.argument[satellite]), motion, float(orbits.node[satellite]))
        made.sgp4init(WGS84, "i", satellite + 1, EPOCH, 0.0, 0.0, 0.0, 0.0, *angles)
        motion *= (made.a * EARTH_RADIUS / orbits.radius) ** 1.5
    return made


def seen_passes(satellite: EarthSatellite, place: tuple[float, float], mask: float) -> list[tuple[float, float]]:
    """Return rises and sets of whole passes in a day, in s."""
    scale = load.timescale(builtin=True)
    above = satellite - wgs84.latlon(*place)

    def margin(second: Any) -> Any:
        return above.at(scale.utc(2000, 3, 20, 0, 0, second)).altaz()[0].degrees - mask

    grid = np.arange(0.0, DAY, 10.0)
    over = margin(grid) >= 0
    turns = np.flatnonzero(over[1:] != over[:-1])
    times = [(over[at + 1], brentq(margin, grid[at], grid[at + 1], xtol=1e-4)) for at in turns]
    if times and not times[0][0]:
        times = times[1:]
    return [(times[i][1], times[i + 1][1]) for i in range(0, len(times) - 1, 2)]


def our_pass(sky: Sky, satellite: int, middle: float) -> tuple[float, float]:
    """Return fedtide's rise and set of the pass about a time, in s; nothing if there is none."""
    steps, one = np.arange(0.0, 3000.0, 5.0), np.array([satellite])
    after, before = (
        np.isfinite(sky.slant_range(np.full(len(steps), satellite), middle + way * steps)) for way in (1, -1)
    )
    if not after[0]:
        return math.nan, math.nan
    ahead, out = middle - steps[np.argmin(before)], middle + steps[np.argmin(after)]
    return float(sky.next_sight(one, np.array([ahead]))[0]), float(sky.next_sight(one, np.array([out]), -1)[0])


def main() -> None:
    """Write the table, and print how large the differences are."""
    rows, (sun, greenwich) = [], sun_and_greenwich(80.0)
    for name, (walker, satellites, mask) in CONSTELLATIONS.items():
        for satellite in satellites:
            for station, place in STATIONS.items():
                orbits = walker_orbits(*walker)
                scale = load.timescale(builtin=True)
                propagator = EarthSatellite.from_satrec(propagated(orbits, satellite), scale)
                plain = walker_orbits(*walker, j2=False)
                skies = [Sky(each, ground_stations((place,), mask), greenwich, sun) for each in (orbits, plain)]
                for rise, end in seen_passes(propagator, place, mask):
                    found = [time for sky in skies for time in our_pass(sky, satellite, (rise + end) / 2)]
                    differences = [f"{ours - theirs:.3f}" for ours, theirs in zip(found, (rise, end) * 2, strict=True)]
                    rows.append([name, satellite, station, *place, mask, f"{rise:.3f}", f"{end:.3f}", *differences])
    header = "constellation satellite station latitude longitude min_elevation rise_s set_s rise_difference_s set_difference_s"
    with TABLE.open("w", newline="") as file:
        file.write(f"# sgp4 {sgp4.__version__}, skyfield {skyfield.__version__}: tools/satellite_passes.py\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header.split(), "rise_without_j2_s", "set_without_j2_s"])
        writer.writerows(rows)
    table = np.array([[float(value) for value in row[6:]] for row in rows])
    for column, what in ((slice(2, 4), "j2"), (slice(4, 6), "without j2")):
        size = np.abs(table[:, column])
        print(f"{what}: {len(rows)} passes, median {np.nanmedian(size):.3f} s, largest {np.nanmax(size):.3f} s")


if __name__ == "__main__":
    main()
