"""Experiments of others whose numbers are published, as fedtide's experiments, with these numbers and where they stand.

The published numbers are facts from the README files named here, read at the commits named here. Seeds were fixed before any
of these runs; an earlier trial with three seeds of the first table had been seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedtide.config import merge_nested
from fedtide.studies import Study, make_study
from fedtide_lab.paper.figures import Tree

_PARTS = "fedtide_lab.external.parts"


class Published(NamedTuple):
    """A number that somebody published."""

    round: int  # after which it was measured
    accuracy: float  # in %
    spread: float | None = None  # standard deviation over their runs, in %; None: one run, or not said
    best: bool = False  # the best of all rounds on the test set, not the last one
    runs: int = 1  # of which it is the mean; 1 if that is not said, which makes the widest interval


class PublishedCell(NamedTuple):
    """One experiment of others, and how it is run here."""

    name: str
    title: str
    tree: Tree
    published: tuple[Published, ...]
    differs: str  # from theirs, in words
    seeds: int


class PublishedTable(NamedTuple):
    """The experiments of one publication."""

    name: str
    cells: tuple[PublishedCell, ...]


def _fedavg(devices: int, picked: int, rounds: int, epochs: int, batch: int, rate: float, every: float) -> Tree:
    """FedAvg without a radio: every round a random choice of devices sends its update exactly."""
    return {
        "framework": "fedavg",
        "fleet": {"num_devices": devices},
        "timeline": {"horizon": float(rounds)},
        "policy": {"scheduler": "random", "limit": picked},
        "codec": {"name": "ideal"},
        "learning": {
            "local_epochs": epochs,
            "batch_size": batch,
            "learning_rate": rate,
            "schedule": "constant",
            "evaluate_every": every,
        },
    }


def _of(base: Tree, *trees: Tree) -> Tree:
    for tree in trees:
        base = merge_nested(base, tree)
    return base


def _trainer(name: str = "native", **args: Any) -> Tree:
    return {"learning": {"trainer": {"name": name, **args}}}


_IID: Tree = {"data": {"partition": "iid"}}
_MODELS: dict[str, Tree] = {"CNN": {}, "MLP": {"learning": {"model": f"{_PARTS}:mlp_with_dropout"}}}

# ---- shaoxiongji/federated-learning: its README, commit 5a9da1a. One run each.

_ANCESTOR: Tree = _of(_fedavg(100, 10, 50, 5, 10, 0.01, 10.0), _trainer(momentum=0.5))
_ANCESTOR_NUMBERS = {  # after 10 and after 50 rounds
    ("MLP", "i.i.d."): (94.57, 97.21),
    ("MLP", "non-i.i.d."): (70.44, 93.03),
    ("CNN", "i.i.d."): (96.59, 98.60),
    ("CNN", "non-i.i.d."): (77.72, 93.81),
}
ANCESTOR = PublishedTable(
    "ancestor",
    tuple(
        PublishedCell(
            f"ancestor-{model.lower()}-{'iid' if split == 'i.i.d.' else 'shards'}",
            f"{model}, {split}",
            _of(_ANCESTOR, _MODELS[model], _IID if split == "i.i.d." else {}),
            tuple(Published(after, number) for after, number in zip((10, 50), numbers, strict=True)),
            "nothing that we know",
            10,
        )
        for (model, split), numbers in _ANCESTOR_NUMBERS.items()
    ),
)

# ---- AshwinRJ/Federated-Learning-PyTorch: its README, commit 26eaec4. One run each; a user trains on 80 % of its samples.

_ASHWIN: Tree = _fedavg(100, 10, 10, 10, 10, 0.01, 10.0)
_ASHWIN_MODELS: dict[str, Tree] = {
    "CNN": _trainer(momentum=0.5),
    "MLP": _of(
        _trainer("torch", momentum=0.5, device="cpu"), {"learning": {"model": f"{_PARTS}:mlp_of_probabilities"}}
    ),
}
_ASHWIN_NUMBERS = {
    ("MLP", "i.i.d."): 88.38,
    ("MLP", "non-i.i.d."): 73.49,
    ("CNN", "i.i.d."): 97.28,
    ("CNN", "non-i.i.d."): 75.94,
}
ASHWIN = PublishedTable(
    "ashwin",
    tuple(
        PublishedCell(
            f"ashwin-{model.lower()}-{'iid' if split == 'i.i.d.' else 'shards'}",
            f"{model}, {split}",
            _of(
                _ASHWIN,
                _ASHWIN_MODELS[model],
                {"data": {"partition": {"name": f"{_PARTS}:leading_part", "by_label": split != "i.i.d."}}},
            ),
            (Published(10, number),),
            "nothing that we know",
            10,
        )
        for (model, split), number in _ASHWIN_NUMBERS.items()
    ),
)

# ---- NIID-Bench (Xtra-Computing/NIID-Bench: README, commit 61b901a; means of three runs) and its replication in Flower's baselines
# (adap/flower, baselines/niid_bench: README, commit b6179b6; mean and deviation of the best of all rounds). The replication calls
# load_datasets without the seed of an experiment, so all of its runs have the split of the default seed, 42.

_FLOWER_SPLIT = 42
_NIID: Tree = _fedavg(10, 10, 50, 10, 64, 0.01, 1.0)
_MOMENTUM = 0.9
_LENET: Tree = _of(
    _NIID,
    {"data": {"name": f"{_PARTS}:mnist_in_01"}, "learning": {"model": "lenet"}},
)
_SCAFFOLD: Tree = {
    "method": "scaffold",
    "learning": {"learning_rate": 0.1},
}
_CIFAR: Tree = _of(
    _NIID,
    _trainer(f"{_PARTS}:Augmented", inner={"name": "native", "momentum": _MOMENTUM}),
    {"data": {"name": f"{_PARTS}:cifar10_in_01"}, "learning": {"model": "lenet"}},
)


def _split(name: str, draw: int | None = _FLOWER_SPLIT) -> Tree:
    return {"data": {"partition": {"name": f"{_PARTS}:{name}"} | ({} if draw is None else {"draw": draw})}}


_NO_DECAY = "no weight decay (theirs is 0.00001)"
_AUGMENTED = f"{_NO_DECAY}; ten passes over a client's samples are one pass over ten augmented copies, in one shuffle"
_CIFAR_FLOWER, _CIFAR_BENCH = "niid-cifar-dirichlet-42", "niid-cifar-dirichlet"
DISPUTED = (_CIFAR_FLOWER, _CIFAR_BENCH)  # the same experiment, on which two teams differ
NIID = PublishedTable(
    "niid",
    (
        PublishedCell(
            "niid-mnist-dirichlet",
            "MNIST, Dirichlet (0.5), FedAvg; Flower",
            _of(_LENET, _trainer(momentum=_MOMENTUM), _split("dirichlet_by_label")),
            (Published(50, 98.89, 0.07, best=True),),
            _NO_DECAY,
            6,
        ),
        PublishedCell(
            "niid-mnist-two-labels",
            "MNIST, two labels each, FedAvg; Flower",
            _of(_LENET, _trainer(momentum=_MOMENTUM), _split("few_labels")),
            (Published(50, 96.86, 0.30, best=True),),
            _NO_DECAY,
            6,
        ),
        PublishedCell(
            "niid-mnist-scaffold",
            "MNIST, Dirichlet (0.5), SCAFFOLD; Flower",
            _of(_LENET, _SCAFFOLD, _split("dirichlet_by_label")),
            (Published(50, 99.07, 0.06, best=True),),
            f"{_NO_DECAY}; no momentum, which fedtide's SCAFFOLD refuses: plain SGD at the rate 0.1 = "
            "0.01/(1 - 0.9); the server's control variate is the mean of the clients', theirs is weighted by samples",
            6,
        ),
        PublishedCell(
            _CIFAR_FLOWER,
            "CIFAR-10, Dirichlet (0.5), FedAvg; Flower",
            _of(_CIFAR, _split("dirichlet_by_label")),
            (Published(50, 62.47, 0.43, best=True),),
            _AUGMENTED,
            6,
        ),
        PublishedCell(
            _CIFAR_BENCH,
            "CIFAR-10, Dirichlet (0.5), FedAvg; NIID-Bench",
            _of(_CIFAR, _split("dirichlet_by_label", draw=None)),
            (Published(50, 68.2, runs=3),),
            f"{_AUGMENTED}; splits by another generator",
            6,
        ),
    ),
)
PUBLISHED_TABLES = (ANCESTOR, ASHWIN, NIID)
PUBLISHED_CELLS = tuple(cell for table in PUBLISHED_TABLES for cell in table.cells)


def cell_study(cell: PublishedCell, seeds: Sequence[int] | None = None) -> Study:
    """Return the runs of a cell."""
    return make_study(cell.name, {cell.name: cell.tree}, seeds or range(cell.seeds))
