"""Aggregators beside the code of other frameworks, number by number on random updates; what is not installed is skipped.

Flower is an extra of ours. FLGo and APPFL are not: python benchmarks/peers/clocks.py makes their environments, and
PYTHONPATH=build/peers/flgo/lib/python3.11/site-packages (or appfl) brings one of them here.
"""

from __future__ import annotations

import contextlib
import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aggregation import cohort, stepped
from fedtide.aggregate.asynchronous import MixHinge
from fedtide.aggregate.averages import AverageDeltas, AverageModels, BufferedMean, Mix
from fedtide.aggregate.optimizers import ServerAdam, ServerMomentum, ServerYogi
from fedtide.aggregate.robust import Krum, Median, TrimmedMean

SHAPES = ((3, 2), (5,))  # of a model's parameters
ROUNDS, R, D = 4, 7, 11
CLOSE: Any = {"rtol": 2e-6, "atol": 2e-6}


def parted(vector: Any) -> list[Any]:
    """Return a vector [d] as the list of arrays that frameworks take."""
    return [vector[:6].reshape(SHAPES[0]).copy(), vector[6:].copy()]


def flat(arrays: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(each)) for each in arrays])


@pytest.fixture
def drawn() -> SimpleNamespace:
    """Return a model, updates of some rounds and how many samples each device holds."""
    rng = np.random.default_rng(5)
    return SimpleNamespace(
        model=rng.normal(size=D).astype(np.float32),
        updates=rng.normal(scale=0.1, size=(ROUNDS, R, D)).astype(np.float32),
        samples=rng.integers(1, 50, R),
        ages=rng.integers(0, 12, R),
    )


def stale(drawn: Any) -> tuple[Any, Any]:
    """Return the models that the devices began from [r d], and what they send: start + update [r d]."""
    starts = drawn.model + drawn.updates[1]
    return starts, starts + drawn.updates[0]


def arriving(aggregator: Any, drawn: Any) -> Any:
    """Return the models after one device after the other arrived, each of its own age, from its own start."""
    (starts, sent), model = stale(drawn), drawn.model
    for k in range(R):
        who = cohort(np.ones(1), drawn.ages[k : k + 1])
        model, _ = stepped(aggregator, None, model, starts[k : k + 1], (sent - starts)[k : k + 1], who)
    return model


def ours(aggregator: Any, drawn: Any, state: Any = None, rates: Any = None) -> list[Any]:
    """Return the models of some rounds in which nothing is stale. rates: another one in every round."""
    model, found = drawn.model, []
    for number, updates in enumerate(drawn.updates):
        step = aggregator if rates is None else type(aggregator)(**{**vars_of(aggregator), "rate": rates[number]})
        who = cohort(drawn.samples / drawn.samples.sum(), np.zeros(R, np.int64))
        model, state = stepped(step, state, model, np.stack([model] * R), updates, who)
        found.append(model)
    return found


def vars_of(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in type(part).__dataclass_fields__}


# ---- Flower


def flowers(strategy: Any, drawn: Any) -> list[Any]:
    """Return the models of Flower's strategy after each round, whose clients send start + update."""
    common = pytest.importorskip("flwr.common")
    model, found = drawn.model, []
    for number, updates in enumerate(drawn.updates, start=1):
        sent = [
            (
                None,
                common.FitRes(
                    common.Status(common.Code.OK, ""),
                    common.ndarrays_to_parameters(parted(model + update)),
                    int(samples),
                    {},
                ),
            )
            for update, samples in zip(updates, drawn.samples, strict=True)
        ]
        answer, _ = strategy.aggregate_fit(number, sent, [])
        model = flat(common.parameters_to_ndarrays(answer)).astype(np.float32)
        found.append(model)
    return found


def flower(name: str, drawn: Any, **args: Any) -> Any:
    strategies = pytest.importorskip("flwr.server.strategy")
    from flwr.common import ndarrays_to_parameters

    return getattr(strategies, name)(initial_parameters=ndarrays_to_parameters(parted(drawn.model)), **args)


ALIKE = {  # Flower's strategy, its arguments, and ours
    "FedAvg": ({}, AverageModels()),
    "FedAvg of updates": ({}, AverageDeltas()),
    "FedAvgM": ({"server_learning_rate": 0.7, "server_momentum": 0.9}, ServerMomentum(rate=0.7, momentum=0.9)),
    "FedMedian": ({}, Median()),
    "FedTrimmedAvg": ({"beta": 0.2}, TrimmedMean(trim=0.2)),
    "Krum": ({"num_malicious_clients": 2}, Krum(attackers=2)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_flowers_strategies_answer_the_same(name: str, drawn: Any) -> None:
    given, aggregator = ALIKE[name]
    theirs = flowers(flower(name.split()[0], drawn, **given), drawn)
    np.testing.assert_allclose(ours(aggregator, drawn), theirs, **CLOSE)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(ours(AverageDeltas(server_rate=0.99), drawn), theirs, **CLOSE)


def test_flowers_multi_krum_answers_the_same_where_devices_hold_equally_much(drawn: Any) -> None:
    """Flower weighs those chosen by their samples, Blanchard et al. and ours do not."""
    drawn.samples = np.full(R, 10)
    theirs = flowers(flower("Krum", drawn, num_malicious_clients=2, num_clients_to_keep=3), drawn)
    np.testing.assert_allclose(ours(Krum(attackers=2, kept=3), drawn), theirs, **CLOSE)


def test_flowers_adaptive_servers_are_ours_that_begin_with_a_square_of_zero(drawn: Any) -> None:
    """Reddi et al. begin with tau^2, as ours do. Flower's begin with 0, and its Adam corrects the bias as Kingma and Ba's."""
    args = {"eta": 0.05, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}
    zero = {"mean": np.zeros(D), "square": np.zeros(D)}
    yogi, adam = ServerYogi(rate=0.05), ServerAdam(rate=0.05)
    theirs = flowers(flower("FedYogi", drawn, **args), drawn)
    np.testing.assert_allclose(ours(yogi, drawn, zero), theirs, **CLOSE)
    rates = [0.05 * np.sqrt(1 - 0.99 ** (t + 1)) / (1 - 0.9 ** (t + 1)) for t in range(1, ROUNDS + 1)]
    theirs = flowers(flower("FedAdam", drawn, **args), drawn)
    np.testing.assert_allclose(ours(adam, drawn, zero, rates), theirs, **CLOSE)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(ours(adam, drawn, zero), theirs, **CLOSE)


# ---- FLGo


def flgo_model(vector: Any) -> Any:
    """Return a model of FLGo with these parameters."""
    torch, fmodule = pytest.importorskip("torch"), pytest.importorskip("flgo.utils.fmodule")

    class Small(fmodule.FModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, part in zip("ab", parted(np.zeros(D, np.float32)), strict=True):
                setattr(self, name, torch.nn.Parameter(torch.from_numpy(part)))

    made = Small()
    made.load_state_dict({name: torch.from_numpy(part) for name, part in zip("ab", parted(vector), strict=True)})
    return made


def flgo_server(name: str, drawn: Any, **attributes: Any) -> Any:
    """Return a server of FLGo that has just what its handler of packages uses."""
    module = pytest.importorskip(f"flgo.algorithm.{name}")
    server = module.Server.__new__(module.Server)
    Small = flgo_model(drawn.model)
    for key, value in {
        "model": Small,
        "current_round": 20,
        "aggregate": lambda models: models[0],
        **attributes,
    }.items():
        setattr(server, key, value)
    return server


def flgo_flat(model: Any) -> Any:
    return flat([part.detach().numpy() for part in model.parameters()])


def flgo_sent(vector: Any, age: int) -> Any:
    model = flgo_model(vector)
    model._round = 20 - age
    return model


@pytest.mark.parametrize(
    ("given", "aggregator"),
    [
        ({"flag": "constant"}, Mix(mixing=0.6)),
        ({"flag": "poly", "poly_a": 0.5}, Mix(mixing=0.6, staleness=0.5)),
    ],
    ids=["constant", "polynomial"],
)
def test_flgos_fedasync_answers_the_same(given: Any, aggregator: Any, drawn: Any) -> None:
    pytest.importorskip("flgo")
    server, (_, sent) = flgo_server("fedasync", drawn, alpha=0.6, **given), stale(drawn)
    for k in range(R):
        server.package_handler({"model": [flgo_sent(sent[k], int(drawn.ages[k]))], "__cid": [k]})
    np.testing.assert_allclose(arriving(aggregator, drawn), flgo_flat(server.model), **CLOSE)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(arriving(Mix(mixing=0.59), drawn), flgo_flat(server.model), **CLOSE)


def test_flgos_hinge_lacks_the_1_of_the_paper(drawn: Any) -> None:
    """Xie et al. have s = 1 / (a (x - b) + 1) beyond b, as ours; FLGo has 1 / (a (x - b))."""
    pytest.importorskip("flgo")
    server = flgo_server("fedasync", drawn, flag="hinge", hinge_a=10, hinge_b=6)
    starts, sent = stale(drawn)
    for age in (7, 9, 12):
        theirs = server.s(age)
        assert theirs == pytest.approx(1 / (10 * (age - 6)))
        who = cohort(np.ones(1), np.array([age]))
        part = MixHinge(mixing=1.0, slope=10, window=6)
        model, _ = stepped(part, None, drawn.model, starts[:1], (sent - starts)[:1], who)
        share = 1 / (1 / theirs + 1)
        np.testing.assert_allclose(model, (1 - share) * drawn.model + share * sent[0], **CLOSE)
    assert [server.s(age) for age in (0, 6)] == [1, 1]


def test_flgos_fedbuff_answers_the_same(drawn: Any) -> None:
    pytest.importorskip("flgo")
    server = flgo_server("fedbuff", drawn, buffer=[], buffer_ratio=1.0, num_clients=R, eta=0.7)
    updates = [flgo_sent(update, int(age)) for update, age in zip(drawn.updates[0], drawn.ages, strict=True)]
    assert server.package_handler({"model": updates, "__cid": list(range(R))})
    starts, _ = stale(drawn)
    who = cohort(np.full(R, 1 / R), drawn.ages)
    model, _ = stepped(BufferedMean(server_rate=0.7), None, drawn.model, starts, drawn.updates[0], who)
    np.testing.assert_allclose(model, flgo_flat(server.model), **CLOSE)


# ---- APPFL


def appfl(name: str, drawn: Any, **settings: Any) -> Any:
    """Return an aggregator of APPFL that holds the model, at its 20th step."""
    if importlib.util.find_spec("appfl") is None:
        pytest.skip("APPFL is not installed")
    import torch

    for operator in ("nms", "qnms"):  # torchvision's wheel is built for CUDA, see benchmarks/peers/appfl_job.py
        with contextlib.suppress(RuntimeError):
            torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
    from appfl.algorithm import aggregator
    from omegaconf import DictConfig

    made = getattr(aggregator, name)(aggregator_configs=DictConfig({"optimize_memory": False, **settings}))
    made.global_state, made.global_step = appfl_state(drawn.model), 20
    return made


def appfl_state(vector: Any) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(part) for name, part in zip("ab", parted(vector), strict=True)}


def appfl_flat(state: Any) -> Any:
    return flat([state[name].numpy() for name in "ab"])


STALENESS = {  # APPFL's function, its arguments, ours
    "constant": ({}, Mix(mixing=0.6)),
    "polynomial": ({"a": 0.5}, Mix(mixing=0.6, staleness=0.5)),
    "hinge": ({"a": 10.0, "b": 6.0}, MixHinge(mixing=0.6, slope=10, window=6)),
}


@pytest.mark.parametrize("name", STALENESS)
def test_appfls_fedasync_answers_the_same(name: str, drawn: Any) -> None:
    given, part = STALENESS[name]
    theirs = appfl("FedAsyncAggregator", drawn, alpha=0.6, staleness_fn=name, staleness_fn_kwargs=given)
    _, sent = stale(drawn)
    for k in range(R):
        theirs.client_step[k] = theirs.global_step - int(drawn.ages[k])
        theirs.aggregate(k, appfl_state(sent[k]))
    np.testing.assert_allclose(arriving(part, drawn), appfl_flat(theirs.global_state), **CLOSE)


def test_appfls_fedbuff_answers_the_same_if_it_gets_updates(drawn: Any) -> None:
    """Sent models, APPFL adds how they differ from the server's model of now, not from the one that a client began with."""
    given = {"K": R, "num_clients": R, "alpha": 0.7, "staleness_fn": "polynomial", "staleness_fn_kwargs": {"a": 0.5}}
    starts, sent = stale(drawn)
    who = cohort(np.full(R, 1 / R), drawn.ages)
    ours_then, _ = stepped(BufferedMean(server_rate=0.7), None, drawn.model, starts, drawn.updates[0], who)
    for gradient_based, vectors in ((True, -drawn.updates[0]), (False, sent)):
        theirs = appfl("FedBuffAggregator", drawn, gradient_based=gradient_based, **given)
        for k in range(R):
            theirs.client_step[k] = 20 - int(drawn.ages[k])
            theirs.aggregate(k, appfl_state(vectors[k]))
        same = np.allclose(ours_then, appfl_flat(theirs.global_state), **CLOSE)
        assert same == gradient_based


SERVERS = {  # APPFL's aggregator, its settings, ours
    "FedAvgAggregator": ({}, AverageModels()),
    "FedAvgMAggregator": ({}, ServerMomentum(momentum=0.9)),
    "FedAdamAggregator": ({}, ServerAdam(rate=0.05)),
    "FedYogiAggregator": ({}, ServerYogi(rate=0.05)),
}


@pytest.mark.parametrize("name", SERVERS)
def test_appfls_servers_answer_the_same(name: str, drawn: Any) -> None:
    """Their square begins with tau^2, as in the paper."""
    given, part = SERVERS[name]
    adaptive = {"server_learning_rate": 0.05, "server_adapt_param": 1e-3}
    betas = {"server_momentum_param_1": 0.9, "server_momentum_param_2": 0.99}
    theirs, found = appfl(name, drawn, **adaptive, **betas, **given), []
    drawn.samples = np.full(R, 10)
    for updates in drawn.updates:
        model = appfl_flat(theirs.global_state)
        theirs.aggregate({k: appfl_state(model + update) for k, update in enumerate(updates)})
        found.append(appfl_flat(theirs.global_state).copy())
    np.testing.assert_allclose(ours(part, drawn), found, **CLOSE)
