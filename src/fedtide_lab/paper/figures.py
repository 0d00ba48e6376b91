"""One entry per figure of the paper: which runs it needs and what its caption says. Runs are shared between figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fedtide.studies import RunResult, Store, Study, make_study

Tree = Mapping[str, Any]

_SETTINGS: dict[str, Tree] = {
    "i.i.d.": {"data": {"partition": "iid"}},
    "non-i.i.d.": {"data": {"partition": "shards"}},
    "slow labels": {"data": {"partition": "slow_labels"}},
}
# gamma of the authors' released code: 2.3/e favours fresh updates, its inverse old ones.
FRESH, OLD = 0.846, 1.182
OLDER = 2.0


class Figure(NamedTuple):
    """A figure of curves, one panel per data setting unless told otherwise."""

    name: str
    title: str
    caption: str
    base: Tree
    curves: Mapping[str, Tree]  # label -> what differs
    settings: Sequence[str] = ("i.i.d.", "non-i.i.d.")
    column: str = "test_accuracy"
    over: str = "time"
    seeds: int = 3
    note: str = ""  # what a reader of the page should know besides
    resources: bool = False  # its curves spend different amounts: draw them against bits and samples as well
    # curve -> the curve it is measured against, seed by seed; "": for all that are not named
    against: Mapping[str, str] = MappingProxyType({})
    reference_first: bool = False  # the claims are that the reference is the better one: gains are its own
    number: str = ""  # of the paper's own figure
    effects: bool = False  # its curves lie on one another: draw only how far they are from their reference

    def reference(self, curve: str) -> str | None:
        """Return the curve that this one is measured against; None for a reference itself."""
        found = self.against.get(curve, self.against.get("", curve))
        return None if found == curve else found

    def pair(self, curve: str) -> tuple[str, str] | None:
        """Return of which curve the gain is shown, and over which, with the sign of the verdicts; None for a reference."""
        reference = self.reference(curve)
        if reference is None:
            return None
        return (reference, curve) if self.reference_first else (curve, reference)

    def variants(self) -> dict[str, dict[str, Any]]:
        """Return every curve in every setting, labelled `curve | setting`."""
        return {
            curve_label(curve, setting): {"_setting": _SETTINGS[setting], "_curve": tree}
            for setting in self.settings
            for curve, tree in self.curves.items()
            if "only" not in tree or tree["only"] == setting
        }


def curve_label(curve: str, setting: str) -> str:
    """Name one curve in one setting."""
    return f"{curve} | {setting}"


def _scheduler(name: str) -> Tree:
    return {"policy": {"scheduler": name}}


def _weights(scheduler: str, age_base: float) -> Tree:
    return {"policy": {"scheduler": scheduler, "age_base": age_base}}


_N40: Tree = {"fleet": {"num_devices": 40}, "policy": {"limit": 8}, "radio": {"num_symbols": 300_000}}
_N100: Tree = {"fleet": {"num_devices": 100}, "policy": {"limit": 30}, "radio": {"num_symbols": 380_000}}
_RANDOM: Tree = {"policy": {"scheduler": "random"}}
_FEDAVG: Tree = {"framework": "fedavg", "policy": {"scheduler": "random"}}

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "R",
            "How many devices share the uplink",
            "Test accuracy of the proposed scheme for several R; N=40, n=50,000, $\\gamma$=1, $\\tilde T=T_{\\max}/4$.",
            {"fleet": {"num_devices": 40}, "radio": {"num_symbols": 50_000}},
            {f"R={limit}": {"policy": {"limit": limit}} for limit in (2, 4, 8, 12, 20)},
            resources=True,
            against={"": "R=4"},
            reference_first=True,
            number="Fig. 4",
        ),
        Figure(
            "period",
            "How often the server aggregates",
            "Test accuracy for several aggregation periods, random scheduling, and FedAvg at equal symbols per time; "
            "N=40, R=8, n=300,000 per $T_{\\max}/4$, $\\gamma$=1.",
            _N40,
            {
                "$T_{\\max}/8$": {**_RANDOM, "timeline": {"period": 0.125}},
                "$T_{\\max}/4$": _RANDOM,
                "$T_{\\max}/2$": {**_RANDOM, "timeline": {"period": 0.5}},
                "$T_{\\max}$": {**_RANDOM, "timeline": {"period": 1.0}},
                "FedAvg": _FEDAVG,
            },
            resources=True,
            against={"": "$T_{\\max}/4$"},
            reference_first=True,
            number="Fig. 5",
        ),
        Figure(
            "frameworks",
            "Three frameworks at equal radio resources",
            "Test accuracy of FedAvg, periodic aggregation (random and proposed scheduling) and FedAsync over time; "
            "N=40, R=8, n=300,000 per $T_{\\max}/4$, $\\gamma$=1.",
            _N40,
            {
                "FedAvg": _FEDAVG,
                "periodic, random": _RANDOM,
                "periodic, proposed": {},
                "FedAsync 0.4": {"framework": "fedasync", "policy": {"limit": 1, "aggregator": {"mixing": 0.4}}},
                "FedAsync 0.8": {"framework": "fedasync", "policy": {"limit": 1, "aggregator": {"mixing": 0.8}}},
            },
            resources=True,
            # the gain of the schedule is that of the proposed one
            against={
                "": "periodic, random",
                "periodic, random": "periodic, proposed",
                "periodic, proposed": "periodic, proposed",
            },
            reference_first=True,
            number="Fig. 6",
        ),
        Figure(
            "training_loss",
            "Training loss",
            "Training loss per iteration (geometric mean over seeds) of random and proposed scheduling, and of synchronous "
            "updates with the same n symbols per iteration (i.i.d.); N=40, R=8, n=300,000, $\\gamma$=1, $\\lambda$=0.02, "
            "$\\tilde T=T_{\\max}/4$.",
            {**_N40, "learning": {"training_loss": True}},
            {
                "random": _RANDOM,
                "proposed": {},
                # n symbols in each of 140 synchronous rounds, all else equal: only the asynchrony differs.
                "random, synchronous": {
                    **_RANDOM,
                    "only": "i.i.d.",
                    "timeline": {"name": "synchronous", "horizon": 140},
                    "radio": {"num_symbols": 75_000},
                },
            },
            column="train_loss",
            over="index",
            against={"": "random"},
            number="Fig. 7",
        ),
        Figure(
            "schedulers",
            "Who is scheduled",
            "Test accuracy of five scheduling policies; N=40, R=8, n=300,000, $\\gamma$=1, $\\tilde T=T_{\\max}/4$.",
            _N40,
            {
                "proposed": {},
                "random": _scheduler("random"),
                "BC": _scheduler("best_channel"),
                "BCBN2": _scheduler("best_channel_best_norm"),
                "age-based": _scheduler("age_based"),
            },
            seeds=5,
            against={"": "proposed"},
            reference_first=True,
            number="Fig. 8",
        ),
        Figure(
            "weights",
            "How age counts",
            "Test accuracy of age-aware weights under proposed and random scheduling; N=100, R=30, n=380,000, "
            "$\\tilde T=T_{\\max}/4$.",
            _N100,
            {
                f"{name}, $\\gamma$={age_base:g}": _weights(scheduler, age_base)
                for name, scheduler in (("proposed", "proposed"), ("random", "random"))
                for age_base in (1.0, FRESH, OLD)
            },
            seeds=5,
            against={
                f"{name}, $\\gamma$={age_base:g}": f"{name}, $\\gamma$=1"
                for name in ("proposed", "random")
                for age_base in (FRESH, OLD)
            },
            number="Fig. 9",
        ),
        Figure(
            "slow_labels",
            "When slow devices hold unique data",
            "Test accuracy of age-aware weights where the slowest quarter of the devices holds three of the ten labels and "
            "nobody else does, one or two labels per device; N=40, R=8, n=300,000, $\\tilde T=T_{\\max}/4$.",
            _N40,
            {
                f"{name}, $\\gamma$={age_base:g}": _weights(scheduler, age_base)
                for name, scheduler in (("random", "random"), ("proposed", "proposed"))
                for age_base in (1.0, FRESH, OLD, OLDER)
            },
            settings=("slow labels",),
            seeds=5,
            note="The paper describes this case in section III and has no figure of it: the experiment is ours "
            "(`data.partition=slow_labels`).",
            against={
                f"{name}, $\\gamma$={age_base:g}": f"{name}, $\\gamma$=1"
                for name in ("random", "proposed")
                for age_base in (FRESH, OLD, OLDER)
            },
        ),
        Figure(
            "profiles",
            "The text and the released code",
            "How much each value in which the authors' released code differs from the text moves the result, one at a time "
            "and all together (released code); and the CNN without its dropout, which both have; N=40, R=8, n=50,000, proposed "
            "scheduling.",
            {"fleet": {"num_devices": 40}, "policy": {"limit": 8}, "radio": {"num_symbols": 50_000}},
            {
                "paper": {},
                "3 bits per element": {"codec": {"element_bits": 3}},
                "$\\lambda$=0": {"learning": {"proximal": 0.0}},
                "best of 30 subsets": _scheduler("best_of_random_subsets"),
                "SNR 20": {"radio": {"snr_db": 13.010299956639813}},
                "no dropout": {"learning": {"dropout": False}},
                "released code": {"profile": "released-code"},
            },
            settings=("non-i.i.d.",),
            against={"": "paper"},
            effects=True,
        ),
    )
}


def figure_study(figure: Figure, seeds: Sequence[int], quick: Tree | None = None) -> Study:
    """Return the study behind a figure; `quick` is laid on top of every run."""
    from fedtide.config import lay

    variants = {}
    for name, parts in figure.variants().items():
        tree = lay(lay(figure.base, parts["_setting"]), parts["_curve"])
        tree.pop("only", None)
        variants[name] = shrink(tree, quick) if quick else tree
    return make_study(figure.name, variants, seeds)


def shrink(tree: dict[str, Any], quick: Tree) -> dict[str, Any]:
    """Cut a run down to a fraction of its horizon, on smaller data, for a quick look."""
    from fedtide.config import TimelineConfig, lay

    whole = tree.get("timeline", {}).get("horizon", TimelineConfig.model_fields["horizon"].default)
    horizon = float(whole) * float(quick["horizon_share"])
    return lay(lay(tree, {k: v for k, v in quick.items() if k != "horizon_share"}), {"timeline": {"horizon": horizon}})


def stored_runs(study: Study, store: Store) -> dict[str, dict[int, RunResult]]:
    """Read the runs of a study that are stored: label -> seed -> result."""
    found: dict[str, dict[int, RunResult]] = {}
    for run in study.runs:
        if store.has(run.name):
            found.setdefault(run.label, {})[run.experiment.seed] = store.load(run.name)
    return found
