"""Servers for asynchronous updates some of which may be false.

Kardam compares an update with earlier ones, BASGD takes the median of means, AFLGuard compares with an update of the server's own,
Reputation adds up how well a device agreed with the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedtide.aggregate.asynchronous import zeros_per_device
from fedtide.aggregate.averages import AverageDeltas
from fedtide.aggregate.base import Around, Cohort, Inner, InnerArgs, Rows, Sums, weighted_sum
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Memory, Vector, Vectors


class _Noted(NamedTuple):
    """A cohort, and what is remembered once all of it was added."""

    cohort: Cohort
    after: Memory


def _distance(one: Vector | Floats, other: Vector | Floats) -> float:
    """Return ||one - other||."""
    return float(np.sqrt(np.square(one.astype(np.float64) - other).sum()))


@dataclass(frozen=True)
class LipschitzFilter:
    """Kardam: theta(t+1) = theta(t) + eta sum_k w_k d(a_k) u_k over the accepted k, d(a) = 1 / (1 + a) or e^(-decay a).

    K_k = ||u_k - u_k'|| / ||theta_k - theta_k'|| of the last two updates of device k and the models that they began from.
    An update is accepted if C_k <= the `quantile` of all K. compared=server, as in the paper and its authors' code:
    C_k = ||u_k - U|| / ||theta(t) - theta(t')||, U the mean of the updates that were last accepted, at theta(t').
    compared=own: C_k = K_k. An update is also accepted if there is nothing to compare it with, and after N rejected ones in
    a row, as in the authors' code. Their code takes the largest K_k of the last 26, here it is the last one.

    The paper has one device at a time and gradients for updates. The devices there report K_k, here the server keeps what it
    needs for it. Left out: the filter of devices that come too often; here a device comes once per aggregation.

    Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, Asynchronous Byzantine machine learning (the case of SGD) (ICML 2018).
    """

    only_global: ClassVar[str] = "keeps the last update of every device, and devices go from edge to edge"
    quantile: Annotated[
        float, arg("quantile of the Lipschitz coefficients: (N - f) / N for f false devices", gt=0, le=1)
    ] = 2 / 3
    decay: Annotated[
        float | None, arg("rate of the dampening e^(-decay age); 0: none; default: 1 / (1 + age)", ge=0)
    ] = None
    compared: Annotated[
        Literal["server", "own"],
        arg("server: compared with the server's last step; own: with the device's last update"),
    ] = "server"
    server_rate: Annotated[float, arg("eta: server step size")] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return the last update and start of every device [N d], K [N] (-1: none), and the server's last accepted step."""
        zeros = zeros_per_device("kardam", num_devices, len(model), vectors=2)
        return {
            "update": zeros,
            "start": zeros.copy(),
            "coefficient": np.full(num_devices, -1.0),
            "heard": np.zeros(num_devices, np.bool_),
            "accepted": np.zeros(len(model)),
            "before": model.astype(np.float64),
            "rejected": np.zeros((), np.int64),
        }

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Noted:
        """Begin with what was remembered."""
        return _Noted(cohort, {name: value.copy() for name, value in state.items()})

    def add(self, acc: _Noted, rows: slice, starts: Vectors, updates: Vectors) -> _Noted:
        """Note the updates and how much they changed with their models."""
        after = acc.after
        for k, start, update in zip(acc.cohort.device[rows].tolist(), starts, updates, strict=True):
            moved = _distance(start, after["start"][k])
            if after["heard"][k] and moved > 0:
                after["coefficient"][k] = _distance(update, after["update"][k]) / moved
            after["start"][k], after["update"][k], after["heard"][k] = start, update, True
        return acc

    def finish(self, state: Memory, acc: _Noted, model: Vector) -> tuple[Vector, Memory]:
        """Add the accepted updates, the old ones dampened."""
        cohort, after = acc
        limit, measured = self._limit(after["coefficient"]), self._measured(acc, model)
        accepted = np.zeros(len(measured), np.bool_)
        for row, value in enumerate(measured):
            accepted[row] = not value > limit or after["rejected"] >= cohort.num_devices  # NaN: nothing to compare with
            after["rejected"][...] = 0 if accepted[row] else after["rejected"] + 1
        if not accepted.any():
            return model, after
        ages, updates = cohort.age[accepted], after["update"][cohort.device[accepted]]
        damped = 1 / (1.0 + ages) if self.decay is None else np.exp(-self.decay * ages)
        total = float(cohort.weights[accepted].sum())
        shares = cohort.weights[accepted] / total if total > 0 else np.full(len(ages), 1 / len(ages))
        after["accepted"], after["before"] = weighted_sum(shares, updates), model.astype(np.float64)
        new = weighted_sum(self.server_rate * cohort.weights[accepted] * damped, updates, model)
        return new.astype(model.dtype), after

    def _limit(self, coefficient: Floats) -> float:
        """Return the largest coefficient that is accepted; infinity if none is known."""
        known = coefficient[coefficient >= 0]
        return float(np.quantile(known, self.quantile)) if known.size else np.inf

    def _measured(self, acc: _Noted, model: Vector) -> Floats:
        """Return C_k of every row [r]; NaN where there is nothing to compare with."""
        cohort, after = acc
        if self.compared == "own":
            own = after["coefficient"][cohort.device]
            return np.where(own >= 0, own, np.nan)
        moved = _distance(model, after["before"])
        if not moved > 0:
            return np.full(len(cohort.device), np.nan)
        return np.array([_distance(after["update"][k], after["accepted"]) / moved for k in cohort.device.tolist()])


@dataclass(frozen=True)
class Buffers(Around):
    """BASGD: theta(t+1) = inner(h_1, ..., h_B), h_b the mean of what lies in buffer b, once no buffer is empty; else theta(t).

    An update of device k goes into buffer k mod B. The inner aggregator (a robust one) sees B fresh updates of equal weight;
    then all buffers are emptied. B > 2 f buffers withstand f false devices, of which each spoils one buffer. So long as a
    buffer is empty the model stays. The paper's server gives devices new buffers if it waits too long, which is left out:
    take few enough buffers that all fill up soon. There are never more buffers than devices. One buffer is the plain mean,
    in which policy.weighting has no say.

    Yang, Li, BASGD: buffered asynchronous SGD for Byzantine learning (ICML 2021).
    """

    buffers: Annotated[
        int, arg("B: number of buffers, more than twice the number of false devices", ge=1, le=10**5)
    ] = 5
    inner: Inner = "median"
    inner_args: InnerArgs = None

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return sums of nothing [B d], how many updates lie in each buffer [B], and what the inner aggregator begins with."""
        count = min(self.buffers, num_devices)
        own = {"sums": np.zeros((count, len(model))), "held": np.zeros(count, np.int64)}
        return {**own, **self.init_inner(model, count)}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Noted:
        """Begin with what lies in the buffers."""
        return _Noted(cohort, {**state, "sums": state["sums"].copy(), "held": state["held"].copy()})

    def add(self, acc: _Noted, rows: slice, starts: Vectors, updates: Vectors) -> _Noted:
        """Put the updates into their buffers."""
        for k, update in zip(acc.cohort.device[rows].tolist(), updates, strict=True):
            buffer = k % len(acc.after["held"])
            acc.after["sums"][buffer] += update
            acc.after["held"][buffer] += 1
        return acc

    def finish(self, state: Memory, acc: _Noted, model: Vector) -> tuple[Vector, Memory]:
        """Aggregate the buffers' means if no buffer is empty."""
        cohort, (sums, held) = acc.cohort, (acc.after["sums"], acc.after["held"])
        if not held.all():
            return model, acc.after
        count = len(held)
        rows, ones = np.arange(count), np.ones(count)
        inside = Cohort(rows, 0 * rows, held, ones / count, count, ones, cohort.rate)
        means = (sums / held[:, None]).astype(np.float32)
        begun = self.start_inner(state, model, inside)
        begun = self._inner.add(begun, slice(0, count), np.stack([model] * count), means)
        new, inner = self.finish_inner(state, begun, model)
        return new, {"sums": np.zeros_like(sums), "held": np.zeros_like(held), **inner}


@dataclass(frozen=True)
class ServerGuard(AverageDeltas):
    """AFLGuard: theta(t+1) = theta(t) + eta sum_k w_k u_k over ||u_k - g|| <= bound ||g||, g an update of the server's own.

    The server trains g on `data.num_held_out` samples from theta(t), with as many epochs as devices. A rejected update is
    left out, and the weights of the others stay as they are. The paper has one device at a time and gradients for updates.

    Fang, Liu, Gong, Bentley, AFLGuard: Byzantine-robust asynchronous federated learning (ACSAC 2022).
    """

    takes_sum: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("server_update",)
    only_global: ClassVar[str] = "compares updates with one from the global model"
    bound: Annotated[
        float,
        arg("lambda: largest distance of an update from the server's own, relative to the norm of the latter", gt=0),
    ] = 1.5

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Sums:
        """Sum from the current model."""
        if cohort.server_update is None:
            raise FedtideError(
                "policy.aggregator=aflguard needs an update of the server's own: simulate it with `fedtide run`"
            )
        return super().start(state, model, cohort)

    def add(self, acc: Sums, rows: slice, starts: Vectors, updates: Vectors) -> Sums:
        """Add the updates that are close to the server's; the others count 0."""
        own = acc.cohort.server_update
        assert own is not None
        most = self.bound * _distance(own, np.zeros(1))
        close = [_distance(update, own) <= most for update in updates]
        acc.scales[rows] *= close
        return super().add(acc, rows, starts, updates)


@dataclass(frozen=True)
class Reputation:
    """theta(t+1) = theta(t) + eta mean_k u_k min(1, M / ||u_k||) over the trusted k that arrived, M their median norm.

    v_j = u_j / ||u_j|| of the last update of device j. Whenever device k arrives, its score s_k grows by the median of <v_k, v_j>
    over the other trusted j, and it is trusted if s_k >= least median_j |s_j|. So the weights of `policy.weighting` have no
    say, and liars who agree with each other alone gain nothing. One update says little of a device: a sparse codec adds noise,
    and honest devices with other data disagree. The sum tells who works with the others, which shows early in the training,
    while honest updates still agree. More than half of all devices must be honest, not of those that arrive at a time. A
    device that is honest first and lies later is trusted until it has lost its score; until then clipping bounds what it
    does. While no trusted device arrives the model stays.

    Related: AFA (Munoz-Gonzalez, Co, Lupu 2019) also remembers who agreed; FLTrust (Cao et al. 2021) compares with the server's
    own update.
    """

    only_global: ClassVar[str] = "keeps the last update of every device, and devices go from edge to edge"
    least: Annotated[float, arg("score from which a device is trusted, relative to the median score", le=1)] = 0.2
    server_rate: Annotated[float, arg("eta: server step size along the mean")] = 1.0

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return the direction of the last update of every device [N d], which are known [N], and their scores [N]."""
        return {
            "direction": zeros_per_device("reputation", num_devices, len(model)),
            "heard": np.zeros(num_devices, np.bool_),
            "score": np.zeros(num_devices),
        }

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> Rows:
        """Make room for all rows."""
        return Rows(cohort, np.empty((0, 0), np.float32), np.empty((len(cohort.device), len(model)), np.float32))

    def add(self, acc: Rows, rows: slice, starts: Vectors, updates: Vectors) -> Rows:
        """Keep these rows."""
        acc.updates[rows] = updates
        return acc

    def finish(self, state: Memory, acc: Rows, model: Vector) -> tuple[Vector, Memory]:
        """Note who agrees with whom, and add the updates of the trusted."""
        device, after = acc.cohort.device, {name: value.copy() for name, value in state.items()}
        norm = np.array([_distance(update, np.zeros(1)) for update in acc.updates])
        for k, update, length in zip(device.tolist(), acc.updates, norm, strict=True):
            after["direction"][k] = update / length if length > 0 else update
            after["heard"][k] = True
        trusted = np.flatnonzero(self._trusted(after) & after["heard"])
        for k in device.tolist():
            own = after["direction"][k].astype(np.float64)
            agreed = [float((own * after["direction"][j]).sum()) for j in trusted.tolist() if j != k]
            after["score"][k] += np.median(agreed) if agreed else 0.0
        chosen = np.flatnonzero(self._trusted(after)[device])
        if not len(chosen):
            return model, after
        longest = float(np.median(norm[chosen]))
        scale = self.server_rate / len(chosen) * np.minimum(1, longest / np.maximum(norm[chosen], 1e-300))
        return weighted_sum(scale, acc.updates[chosen], model).astype(model.dtype), after

    def _trusted(self, after: Memory) -> Any:
        """Return who is trusted [N]."""
        size = np.abs(after["score"][after["heard"]])
        return after["score"] >= self.least * float(np.median(size))
