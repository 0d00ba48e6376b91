"""Parts of a random world by address, each a plain function of one device: for runs and for their slow twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from fedtide import Decision, Signal, arg

_PURPOSES = ("duration", "away", "snr", "estimate", "pick", "power", "block", "speed", "place")


def draw(seed: int, purpose: str, *address: int) -> float:
    """A number in [0, 1) by address."""
    return float(np.random.default_rng((seed, _PURPOSES.index(purpose), *address)).random())


def each(function: Callable[..., float], *columns: Any) -> Any:
    """Ask a function of one device for many."""
    rows = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    return np.array([function(*row) for row in rows], np.float64)


# The world, one device at a time. Times lie on a grid, so that events meet at one instant.


def training_time(seed: int, device: int, job: int) -> float:
    number = draw(seed, "duration", device, job)
    return math.inf if number > 0.985 else math.floor(number * 6) / 4 + 0.25


def next_there(seed: int, device: int, time: float) -> float:
    if device % 5 == 4 and time > 3:  # it never comes back
        return math.inf
    while draw(seed, "away", device, math.floor(time * 2)) < 0.3:
        time = math.floor(time * 2) / 2 + 0.5
    return time


def true_snr(seed: int, device: int, tick: int) -> float:
    return 0.2 + 12 * draw(seed, "snr", device, tick)


def believed_snr(seed: int, device: int, tick: int) -> float:
    number = draw(seed, "estimate", device, tick)
    return true_snr(seed, device, tick) * (1.0 if number < 0.4 else 0.5 + number)


def choice(seed: int, device: list[int], job: list[int], places: int) -> list[int]:
    """Return the positions of those who take the free places."""
    return sorted(range(len(device)), key=lambda at: draw(seed, "place", device[at], job[at]))[:places]


def decision(
    seed: int, tick: int, rows: list[dict[str, Any]], limit: int, symbols: float, joint: bool, cost: float
) -> list[dict[str, Any]]:
    """Who sends how: with equal symbols; if the decision is joint, at some power in some block, the next training slower."""
    order = sorted(rows, key=lambda row: draw(seed, "pick", row["device"], tick))
    count = 1 + math.floor(draw(seed, "pick", 999, tick) * limit)
    if not joint:
        chosen = sorted(order[:count], key=lambda row: row["device"])
        return [{"device": row["device"], "symbols": symbols / len(chosen)} for row in chosen]
    found = []
    for row in order[:count]:
        device, blocks = row["device"], len(row["blocks"])
        block = math.floor(draw(seed, "block", device, tick) * blocks) if blocks > 1 else None
        power = 0.5 + 1.5 * draw(seed, "power", device, tick)
        speed = 1.0 if draw(seed, "speed", device, tick) < 0.5 else 0.5
        share = symbols / (blocks if block is not None else 1) / count
        if row["battery"] is not None and cost * share * power > row["battery"]:
            continue
        found.append({"device": device, "symbols": share, "power": power, "speed": speed, "block": block})
    return sorted(found, key=lambda row: row["device"])


# The same as parts of a run.


def trains(seed, device, job):  # type: ignore[no-untyped-def]
    return each(lambda *row: training_time(seed, *row), device, job)


def there(seed, device, time):  # type: ignore[no-untyped-def]
    return each(lambda *row: next_there(seed, *row), device, time)


def links(seed, tick, time, device):  # type: ignore[no-untyped-def]
    return each(lambda one: true_snr(seed, one, tick), device)


def estimates(seed, tick, time, device, snr):  # type: ignore[no-untyped-def]
    return Signal(snr, each(lambda one: believed_snr(seed, one, tick), device))


def places(idle, count, rng, seed: Annotated[int, arg("of the world", key="seed")] = 0):  # type: ignore[no-untyped-def]
    return choice(seed, idle.device.tolist(), idle.jobs.tolist(), count)


def decides(  # type: ignore[no-untyped-def]
    candidates,
    limit,
    rng,
    seed: Annotated[int, arg("of the world", key="seed")] = 0,
    cost: Annotated[float, arg("of a symbol", key="radio.joules_per_symbol")] = 0.0,
    joint: bool = False,
):
    view = candidates.uplink
    rows = [
        {
            "device": device,
            "battery": None if candidates.battery is None else candidates.battery[at],
            "blocks": view.capacity()[at].tolist(),
        }
        for at, device in enumerate(candidates.device.tolist())
    ]
    found = decision(seed, candidates.tick, rows, limit, view.symbols, joint, cost)
    at = {device: position for position, device in enumerate(candidates.device.tolist())}
    picked = np.array([at[row["device"]] for row in found], np.int64)
    if not joint:
        return picked

    def column(name: str, kind: Any = float) -> Any:
        return np.array([row[name] for row in found], kind)

    block = column("block", int) if view.snr.shape[1] > 1 else None
    symbols, metrics = column("symbols"), {"joint": float(len(found))}
    return Decision(picked, symbols, power=column("power"), block=block, speed=column("speed"), metrics=metrics)
