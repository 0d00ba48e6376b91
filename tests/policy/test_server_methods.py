"""Server methods against loops over plain numbers, each written from its paper, and the limits that are known of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fedtide
from aggregation import aggregated, cohort, stepped
from fedtide import config
from fedtide.aggregate import asynchronous
from fedtide.aggregate.averages import AverageDeltas, Mix
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts
from helpers import ROOT

N, D, ROUNDS = 6, 5, 12


def made(name: str, **args: Any) -> Any:
    return registry.resolve("aggregator", name, args)


def rounds(seed: int, everyone: bool = False) -> Iterator[Any]:
    """Yield what arrives in some aggregations: devices [r], starts, updates [r d], weights, age [r]."""
    rng = np.random.default_rng(seed)
    for _ in range(ROUNDS):
        r = N if everyone else int(rng.integers(1, N + 1))
        device = np.sort(rng.permutation(N)[:r])
        starts, updates = rng.standard_normal((2, r, D)).astype(np.float32)
        yield device, starts, updates, rng.dirichlet(np.ones(r)), rng.integers(0, 6, r)


def played(aggregator: Any, model: Any, arrivals: Any) -> list[Any]:
    """Return the model after every aggregation, memory going through the server's checks."""
    models, memory = [], None
    for device, starts, updates, weights, age in arrivals:
        model, memory = stepped(aggregator, memory, model, starts, updates, cohort(weights, age, device, N))
        models.append(model)
    return models


# ---- from the papers: one aggregation at a time, lists of numbers; `kept` is whatever the method remembers


def mean_step(updates: Any, weights: Any) -> list[float]:
    return [sum(w * u[j] for w, u in zip(weights, updates, strict=True)) for j in range(D)]


def fedavgm(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    delta = mean_step(update, weight)
    kept["v"] = [0.7 * v + g for v, g in zip(kept.get("v", [0.0] * D), delta, strict=True)]
    return [a + 0.5 * v for a, v in zip(x, kept["v"], strict=True)]


def adaptive(kind: str, tau: float = 0.1, corrected: bool = False) -> Callable[..., list[float]]:
    """FedAdam, FedYogi and FADAS; corrected: as in the code of FADAS's authors, where t counts aggregations from 1."""

    def step(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
        delta, new = mean_step(update, weight), []
        first = 0.0 if kind == "fadas" else tau**2
        kept["t"] = kept.get("t", 0) + 1
        unbiased = (1 - 0.8 ** kept["t"], 1 - 0.9 ** kept["t"]) if corrected else (1.0, 1.0)
        m, v, top = (
            kept.setdefault("m", [0.0] * D),
            kept.setdefault("v", [first] * D),
            kept.setdefault("top", [0.0] * D),
        )
        eta = 0.05
        if kind == "fadas" and max(age) > 2:
            eta = eta / max(age)
        for j in range(D):
            m[j] = 0.8 * m[j] + 0.2 * delta[j]
            g2 = delta[j] * delta[j]
            if kind == "yogi":
                if v[j] > g2:
                    v[j] -= 0.1 * g2
                elif v[j] < g2:
                    v[j] += 0.1 * g2
            else:
                v[j] = 0.9 * v[j] + 0.1 * g2
            top[j] = max(top[j], v[j])
            below = math.sqrt(top[j] if kind == "fadas" else v[j]) / math.sqrt(unbiased[1]) + tau
            new.append(x[j] + eta / unbiased[0] * m[j] / below)
        return new

    return step


def ca2fl(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    h = kept.setdefault("h", {k: [0.0] * D for k in range(N)})
    new = []
    for j in range(D):
        v = sum(h[k][j] for k in range(N)) / N
        for k, u, w in zip(device, update, weight, strict=True):
            v += w * (u[j] - h[k][j])
        new.append(x[j] + 0.5 * v)
    for k, u in zip(device, update, strict=True):
        h[k] = list(u)
    return new


def mifa(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    for k, u in zip(device, update, strict=True):
        kept[k] = list(u)
    return [x[j] + 0.5 * sum(u[j] for u in kept.values()) / N for j in range(D)]


def ace(window: int) -> Callable[..., list[float]]:
    """All that were heard in the last so many aggregations count alike."""

    def step(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
        kept["t"] = kept.get("t", 0) + 1
        for k, u in zip(device, update, strict=True):
            kept[k] = (kept["t"], list(u))
        fresh = [kept[k][1] for k in range(N) if k in kept and kept["t"] - kept[k][0] < window]
        return [x[j] + 0.5 * sum(u[j] for u in fresh) / len(fresh) for j in range(D)]

    return step


def fedasmu(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    """The slope of a share is taken by differences, the gradient of the loss from the update over eta = 0.05, one step."""
    t = kept["t"] = kept.get("t", 0) + 1
    new = list(x)

    def share(control: list[float], t: int, a: int) -> float:
        xi = max(control[0] / (math.sqrt(t) * (a + 1) ** control[1]) + control[2], 0.0)
        return 2.0 * xi / (1 + 2.0 * xi)

    for k, b, u, w, a in zip(device, start, update, weight, age, strict=True):
        control = list(kept.get(k, (None, [0.8, 0.5, 0.1]))[1])
        if k in kept:
            was, _, then, late, heavy = kept[k]
            downhill = sum(g * v for g, v in zip(u, was, strict=True)) / 0.05
            old = list(control)
            for i in range(3):
                up, down = ([c + (h if j == i else 0) for j, c in enumerate(old)] for h in (1e-6, -1e-6))
                control[i] += 0.01 * downhill * heavy * (share(up, then, late) - share(down, then, late)) / 2e-6
            control[1] = max(control[1], 0.0)
        towards = [b[j] + u[j] - x[j] for j in range(D)]
        kept[k] = (towards, control, t, a, w)
        for j in range(D):
            new[j] += w * share(control, t, a) * towards[j]
    return new


def fedat(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    models, times = kept.setdefault("models", [list(x) for _ in range(3)]), kept.setdefault("times", [0, 0, 0])
    for m in range(3):
        inside = [i for i, a in enumerate(age) if (a // 2 == m if m < 2 else a >= 4)]
        if inside:
            total = sum(weight[i] for i in inside)
            models[m] = [sum(weight[i] / total * (start[i][j] + update[i][j]) for i in inside) for j in range(D)]
            times[m] += 1
    share = [(times[2 - m] + 1) / (sum(times) + 3) for m in range(3)]
    return [sum(share[m] * models[m][j] for m in range(3)) for j in range(D)]


def fedasync_hinge(
    x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any
) -> list[float]:
    late = sum(w * a for w, a in zip(weight, age, strict=True))
    s = 1.0 if late <= 2 else 1 / (0.5 * (late - 2) + 1)
    alpha = 0.6 * s
    local = [sum(w * (b[j] + u[j]) for w, b, u in zip(weight, start, update, strict=True)) for j in range(D)]
    return [(1 - alpha) * a + alpha * b for a, b in zip(x, local, strict=True)]


def median(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    new = []
    for j in range(D):
        column = sorted(u[j] for u in update)
        half = len(column) // 2
        new.append(x[j] + (column[half] if len(column) % 2 else (column[half - 1] + column[half]) / 2))
    return new


def trimmed(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    new = []
    for j in range(D):
        column = sorted(u[j] for u in update)
        for _ in range(len(column) // 4):  # beta 1/4
            column = column[1:-1]
        new.append(x[j] + sum(column) / len(column))
    return new


def krum(kept_ones: int) -> Callable[..., list[float]]:
    def step(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
        scores = []
        for i, u in enumerate(update):
            far = sorted(
                sum((a - b) ** 2 for a, b in zip(u, other, strict=True)) for j, other in enumerate(update) if j != i
            )
            scores.append((sum(far[: max(len(update) - 1 - 2, 1)]), sum(a * a for a in u), i))
        best = [update[i] for *_, i in sorted(scores)[:kept_ones] or sorted(scores)[:1]]
        return [x[j] + sum(u[j] for u in best) / len(best) for j in range(D)]

    return step


def reputation(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    way, score = kept.setdefault("way", {}), kept.setdefault("score", {})

    def trusted() -> set[int]:
        sizes = [abs(score.get(k, 0.0)) for k in way]
        return {k for k in way if score.get(k, 0.0) >= -0.3 * float(np.median(sizes))}

    length = {k: math.sqrt(sum(a * a for a in u)) for k, u in zip(device, update, strict=True)}
    for k, u in zip(device, update, strict=True):
        way[k] = [a / length[k] for a in u]
    before = trusted()
    for k in device:
        others = [j for j in before if j != k]
        if others:
            agreed = [sum(a * b for a, b in zip(way[k], way[j], strict=True)) for j in others]
            score[k] = score.get(k, 0.0) + float(np.median(agreed))
    chosen = [(k, u) for k, u in zip(device, update, strict=True) if k in trusted()]
    if not chosen:
        return x
    most = float(np.median([length[k] for k, _ in chosen]))
    return [x[j] + 0.5 * sum(u[j] * min(1, most / length[k]) for k, u in chosen) / len(chosen) for j in range(D)]


def clipped(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    new = list(x)
    for w, u in zip(weight, update, strict=True):
        norm = math.sqrt(sum(a * a for a in u))
        for j in range(D):
            new[j] += w * u[j] * (1.5 / norm if norm > 1.5 else 1)
    return new


def asyncfeded(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    new = list(x)
    for b, u, w in zip(start, update, weight, strict=True):
        gamma = math.dist(x, b) / math.hypot(*u)
        for j in range(D):
            new[j] += w * 2.0 / (gamma + 1.5) * u[j]
    return new


def fedac(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    m, v = kept.setdefault("m", [0.0] * D), kept.setdefault("v", [0.0] * D)
    shares = []
    for b, u, w in zip(start, update, weight, strict=True):
        far = math.dist(x, b) * math.hypot(*u)
        shares.append(w * max(sum((x[j] - b[j]) * u[j] for j in range(D)) / far, 0.1))
    delta = mean_step(update, [each / sum(shares) for each in shares])
    new = []
    for j in range(D):
        m[j] = 0.8 * m[j] + 0.2 * delta[j]
        v[j] = 0.9 * v[j] + 0.1 * delta[j] ** 2
        new.append(x[j] + 0.05 * (0.8 * m[j] + 0.2 * delta[j]) / (math.sqrt(v[j]) + 0.1))
    return new


def basgd(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    buffers = kept.setdefault("buffers", [[] for _ in range(3)])
    for k, u in zip(device, update, strict=True):
        buffers[k % 3].append(u)
    if not all(buffers):
        return x
    means = [[sum(u[j] for u in each) / len(each) for j in range(D)] for each in buffers]
    kept["buffers"] = [[] for _ in range(3)]
    return [x[j] + sorted(mean[j] for mean in means)[1] for j in range(D)]


def aflguard(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
    """The server's own update is the mean of all, as `stepped` has it."""
    own = [sum(u[j] for u in update) / len(update) for j in range(D)]
    length = sum(each * each for each in own) ** 0.5
    new = list(x)
    for u, w in zip(update, weight, strict=True):
        if sum((u[j] - own[j]) ** 2 for j in range(D)) ** 0.5 <= 1.2 * length:
            new = [new[j] + 0.5 * w * u[j] for j in range(D)]
    return new


def kardam(compared: str) -> Callable[..., list[float]]:
    """Decay 0.3 per tick of age; half of the coefficients are small enough."""

    def step(x: list[float], kept: Any, device: Any, start: Any, update: Any, weight: Any, age: Any) -> list[float]:
        known, last = kept.setdefault("K", {}), kept.setdefault("last", {})
        for k, b, u in zip(device, start, update, strict=True):
            if k in last:
                known[k] = math.dist(u, last[k][1]) / math.dist(b, last[k][0])
            last[k] = (b, u)
        ordered, accepted = sorted(known.values()), []
        for k, u, w, a in zip(device, update, weight, age, strict=True):
            if compared == "own":
                value = known.get(k)
            else:
                value = math.dist(u, kept["U"]) / math.dist(x, kept["x"]) if "U" in kept else None
            half = (len(ordered) - 1) / 2
            fits = value is None or not ordered or value <= (ordered[math.floor(half)] + ordered[math.ceil(half)]) / 2
            kept["row"] = 0 if fits or kept.get("row", 0) >= N else kept.get("row", 0) + 1
            if kept["row"] == 0:
                accepted.append((u, w, a))
        if not accepted:
            return x
        total = sum(w for _, w, _ in accepted)
        kept["U"] = [sum(w / total * u[j] for u, w, _ in accepted) for j in range(D)]
        kept["x"] = list(x)
        return [x[j] + sum(w * math.exp(-0.3 * a) * u[j] for u, w, a in accepted) for j in range(D)]

    return step


ADAPTIVE = {"rate": 0.05, "beta1": 0.8, "beta2": 0.9}
PAPERS: dict[str, tuple[str, dict[str, Any], Callable[..., list[float]]]] = {
    "FedAvgM": ("server_momentum", {"rate": 0.5, "momentum": 0.7}, fedavgm),
    "FedAdam": ("server_adam", {**ADAPTIVE, "tau": 0.1}, adaptive("adam")),
    "FedYogi": ("server_yogi", {**ADAPTIVE, "tau": 0.1}, adaptive("yogi")),
    "FADAS": ("fadas", {**ADAPTIVE, "epsilon": 0.1, "threshold": 2}, adaptive("fadas", corrected=True)),
    "FADAS as printed": (
        "fadas",
        {**ADAPTIVE, "epsilon": 0.1, "threshold": 2, "bias_correction": False},
        adaptive("fadas"),
    ),
    "FedAC": ("fedac", {**ADAPTIVE, "epsilon": 0.1}, fedac),
    "BASGD": ("basgd", {"buffers": 3}, basgd),
    "AFLGuard": ("aflguard", {"bound": 1.2, "server_rate": 0.5}, aflguard),
    "Kardam": ("kardam", {"quantile": 0.5, "decay": 0.3}, kardam("server")),
    "Kardam, own": ("kardam", {"quantile": 0.5, "decay": 0.3, "compared": "own"}, kardam("own")),
    "CA2FL": ("ca2fl", {"server_rate": 0.5}, ca2fl),
    "MIFA": ("mifa", {"server_rate": 0.5}, mifa),
    "ACE": ("ace", {"server_rate": 0.5}, ace(ROUNDS)),
    "ACED": ("ace", {"server_rate": 0.5, "window": 2}, ace(2)),
    "FedASMU": (
        "fedasmu",
        {"mu": 2.0, "scale": 0.8, "floor": 0.1, "control_rate": 0.01, "learning_rate": 0.05},
        fedasmu,
    ),
    "FedAT": ("fedat", {"tiers": 3, "width": 2}, fedat),
    "FedAsync": ("mix_hinge", {"mixing": 0.6, "slope": 0.5, "window": 2}, fedasync_hinge),
    "AsyncFedED": ("asyncfeded", {"scale": 2.0, "epsilon": 1.5}, asyncfeded),
    "median": ("median", {}, median),
    "trimmed mean": ("trimmed_mean", {"trim": 0.25}, trimmed),
    "Krum": ("krum", {}, krum(1)),
    "multi-Krum, all but one": ("krum", {"kept": None}, krum(-1)),
    "Reputation": ("reputation", {"least": -0.3, "server_rate": 0.5}, reputation),
    "multi-Krum": ("krum", {"kept": 3}, krum(3)),
    "clipping": ("clipped_mean", {"max_norm": 1.5}, clipped),
}


@pytest.mark.parametrize("method", PAPERS)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_its_paper_says(method: str, seed: int) -> None:
    name, args, paper = PAPERS[method]
    model = np.linspace(-1, 1, D).astype(np.float32)
    x, kept = [float(each) for each in model], {}  # type: ignore[var-annotated]
    for got, (device, *arrived) in zip(played(made(name, **args), model, rounds(seed)), rounds(seed), strict=True):
        x = paper(x, kept, device.tolist(), *(each.tolist() for each in arrived))
        np.testing.assert_allclose(got, x, rtol=1e-5, atol=2e-6)


# ---- known limits


@pytest.mark.parametrize("inner", ["average_models", "average_deltas", "buffered_mean", "mix", "ca2fl", "median"])
def test_fedavgm_without_momentum_is_its_inner_to_the_bit(inner: str) -> None:
    model = np.ones(D, np.float32)
    outer = made("server_momentum", momentum=0.0, inner=inner)
    alone = played(made(inner), model, rounds(1))
    # mix alone rounds one of its two products to float32, inside it does not
    np.testing.assert_allclose(played(outer, model, rounds(1)), alone, rtol=0, atol=1e-6 if inner == "mix" else 0)
    assert not np.array_equal(played(made("server_momentum", inner=inner), model, rounds(1))[1:], alone[1:])


def test_arguments_reach_the_inner_aggregator_and_its_memory_is_kept_apart() -> None:
    model = np.ones(D, np.float32)
    outer = made(
        "server_adam", inner="server_momentum", inner_args={"inner": "mifa", "inner_args": {"server_rate": 0.5}}
    )
    memory = outer.init(model, N)
    assert {"mean", "square", "inner_momentum", "inner_inner_last"} == {*memory}
    assert memory["inner_inner_last"].shape == (N, D)  # the fleet's size goes through
    half = made("server_momentum", momentum=0.0, inner="mifa", inner_args={"server_rate": 0.5})
    assert np.array_equal(played(half, model, rounds(2)), played(made("mifa", server_rate=0.5), model, rounds(2)))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"inner": "avarage_models"}, ("avarage_models", "average_models")),
        ({"inner": "mix", "inner_args": {"rate": 1}}, ("mix", "mixing, staleness")),
        ({"inner": "krum", "inner_args": {"kept": 0}}, ("kept=0", "greater than or equal to 1")),
        ({"momentum": 1.0}, ("momentum=1.0", "less than 1")),
        ({"inner": "server_momentum"}, ("'server_momentum' puts ServerMomentum inside itself", "name another inside")),
        (
            {"inner": "server_adam", "inner_args": {"inner": "server_momentum"}},
            ("'server_adam' puts ServerMomentum inside itself",),
        ),
    ],
)
def test_what_cannot_be_inside_is_said_at_once(args: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(FedtideError) as caught:
        made("server_momentum", **args)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["server_momentum", "server_adam", "server_yogi", "fadas"])
def test_the_order_of_inner_arguments_does_not_matter(name: str) -> None:
    """Else a run that is resumed with another order would be refused as another."""
    deep = {"inner": "mix", "inner_args": {"staleness": 1.0, "mixing": 0.5}}
    turned = {"inner_args": {"mixing": 0.5, "staleness": 1.0}, "inner": "mix"}
    inside = "server_yogi" if name == "server_adam" else "server_adam"
    around = {"name": name, "inner": inside}
    one, other = (config.experiment({"policy.aggregator": {**around, "inner_args": each}}) for each in (deep, turned))
    assert one == other
    assert repr(made(name, **one.policy.aggregator.args)) == repr(made(name, **other.policy.aggregator.args))


def test_fedasyncs_hinge_is_constant_inside_its_window() -> None:
    def moved(aggregator: Any, age: int) -> Any:
        one = np.ones((1, D), np.float32)
        return aggregated(aggregator, np.zeros(D, np.float32), one, one, np.ones(1), np.array([age]))

    hinged, whole = made("mix_hinge", mixing=0.6, slope=10.0, window=4), Mix(0.6)
    for age in range(5):
        assert np.array_equal(moved(hinged, age), moved(whole, age))
    np.testing.assert_allclose(moved(hinged, 6), moved(whole, 6) / 21, rtol=1e-6)


def test_ca2fl_with_everyone_in_every_buffer_is_fedbuff_however_stale() -> None:
    """Weights 1/N: then the mean of what is cached is what the buffer takes away."""
    model = np.ones(D, np.float32)
    everyone = [(*each[:3], np.full(N, 1 / N), each[4]) for each in rounds(3, everyone=True)]
    fedbuff = made("buffered_mean", staleness=0.0)
    np.testing.assert_allclose(played(made("ca2fl"), model, everyone), played(fedbuff, model, everyone), rtol=1e-5)
    some = list(rounds(3))
    calibrated, plain = played(made("ca2fl"), model, some), played(fedbuff, model, some)
    np.testing.assert_allclose(calibrated[0], plain[0], rtol=1e-6)  # nothing is cached yet
    assert not np.allclose(calibrated[-1], plain[-1], rtol=1e-2)


def test_mifa_with_everyone_is_the_mean() -> None:
    model = np.ones(D, np.float32)
    everyone = [(*each[:3], np.full(N, 1 / N), each[4]) for each in rounds(3, everyone=True)]
    np.testing.assert_allclose(
        played(made("mifa"), model, everyone), played(AverageDeltas(), model, everyone), rtol=1e-5
    )


def test_ace_is_mifa_once_everyone_was_heard() -> None:
    model = np.ones(D, np.float32)
    begun = [next(rounds(3, everyone=True)), *rounds(4)]
    assert np.array_equal(played(made("ace"), model, begun), played(made("mifa"), model, begun))
    assert not np.array_equal(played(made("ace", window=1), model, begun), played(made("mifa"), model, begun))


def test_fedasmu_counts_those_more_that_lead_the_same_way_again() -> None:
    model, way, here = np.zeros(D, np.float32), np.ones((1, D), np.float32), np.zeros(1, np.int64)

    def controls(second: Any) -> Any:
        aggregator, memory = made("fedasmu", control_rate=0.01), None
        now: Any = model
        for update in (way, second):
            now, memory = stepped(aggregator, memory, now, now[None], update, cohort(np.ones(1), here, here, N))
        return memory["control"]  # type: ignore[index]

    assert np.all(controls(way)[0, [0, 2]] > controls(0 * way)[0, [0, 2]])
    assert np.all(controls(-way)[0, [0, 2]] < controls(0 * way)[0, [0, 2]])
    assert np.array_equal(controls(way)[1:], np.tile([1.0, 0.5, 0.0], (N - 1, 1)))  # nobody else's


def test_fadas_corrects_its_bias_unless_told_otherwise() -> None:
    """Ten equal steps: the code of its authors goes by eta each time, their paper's formula by twice as much at the tenth."""
    model, one = np.zeros(D, np.float32), np.ones((1, D), np.float32)
    ten = [(np.array([0]), one, one, np.ones(1), np.zeros(1, np.int64))] * 10
    for args, tenth in (({}, 0.0100), ({"bias_correction": False}, 0.0211)):
        models = played(made("fadas", rate=0.01, **args), model, ten)
        np.testing.assert_allclose(models[9] - models[8], tenth, atol=5e-5)


SMALL_TAU: dict[str, tuple[dict[str, Any], Callable[..., list[float]]]] = {
    "server_adam": ({**ADAPTIVE, "tau": 1e-9}, adaptive("adam", 1e-9)),
    "server_yogi": ({**ADAPTIVE, "tau": 1e-9}, adaptive("yogi", 1e-9)),
    "fadas": ({**ADAPTIVE, "epsilon": 1e-9, "threshold": 2}, adaptive("fadas", 1e-9, corrected=True)),
}


@pytest.mark.parametrize("inner", ["average_deltas", "buffered_mean", "trimmed_mean", "clipped_mean"])
@pytest.mark.parametrize("name", [*SMALL_TAU])
def test_a_step_that_is_small_beside_the_model_keeps_its_digits(name: str, inner: str) -> None:
    """Updates of 1e-7 on a model of 1: in float32 they would be off by half their size, and tau hides nothing."""
    args, paper = SMALL_TAU[name]
    inner_args = {"buffered_mean": {"staleness": 0.0}, "trimmed_mean": {"trim": 0.0}}.get(inner, {})
    aggregator = made(name, **args, inner=inner, inner_args=inner_args)
    model, kept, memory = np.linspace(-1, 1, D).astype(np.float32), {}, None  # type: ignore[var-annotated]
    for device, starts, updates, _, age in rounds(1):
        small, even = (1e-7 * updates).astype(np.float32), np.full(len(age), 1 / len(age))
        wanted = paper(
            model.tolist(), kept, device.tolist(), starts.tolist(), small.tolist(), even.tolist(), age.tolist()
        )
        model, memory = stepped(aggregator, memory, model, starts, small, cohort(even, age, device, N))
        np.testing.assert_allclose(model, wanted, rtol=0, atol=2e-7)


def test_fadas_slows_down_only_beyond_its_threshold() -> None:
    model, start, update = np.zeros(D, np.float32), np.zeros((1, D), np.float32), np.ones((1, D), np.float32)

    def moved(age: int) -> Any:
        return played(made("fadas", threshold=3), model, [(np.array([0]), start, update, np.ones(1), np.array([age]))])[
            0
        ]

    assert np.array_equal(moved(3), moved(0))
    np.testing.assert_allclose(moved(8), moved(0) / 8, rtol=1e-6)


@pytest.mark.parametrize(("name", "args"), [("median", {}), ("trimmed_mean", {}), ("krum", {}), ("krum", {"kept": 2})])
@pytest.mark.parametrize("attack", [1e9, -1e9, 30.0])
def test_one_attacker_of_five_does_not_move_it_beyond_the_honest_range(name: str, args: Any, attack: float) -> None:
    rng = np.random.default_rng(5)
    model, honest = np.zeros(D, np.float32), rng.standard_normal((4, D)).astype(np.float32)
    for place in range(5):
        updates = np.insert(honest, place, np.float32(attack), axis=0)
        weights = np.where(np.arange(5) == place, 0.96, 0.01)  # it says that it holds most of the data
        stale = rng.standard_normal((5, D)).astype(np.float32)
        new = made(name, **args)(model, stale, updates, weights, np.arange(5))
        assert np.all(new >= honest.min(axis=0))
        assert np.all(new <= honest.max(axis=0))
        plain = aggregated(AverageDeltas(), model, stale, updates, weights, np.arange(5))
        assert not np.all((plain >= honest.min(axis=0)) & (plain <= honest.max(axis=0)))


@pytest.mark.parametrize("strength", [1.0, 1e6])
def test_reputation_stops_two_liars_of_seven_also_when_most_of_those_that_arrive_lie(strength: float) -> None:
    """Honest updates go one way, with as much noise as signal; no weight helps the liars."""
    rng, dims = np.random.default_rng(2), 400
    way = np.ones(dims) / np.sqrt(dims)

    def moved(arriving: Any, memory: Any) -> Any:
        r = len(arriving)
        updates = way + rng.standard_normal((r, dims)) / np.sqrt(dims)
        updates[arriving < 2] *= -strength
        lie = np.where(arriving < 2, 1e6, 1.0)
        rows = updates.astype(np.float32)
        return stepped(
            made("reputation"),
            memory,
            np.zeros(dims, np.float32),
            rows,
            rows,
            cohort(lie / lie.sum(), 0 * arriving, arriving, 7),
        )

    memory = None
    for _ in range(3):
        model, memory = moved(np.arange(7), memory)
    assert model @ way > 0.8
    assert np.all(memory["score"][:2] < 0)
    assert np.all(memory["score"][2:] > 0)
    outnumbered, memory = moved(np.array([0, 1, 4]), memory)
    assert outnumbered @ way > 0.5
    alone, _ = moved(np.array([0]), memory)
    assert not alone.any()


def test_basgd_withstands_one_attacker_of_five() -> None:
    rng = np.random.default_rng(5)
    model, updates = np.zeros(D, np.float32), rng.standard_normal((5, D)).astype(np.float32)
    for liar in range(5):
        false = np.where(np.arange(5)[:, None] == liar, np.float32(1e9), updates)
        new = aggregated(made("basgd"), model, updates, false, np.full(5, 0.2), np.arange(5))
        assert np.all(np.abs(new) <= np.abs(updates).max(axis=0))


def test_aflguard_leaves_out_what_is_far_from_the_servers_own_update() -> None:
    model, own = np.zeros(D, np.float32), np.ones(D, np.float32)
    updates = np.stack([1.5 * own, -own, 0.5 * own, 9 * own])
    who = cohort(np.full(4, 0.25), np.zeros(4, np.int64))._replace(server_update=own)
    new, _ = stepped(made("aflguard", bound=1.0), None, model, updates, updates, who)
    np.testing.assert_allclose(new, 0.5 * own)


def test_a_server_trains_on_its_own_samples() -> None:
    """With a bound that nobody misses it is FedAvg on updates, to the bit; with one that all miss the model stays."""
    base = {"data": {"name": "synthetic", "num_train": 400, "num_test": 50, "num_held_out": 20}, "seed": 3}
    more = {
        "learning": {"model": "softmax"},
        "fleet": {"num_devices": 8},
        "policy": {"limit": 3},
        "timeline": {"horizon": 1},
    }
    e = fedtide.experiment(base, more)

    def model(**keys: Any) -> Any:
        return fedtide.simulate(fedtide.experiment(e, **{f"policy.{key}": value for key, value in keys.items()})).model

    assert np.array_equal(model(aggregator={"name": "aflguard", "bound": 1e6}), model(aggregator="average_deltas"))
    first = fedtide.simulate(fedtide.experiment(e, **{"policy.aggregator": {"name": "aflguard", "bound": 1e-6}}))
    assert len({row.test_loss for row in first.rounds if row.test_loss is not None}) == 1
    inside = model(aggregator={"name": "server_adam", "inner": {"name": "aflguard", "bound": 1e6}})
    assert np.array_equal(inside, model(aggregator={"name": "server_adam", "inner": "average_deltas"}))
    with pytest.raises(FedtideError, match=r"data\.num_held_out"):
        fedtide.simulate(fedtide.experiment(e, **{"data.num_held_out": None, "policy.aggregator": "aflguard"}))


def test_basgd_has_no_more_buffers_than_devices() -> None:
    """Some would never fill, and the model would stay where it began."""
    assert made("basgd").init(np.zeros(3, np.float32), 4)["sums"].shape == (4, 3)


def test_basgd_with_one_buffer_is_the_mean_and_with_an_empty_one_waits() -> None:
    model, updates = np.ones(D, np.float32), np.random.default_rng(0).standard_normal((4, D)).astype(np.float32)
    even, age = np.full(4, 0.25), np.zeros(4, np.int64)
    mean = aggregated(AverageDeltas(), model, updates, updates, even, age)
    np.testing.assert_allclose(
        aggregated(made("basgd", buffers=1), model, updates, updates, even, age), mean, rtol=1e-6
    )
    few = [(np.arange(4), updates, updates, even, age), (np.array([4]), updates[:1], updates[:1], np.ones(1), age[:1])]
    first, second = played(made("basgd"), model, few)
    assert np.array_equal(first, model)
    np.testing.assert_allclose(second, model + np.median([*updates, updates[0]], axis=0), rtol=1e-6)


@pytest.mark.parametrize(("compared", "attack"), [("own", 1e4), ("server", 1e4), ("server", -1.0)])
def test_kardam_rejects_what_changes_more_than_models_do(compared: str, attack: float) -> None:
    """Gradients of a bowl, -theta / 10, and a little noise; at last device 0 sends something else."""
    rng, first = np.random.default_rng(2), np.full(D, 4, np.float32)
    aggregator, model, memory = made("kardam", compared=compared), first, None
    for t in range(4 * N + 1):
        update = (-model[None] * rng.uniform(0.09, 0.11, (1, D))).astype(np.float32)
        sent = (np.float32(attack) if t == 4 * N else np.float32(1)) * update
        before, rejected = model, 0 if memory is None else int(memory["rejected"])
        who = cohort(np.ones(1), np.zeros(1, np.int64), np.array([t % N]), N)
        model, memory = stepped(aggregator, memory, model, model[None], sent, who)
    assert np.array_equal(model, before)
    assert np.all(model < first)
    assert memory is not None
    assert memory["rejected"] == rejected + 1


def test_clipping_bounds_what_one_device_does() -> None:
    model, updates = np.zeros(D, np.float32), np.array([[1e9] * D, [0.1] * D], np.float32)
    new = made("clipped_mean", max_norm=2.0)(model, updates, updates, np.array([0.25, 0.75]), np.zeros(2, np.int64))
    np.testing.assert_allclose(new, 0.25 * 2 / math.sqrt(D) + 0.75 * 0.1, rtol=1e-6)
    wide = made("clipped_mean", max_norm=1e12)
    for _, starts, each, weights, age in rounds(4):
        assert np.array_equal(
            wide(model, starts, each, weights, age), aggregated(AverageDeltas(), model, starts, each, weights, age)
        )


def test_trimmed_by_nothing_is_the_mean() -> None:
    model = np.ones(D, np.float32)
    for _, starts, updates, _, age in rounds(6):
        even = np.full(len(age), 1 / len(age))
        np.testing.assert_allclose(
            made("trimmed_mean", trim=0.0)(model, starts, updates, even, age),
            aggregated(AverageDeltas(), model, starts, updates, even, age),
            rtol=1e-6,
            atol=1e-7,
        )


@pytest.mark.parametrize(
    ("name", "of_two"), [("median", [2.0, 0.0]), ("trimmed_mean", [2.0, 0.0]), ("krum", [1.0, 0.0])]
)
def test_of_one_or_two_updates(name: str, of_two: list[float]) -> None:
    """One is taken as it is; of two, nobody can tell who lies: their mean, or the one that does less."""
    model, updates = np.zeros(2, np.float32), np.array([[3, 0], [1, 0]], np.float32)
    for order in ([0, 1], [1, 0]):
        new = made(name)(model, updates, updates[order], np.array([0.9, 0.1]), np.zeros(2, np.int64))
        assert new.tolist() == of_two
    alone = made(name)(model, updates[:1], updates[:1], np.ones(1), np.zeros(1, np.int64))
    assert alone.tolist() == [3.0, 0.0]


def test_what_fewer_than_half_sent_does_not_move_the_median() -> None:
    model, updates = np.ones(2, np.float32), np.array([[1, 1], [1, 1], [0, 1], [0, 1], [0, 0]], np.float32)
    new = made("median")(model, updates, updates, np.full(5, 0.2), np.zeros(5, np.int64))
    assert new.tolist() == [1.0, 2.0]


def test_every_aggregator_is_in_the_table_of_methods() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for name in builtin_parts("aggregator"):
        assert f"| `{name}` |" in page


@pytest.mark.parametrize("name", ["ca2fl", "mifa", "ace", "fedasmu"])
def test_a_cache_that_does_not_fit_is_refused_before_it_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    big = made(name)
    with pytest.raises(FedtideError) as caught:
        big.init(np.zeros(21_840, np.float32), 50_000)
    assert "\n" not in str(caught.value)
    for word in (f"policy.aggregator={name}", "fleet.num_devices=50,000", "21,840", "4.37 GB", "4 GB", "fewer devices"):
        assert word in str(caught.value)
    monkeypatch.setattr(asynchronous, "MOST_MEMORY", 4 * N * D)
    assert next(iter(made(name).init(np.zeros(D, np.float32), N).values())).shape == (N, D)
