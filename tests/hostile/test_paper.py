"""Wrong inputs of `fedtide paper` and of labels tied to slow devices."""

from __future__ import annotations

import pytest
from judge import SMALL, contents, refused, wrong

from fedtide_lab.paper.figures import FIGURES

SLOW = ("plan", *SMALL, "data.partition=slow_labels")
FIGURE = r"the paper has no figure .*; there are R, period, .*slow_labels.*claims"
PARTITION = (
    r"data\.partition=.*(Known: iid, shards, dirichlet, slow_labels|write the name of a part|has no name)"
    r"|does not accept the arguments"
)

CASES = [
    # figures that are none
    *(
        wrong("paper", name, says=FIGURE)
        for name in ("fig9", "r", "Weights", "weight", "slow labels", "slow-labels", "slowlabels", "timeline", " ", "R ",
                     "all", "claim", "Claims", "schedulers,weights", "../R", "R.png", "γ", "0", "a" * 300)
    ),
    wrong("paper", "R", "nosuch", says="no figure 'nosuch'"),
    wrong("paper", "claims", "nosuch", says="no figure 'nosuch'"),
    wrong("paper", "nosuch", "claims", says="no figure 'nosuch'"),
    wrong("paper", "timelines", "R2", "--draw-only", says="no figure 'R2'"),
    # seeds that mean years
    *(
        wrong("paper", "R", "--seeds", number, *more, says=f"--seeds {number}: more than 1000 seeds")
        for number in ("1001", "99999999999", "123456789012345678901234567890")
        for more in ((), ("--draw-only",), ("--quick",))
    ),
    wrong("paper", "claims", "--seeds", "5000", says="more than 1000 seeds"),
    # where nothing can be computed
    wrong("paper", "R", "--backend", "nosuch", says="--backend 'nosuch' is not known; use local, dask or here"),
    wrong("paper", "", says="argument 2 is empty"),
    wrong("paper", "\x00", says="NUL"),
    wrong("paper", "R", "--backend", "", says="argument 4 is empty"),
    wrong("paper", "R", "--backend", "LOCAL", says="--backend 'LOCAL' is not known"),
    # names of the partition
    *(
        wrong("plan", *SMALL, f"data.partition={name}", says=PARTITION)
        for name in ("slow_label", "slow-labels", "SLOW_LABELS", "[slow_labels]", "", "slow labels", "slowlabels", "null", "7",
                     "{slow_labels: 1}", "true")
    ),
    # systems in which labels cannot be tied to the slow
    wrong(*SLOW, "fleet.num_devices=1", "policy.limit=1", says="with 1 devices and 10 labels: needs two of each"),
    wrong(*SLOW, "data.num_train=1", says="with 6 devices and 1 labels: needs two of each"),
    wrong(*SLOW, "data.num_train=2", says=r"more devices than samples to go round \(2\)"),
    wrong(*SLOW, "data.num_train=5", says=r"more devices than samples to go round \(5\)"),
    wrong(*SLOW, "fleet.num_devices=199", says=r"num_devices = 199: more devices than samples to go round \(200\)"),
    wrong(*SLOW, "fleet.num_devices=201", says=r"num_devices = 201: more devices than samples to go round \(200\)"),
    wrong(*SLOW, "fleet.num_devices=0", says="fleet.num_devices"),
    *(
        wrong(*SLOW, f"data.size_spread={spread}", says=f"size_spread = {spread}: under data.partition=slow_labels")
        for spread in ("0.5", "1e-300", "100.0")
    ),
    *(wrong(*SLOW, f"data.size_spread={spread}", says="data.size_spread") for spread in ("-1", "nan", "inf", "much")),
    wrong(*SLOW, "fleet.min_duration=2", says="fleet.min_duration=2 exceeds"),
    # a run refuses as a plan does
    wrong("run", *SLOW[1:], "data.size_spread=0.5", "--out", "here", says="size_spread = 0.5"),
    wrong("run", *SLOW[1:], "fleet.num_devices=1", "policy.limit=1", "--out", "here", says="needs two of each"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong(case, tmp_path):
    refused(case)
    assert contents(tmp_path) == {}


def test_there_are_enough():
    assert len(CASES) >= 50
    assert "slow_labels" in FIGURES


def test_figures_over_a_file(tmp_path):
    (tmp_path / "docs").write_text("mine")
    refused(wrong("paper", "timelines", "--draw-only", says="cannot be written.*choose a place", code=4))
    assert (tmp_path / "docs").read_text() == "mine"
