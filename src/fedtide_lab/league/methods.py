"""The entries: every method as what it changes in the reference, and the one thing about it that is tuned.

The reference is the paper's periodic design with random scheduling. A method changes what its own paper is about: the
schedule, the server, the codec or the devices. Four candidates each: two learning rates of the devices times two settings of
the method; for one that has no setting of its own, the weights gamma^age of updates, equal or in favour of fresh ones. The
control with equal weights has nothing to set, so it has four learning rates in the same range. What a
method has besides what its paper is about is what its control has too: equal weights where gamma is not tuned, or dense
updates that are added to the current model, which robust servers and SCAFFOLD need.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fedtide_lab.paper.figures import FRESH, Tree

RATES = (0.07, 0.2)  # learning rates that methods are tried with
REFERENCE = "random"
EVEN = "equal_weights"
DENSE = "dense_mean"
PAPER_METHOD = "proposed"


class Method(NamedTuple):
    """A method: what it changes in the reference, and its settings to choose from."""

    name: str
    title: str
    tree: Tree
    settings: tuple[Tree, ...]
    alone: bool = False  # it cannot be combined with methods of other groups
    control: str = REFERENCE  # what has all of it but the method itself
    rates: tuple[float, ...] = RATES  # learning rates that it is tried with


class Group(NamedTuple):
    """Methods that change the same thing; one of each group can be combined."""

    name: str
    title: str
    methods: tuple[Method, ...]


_AGES: tuple[Tree, Tree] = ({"policy": {"age_base": 1.0}}, {"policy": {"age_base": FRESH}})


def _scheduler(name: str, title: str, *, settings: tuple[dict[str, Any], dict[str, Any]] | None = None) -> Method:
    """Return a schedule, with two choices of its arguments."""
    chosen = _AGES if settings is None else _both("policy", "scheduler", settings)
    return Method(name, title, {"policy": {"scheduler": name}}, chosen, control=EVEN if settings else REFERENCE)


def _aggregator(
    name: str, title: str, first: dict[str, Any], second: dict[str, Any], aggregator: str = "", codec: str = ""
) -> Method:
    """Return a server's method, with two choices of its arguments."""
    tree: Tree = {"policy": {"aggregator": aggregator or name}, **({"codec": {"name": codec}} if codec else {})}
    control = DENSE if codec and name != DENSE else EVEN
    return Method(name, title, tree, _both("policy", "aggregator", (first, second)), bool(codec), control)


def _codec(name: str, title: str, args: dict[str, Any] | None = None, codec: str = "") -> Method:
    return Method(name, title, {"codec": {"name": {"name": codec or name, **(args or {})}}}, _AGES)


def _both(group: str, key: str, settings: tuple[dict[str, Any], dict[str, Any]]) -> tuple[Tree, Tree]:
    one, other = settings
    return {group: {key: one}}, {group: {key: other}}


_SCHEDULES = (
    Method(
        PAPER_METHOD,
        "the paper's schedule: least label variance of the better half of channels",
        {"policy": {"scheduler": "proposed"}},
        _AGES,
    ),
    Method(REFERENCE, "random: the reference", {}, _AGES),
    Method(
        EVEN,
        "random with gamma = 1: the control of methods that have a setting of their own",
        {"policy": {"age_base": 1.0}},
        ({},),
        control=EVEN,
        rates=(0.07, 0.1, 0.14, 0.2),
    ),
    _scheduler("best_channel", "best channels (BC)"),
    _scheduler("age_based", "age-based, of the better half of channels"),
    _scheduler("round_robin", "round robin"),
    _scheduler("proportional_fair", "proportional fair", settings=({"window": 5.0}, {"window": 20.0})),
    _scheduler("threshold", "threshold: good channels only, perhaps fewer", settings=({"least": 1.0}, {"least": 2.0})),
    _scheduler("soft_rate_label", "soft trade of rate and labels", settings=({"weight": 10.0}, {"weight": 30.0})),
    _scheduler("whittle_age", "Whittle index of age"),
    _scheduler(
        "drift_plus_penalty",
        "drift plus penalty under an energy budget",
        settings=({"value": 0.001}, {"value": 0.01}),
    ),
    _scheduler("max_loss", "power of choice: largest losses", settings=({"drawn": 12}, {"drawn": 16})),
    _scheduler("oort", "Oort", settings=({"penalty": 0.0}, {"penalty": 2.0})),
)
_SERVERS = (
    _aggregator("fedavg_updates", "FedAvg on updates", {"server_rate": 1.0}, {"server_rate": 1.5}, "average_deltas"),
    _aggregator("fedasync", "FedAsync, constant", {"mixing": 0.4}, {"mixing": 0.8}, "mix"),
    _aggregator(
        "fedasync_poly",
        "FedAsync, polynomial",
        {"mixing": 0.4, "staleness": 0.5},
        {"mixing": 0.8, "staleness": 0.5},
        "mix",
    ),
    _aggregator(
        "fedasync_hinge", "FedAsync, hinge", {"mixing": 0.4, "window": 1.0}, {"mixing": 0.8, "window": 1.0}, "mix_hinge"
    ),
    _aggregator("fedbuff", "FedBuff", {"server_rate": 1.0}, {"server_rate": 1.5}, "buffered_mean"),
    _aggregator("fedavgm", "FedAvgM", {"momentum": 0.5}, {"momentum": 0.9}, "server_momentum"),
    _aggregator("fedadam", "FedAdam", {"rate": 0.003}, {"rate": 0.01}, "server_adam"),
    _aggregator("fedyogi", "FedYogi", {"rate": 0.003}, {"rate": 0.01}, "server_yogi"),
    _aggregator("fadas", "FADAS", {"rate": 0.003}, {"rate": 0.01}),
    _aggregator("ca2fl", "CA2FL", {"server_rate": 0.5}, {"server_rate": 1.0}),
    _aggregator("mifa", "MIFA", {"server_rate": 1.0}, {"server_rate": 2.0}),
    _aggregator("fedat", "FedAT", {"tiers": 2}, {"tiers": 3}),
    _aggregator("asyncfeded", "AsyncFedED", {"scale": 1.0}, {"scale": 2.0}),
)
_CODECS = (
    _codec("dead_zone", "dead zone, entropy coded (ours)"),
    _codec("top_k", "top-k"),
    _codec("error_feedback", "top-k with error feedback", {"inner": "top_k"}),
    _codec("qsgd", "QSGD"),
    _codec("sign", "scaled signs"),
    Method(
        "sign_vote",
        "signSGD with majority vote",
        {"codec": {"name": {"name": "sign", "scaled": False}}, "policy": {"aggregator": "majority_vote"}},
        _both("policy", "aggregator", ({"rate": 0.001}, {"rate": 0.003})),
        alone=True,
        control=EVEN,
    ),
    Method(
        "ef21",
        "EF21",
        {"codec": {"name": "ef21"}, "policy": {"aggregator": "ef21"}},
        _both("policy", "aggregator", ({"rate": 1.0}, {"rate": 2.0})),
        alone=True,
        control=EVEN,
    ),
)
_ROBUST = (
    _aggregator(
        DENSE,
        "mean of dense updates: the control of these and of SCAFFOLD",
        {"server_rate": 1.0},
        {"server_rate": 1.5},
        "average_deltas",
        "dead_zone",
    ),
    _aggregator("median", "median", {"server_rate": 1.0}, {"server_rate": 2.0}, codec="dead_zone"),
    _aggregator("trimmed_mean", "trimmed mean", {"trim": 0.125}, {"trim": 0.25}, codec="dead_zone"),
    _aggregator("krum", "multi-Krum", {"kept": 3}, {"kept": 5}, codec="dead_zone"),
    _aggregator("clipped_mean", "norm clipping", {"max_norm": 1.0}, {"max_norm": 3.0}, codec="dead_zone"),
)
_LOCAL = (
    Method(
        "fedprox",
        "FedProx: a stronger pull than the paper's 0.02",
        {},
        ({"learning": {"proximal": 0.1}}, {"learning": {"proximal": 0.5}}),
        control=EVEN,
    ),
    Method(
        "momentum",
        "local momentum",
        {},
        _both("learning", "trainer", ({"momentum": 0.5}, {"momentum": 0.9})),
        control=EVEN,
    ),
    Method(
        "scaffold",
        "SCAFFOLD, with dense updates",
        {"learning": {"trainer": "scaffold"}, "policy": {"aggregator": "scaffold"}, "codec": {"name": "dead_zone"}},
        _both("learning", "trainer", ({"damping": 0.3}, {"damping": 1.0})),
        alone=True,
        control=DENSE,
    ),
)
_CLOCKS = (
    Method(
        "fedavg",
        "FedAvg: synchronous rounds",
        {"framework": "fedavg", "policy": {"scheduler": "random"}},
        ({"policy": {"limit": 8}}, {"policy": {"limit": 32}}),
        alone=True,
        control=EVEN,
    ),
)
_AIR = (
    Method(
        "over_the_air",
        "over-the-air sum of analog updates, in d/2 symbols",
        {"radio": {"access": "over_the_air"}, "codec": {"name": "ideal"}},
        ({"policy": {"limit": 8}}, {"policy": {"limit": 40}}),
        alone=True,
        control=EVEN,
    ),
)
GROUPS = (
    Group("schedule", "Who uploads", _SCHEDULES),
    Group("server", "What the server makes of updates", _SERVERS),
    Group("codec", "How updates become bits", _CODECS),
    Group("local", "How devices train", _LOCAL),
    Group("clock", "When the server acts", _CLOCKS),
    Group("air", "How updates share the air", _AIR),
    Group("robust", "Robust servers, with dense updates", _ROBUST),
)
COMBINABLE = ("schedule", "server", "codec", "local")  # one of each goes together
METHODS = {method.name: method for group in GROUPS for method in group.methods}
