"""The slow twin: the paper's system, written from its equations with plain loops.

It shares nothing with the fast path but the addresses of the random streams (`fedtide.rng`), so that both read the same
draws. Equation labels are those of the paper; unlabelled equations are named by their section. What the text leaves
open is settled as in the fast path's documentation: the norm is sent as a 32-bit float rounded up, a budget below 32
bits sends nothing, ties go to the lower device number (and the lexicographically first set).
"""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from fedtide.rng import stream
from fedtide.types import Samples

Model = list[float]


@dataclass
class Setup:
    """A system, given."""

    seed: int
    samples: Samples  # S
    num_labels: int  # omega
    partition: list[list[int]]  # S_k
    duration: list[float]  # T_k
    max_duration: float  # T_max
    framework: str  # fedavg, periodic, fedasync
    period: float  # T~
    horizon: float
    num_symbols: float  # n at T~ = T_max / 4
    snr_db: float
    large_scale: list[float]  # beta_k
    scheduler: str
    limit: int  # R
    gamma: float
    num_levels: int  # nu
    epochs: int
    batch_size: int
    learning_rate: float
    proximal: float  # lambda
    mixing: float  # alpha of FedAsync
    joules_per_symbol: float
    joules_per_sample: float
    symbol_rate: float


@dataclass
class Round:
    """What happened in one global iteration t."""

    time: float
    ready: list[int]
    picked: list[int]
    age: list[int]
    capacity: list[float]
    symbols: list[float]
    budget: list[float]
    sent: list[int]
    kept: list[int]
    weight: list[float]
    label_variance: float
    air_time: float  # so far, of what was sent
    joules: float  # so far, of sending and of training on every device that was ready


@dataclass
class Outcome:
    """All rounds and the model after the last."""

    rounds: list[Round] = field(default_factory=list)
    model: Model = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------- the clock (II-B)


def global_iterations(setup: Setup) -> list[tuple[Fraction, list[int]]]:
    """Return (time, K(t)) for t = 1, 2, ...: devices as little machines, in exact arithmetic."""
    horizon, period = Fraction(repr(setup.horizon)), Fraction(repr(setup.period))
    t_max = Fraction(repr(setup.max_duration))
    duration = [Fraction(each) for each in setup.duration]
    devices = range(len(duration))
    found: list[tuple[Fraction, list[int]]] = []
    if setup.framework == "fedavg":  # II-A: everyone trains, a round lasts as long as the slowest device may take
        now = t_max
        while now <= horizon:
            found.append((now, list(devices)))
            now += t_max
        return found
    finish = list(duration)  # everyone receives theta(1) at time 0
    if setup.framework == "periodic":  # II-B: at every time duration T~
        now = period
        while now <= horizon:
            ready = [k for k in devices if finish[k] <= now]
            found.append((now, ready))
            for k in ready:  # the updated model is broadcast to all devices in K(t), scheduled or not
                finish[k] = now + duration[k]
            now += period
        return found
    while True:  # fedasync: whoever finishes next is a global iteration of its own
        k = min(devices, key=lambda each: (finish[each], each))
        if finish[k] > horizon:
            return found
        found.append((finish[k], [k]))
        finish[k] += duration[k]


def symbols_per_iteration(setup: Setup, iterations: list[tuple[Fraction, list[int]]]) -> float:
    """Return the symbols of one global iteration (V-A): the same per time for every framework."""
    if setup.framework == "fedavg":
        return 4 * setup.num_symbols
    if setup.framework == "periodic":
        return setup.num_symbols * float(Fraction(repr(setup.period)) * 4 / Fraction(repr(setup.max_duration)))
    elapsed, uploads = iterations[-1][0], len(iterations)
    return 4 * setup.num_symbols * float(elapsed) / (setup.max_duration * uploads)  # 4 n T' / (T_max N_FA)


# ------------------------------------------------------------------------------------------------------- radio (II-C)


def capacities(setup: Setup, t: int) -> list[float]:
    """Return C_k(t) of all devices (eq:cpct), h ~ CN(0, 1)."""
    num_devices = len(setup.duration)
    rng = stream(setup.seed, "fading", t)
    real = [rng.standard_normal() / math.sqrt(2) for _ in range(num_devices)]
    imaginary = [rng.standard_normal() / math.sqrt(2) for _ in range(num_devices)]
    snr = 10 ** (setup.snr_db / 10)
    found = []
    for k in range(num_devices):
        gain = real[k] ** 2 + imaginary[k] ** 2  # |h_k(t)|^2
        found.append(math.log2(1 + snr * setup.large_scale[k] * gain))
    return found


def allocate(capacity: list[float], num_symbols: float) -> tuple[list[float], list[float]]:
    """Return n_k and n_k C_k with n_1 C_1 = n_2 C_2 = ... (eq:nc) and sum n_k = n."""
    inverse = 0.0
    for each in capacity:
        inverse += 1 / each
    bits = num_symbols / inverse
    return [bits / each for each in capacity], [bits for _ in capacity]


# -------------------------------------------------------------------------------------------------- compression (II-C)


def bits_needed(d: int, r: int, nu: int) -> float:
    """Return the left side of eq:bitQuota."""
    index_bits = math.log2(math.comb(d, r))
    return index_bits + 32 + r * (math.ceil(math.log2(nu + 1)) + 1)


def bits_on_the_air(d: int, r: int, nu: int) -> int:
    """Return what a packet of r elements takes: whole bits, no more than eq:bitQuota counts (a norm has no sign bit)."""
    if r == 0:
        return 0
    return (math.comb(d, r) - 1).bit_length() + 31 + r * (math.ceil(math.log2(nu + 1)) + 1)


def largest_r(d: int, budget: float, nu: int) -> int:
    """Return the maximal r that satisfies eq:bitQuota, -1 if none does: look at every one of them."""
    best = -1
    for r in range(d + 1):
        if bits_needed(d, r, nu) <= budget:
            best = r
    return best


def norm_as_sent(values: list[float]) -> float:
    """Return ||u||_2 as a 32-bit float that is not below it."""
    exact = math.sqrt(math.fsum(value * value for value in values))
    sent = struct.unpack("<f", struct.pack("<f", exact))[0]
    if sent < exact:
        pattern = struct.unpack("<I", struct.pack("<f", sent))[0]
        sent = struct.unpack("<f", struct.pack("<I", pattern + 1))[0]
    return sent


def compress(update: list[float], budget: float, nu: int, rng: np.random.Generator) -> tuple[list[float], int, int]:
    """Return u_hat, r and the bits spent: random sparsification, then Q_nu, element by element."""
    d = len(update)
    r = largest_r(d, budget, nu)
    if r < 0:
        return [0.0] * d, 0, 0
    reserved = list(range(d)) if r == d else sorted(rng.permutation(d).tolist()[:r])  # V_k(t)
    norm = norm_as_sent([update[i] for i in reserved])
    received = [0.0] * d
    if norm > 0:  # footnote: a zero vector is quantised to zeros
        for i in reserved:
            level = nu * abs(update[i]) / norm
            z = math.floor(level)
            if rng.random() < level - z:  # (z + 1) / nu with probability nu |u| / ||u|| - z
                z += 1
            sign = -1.0 if update[i] < 0 else 1.0
            received[i] = norm * sign * (z / nu)
    return received, r, bits_on_the_air(d, r, nu)


# ----------------------------------------------------------------------------------------------------- scheduling (III)


def omega(label_counts: list[list[int]], devices: Any) -> Fraction:
    """Return the label variance of a set of devices (III-A)."""
    num_labels = len(label_counts[0])
    total = [sum(label_counts[k][j] for k in devices) for j in range(num_labels)]
    mean = Fraction(sum(total), num_labels)
    return sum(((each - mean) ** 2 for each in total), Fraction(0))


def schedule(
    setup: Setup,
    t: int,
    ready: list[int],
    capacity: list[float],
    label_counts: list[list[int]],
    staleness: list[int],
    sq_norm: dict[int, float],
) -> list[int]:
    """Return Pi(t), |Pi(t)| = min(R, |K(t)|), in ascending order."""
    count = min(setup.limit, len(ready))
    if count == 0:
        return []
    by_channel = sorted(ready, key=lambda k: (-capacity[k], k))
    pool = by_channel[: max(len(setup.duration) // 2, setup.limit)]  # Pi' and C: up to 0.5 N, never fewer than R
    if setup.scheduler == "random":  # rdm
        order = stream(setup.seed, "schedule", t).permutation(len(ready)).tolist()
        picked = [ready[position] for position in order[:count]]
    elif setup.scheduler == "best_channel":  # BC
        picked = by_channel[:count]
    elif setup.scheduler == "best_channel_best_norm":  # BCBN2
        picked = sorted(pool, key=lambda k: (-sq_norm[k], k))[:count]
    elif setup.scheduler == "age_based":
        picked = sorted(pool, key=lambda k: (-staleness[k], k))[:count]
    else:  # III-A: argmin Omega over the subsets of Pi'
        picked, least = [], None
        for subset in itertools.combinations(sorted(pool), count):
            value = omega(label_counts, subset)
            if least is None or value < least:  # the lexicographically first of the best
                picked, least = list(subset), value
    return sorted(picked)


# ------------------------------------------------------------------------------------------------------------ learning


def local_update(setup: Setup, start: Model, k: int, version: int, learning_rate: float) -> list[float]:
    """Return u_k(t) = theta_k(t, E) - theta_k(t, 0) (eq:local_update) of a linear softmax model."""
    origin = torch.tensor(start, dtype=torch.float32)
    theta = origin.clone()
    rng = stream(setup.seed, "batches", k, version)
    num_inputs = setup.samples.images[0].size
    for _ in range(setup.epochs):
        order = rng.permutation(np.array(setup.partition[k]))
        for begin in range(0, len(order), setup.batch_size):
            batch = order[begin : begin + setup.batch_size]  # B_k(t, tau)
            theta = theta.detach().requires_grad_(True)
            weight = theta[: setup.num_labels * num_inputs].view(setup.num_labels, num_inputs)
            bias = theta[setup.num_labels * num_inputs :]
            loss = torch.zeros(())
            for i in batch:
                logits = weight @ torch.from_numpy(setup.samples.images[i].reshape(-1)) + bias
                loss = loss + torch.logsumexp(logits, 0) - logits[int(setup.samples.labels[i])]
            (gradient,) = torch.autograd.grad(loss / len(batch), theta)
            with torch.no_grad():  # eq:localItUpdate_async
                theta = theta - learning_rate * (gradient + setup.proximal * (theta - origin))
    return (theta.detach() - origin).tolist()


def as_float32(model: Model) -> Model:
    """Return a model as the server stores it."""
    return [struct.unpack("<f", struct.pack("<f", each))[0] for each in model]


def simulate(setup: Setup, initial_model: Model) -> Outcome:
    """Play all global iterations, one after the other; every ready device is trained."""
    num_devices = len(setup.duration)
    label_counts = [
        [sum(int(setup.samples.labels[i]) == label for i in mine) for label in range(setup.num_labels)]
        for mine in setup.partition
    ]  # b_k
    iterations = global_iterations(setup)
    num_symbols = symbols_per_iteration(setup, iterations)
    theta = {1: list(initial_model)}  # every global model, by t
    received_at = {1: 0.0}
    last_ready = [0] * num_devices  # max{t' < t : k in K(t')}, 0 if never
    history: list[list[int]] = [[]]  # Pi(t'), t' = 0, 1, ...
    outcome, air_time, joules = Outcome(), 0.0, 0.0
    for t, (time, ready) in enumerate(iterations, 1):
        begun = [last_ready[k] + 1 for k in range(num_devices)]  # s_k(t)
        updates: dict[int, list[float]] = {}
        for k in ready:
            share = received_at[begun[k]] / setup.horizon
            rate = setup.learning_rate if share < 0.5 else setup.learning_rate / 2
            updates[k] = local_update(setup, theta[begun[k]], k, begun[k], rate)
        sq_norm = {k: math.fsum(each * each for each in update) for k, update in updates.items()}
        staleness = [sum(k not in past for past in history) for k in range(num_devices)]  # c_k(t), V-C
        capacity = capacities(setup, t)
        picked = schedule(setup, t, ready, capacity, label_counts, staleness, sq_norm)
        symbols, budget = allocate([capacity[k] for k in picked], num_symbols) if picked else ([], [])
        decoded: dict[int, list[float]] = {}
        kept, sent = [], []
        for k, bits in zip(picked, budget, strict=True):
            decoded[k], r, spent = compress(updates[k], bits, setup.num_levels, stream(setup.seed, "compress", k, t))
            kept.append(r)
            sent.append(spent)
            air_time += (
                spent / capacity[k] / setup.symbol_rate
            )  # a link carries C_k bits a symbol; the rest of n_k is idle
            joules += spent / capacity[k] * setup.joules_per_symbol
        joules += sum(setup.epochs * len(setup.partition[k]) for k in ready) * setup.joules_per_sample
        age = [t - begun[k] for k in picked]  # eq:definition-alu
        mass = [len(setup.partition[k]) * setup.gamma**a for k, a in zip(picked, age, strict=True)]
        weight = [each / sum(mass) for each in mass]  # eq:wk_t_age
        following = list(theta[t])  # an empty K(t) leaves the model as it is
        if picked:
            for i in range(len(following)):
                average = 0.0
                for k, w in zip(picked, weight, strict=True):  # II-B: sum_k w_k [theta_k(t, 0) + u_hat_k(t)]
                    average += w * (theta[begun[k]][i] + decoded[k][i])
                if setup.framework == "fedasync":  # V-A, footnote: the alpha-filter, on models
                    average = (1 - setup.mixing) * theta[t][i] + setup.mixing * average
                following[i] = average
        theta[t + 1] = as_float32(following)
        received_at[t + 1] = float(time)
        for k in ready:
            last_ready[k] = t
        history.append(picked)
        outcome.rounds.append(
            Round(
                time=float(time),
                ready=ready,
                picked=picked,
                age=age,
                capacity=[capacity[k] for k in picked],
                symbols=symbols,
                budget=budget,
                sent=sent,
                kept=kept,
                weight=weight,
                label_variance=float(omega(label_counts, picked)),
                air_time=air_time,
                joules=joules,
            )
        )
    outcome.model = theta[len(iterations) + 1]
    return outcome
