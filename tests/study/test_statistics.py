from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtide.studies.metrics import final_accuracy, mean_accuracy, roughness, variation
from fedtide.studies.results import COLUMNS, RunResult
from fedtide.studies.statistics import (
    aligned_seeds,
    difference_band,
    diverged_runs_note,
    mean_band,
    paired_difference,
    unmeasured_column,
)

numbers = st.floats(-1, 1).map(lambda x: round(x, 6))


def result(accuracy, time=None):
    time = list(range(1, len(accuracy) + 1)) if time is None else time
    columns = {name: [0.0] * len(accuracy) for name in COLUMNS} | {"time": time, "test_accuracy": list(accuracy)}
    return RunResult({"timeline": {"horizon": time[-1]}, "fleet": {"max_duration": 1.0}}, columns, {})


@given(st.lists(numbers, min_size=2, max_size=8))
def test_identical_policies_come_out_as_no_difference(values):
    found = paired_difference(values, values)
    assert found.verdict == "no difference"
    assert found.seeds_needed is None


@given(st.lists(numbers, min_size=3, max_size=8), st.floats(0.01, 1))
def test_a_planted_worse_policy_is_found(values, loss):
    """The same noise on both sides, as paired seeds have it, and a constant loss with a little noise of its own."""
    noise = np.linspace(-1, 1, len(values)) * loss / 20
    found = paired_difference(np.array(values) - loss + noise, values)
    assert found.verdict == "lower"
    assert found.high < 0
    assert paired_difference(values, np.array(values) - loss + noise).verdict == "higher"


def test_pairing_is_what_finds_it():
    """Unpaired, the spread between seeds would hide the effect."""
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 1, 5)
    a, b = seeds + 0.05 + rng.normal(0, 0.005, 5), seeds
    assert paired_difference(a, b).verdict == "higher"
    assert stats.ttest_ind(a, b).pvalue > 0.5


def test_the_interval_is_students():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 6))
    found, expected = paired_difference(a, b), stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = [
        found.low <= 0.3 <= found.high
        for found in (paired_difference(rng.normal(0.3, 1, 4), np.zeros(4)) for _ in range(3000))
    ]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)


def test_seeds_needed_would_indeed_resolve():
    difference = np.array([0.5, -0.3, 0.4, 0.0])
    found = paired_difference(difference, np.zeros(4))
    assert found.verdict == "not resolved"
    n = found.seeds_needed
    assert n is not None
    rng = np.random.default_rng(0)
    again = [
        paired_difference(rng.normal(difference.mean(), difference.std(ddof=1), n), np.zeros(n)) for _ in range(1000)
    ]
    assert np.mean([each.verdict == "higher" for each in again]) == pytest.approx(0.8, abs=0.05)
    assert paired_difference([0.5, -0.4], [0.0, 0.0]).seeds_needed is None  # two seeds say too little about the spread
    width = stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / math.sqrt(n)
    assert width < difference.mean()


@pytest.mark.parametrize("spread", [0.001, 0.004, 0.02])
@pytest.mark.parametrize("num_seeds", [3, 5, 12])
def test_a_difference_at_the_margin_passes_as_equivalent_in_5_percent_at_most(spread, num_seeds):
    rng = np.random.default_rng(num_seeds)
    at_margin = rng.normal(0.01, spread, (4000, num_seeds))
    passed = [paired_difference(row, np.zeros(num_seeds), margin=0.01).within is not None for row in at_margin]
    assert np.mean(passed) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)


@given(st.lists(numbers, min_size=2, max_size=8), st.floats(0.001, 2))
def test_equivalence_is_that_the_90_percent_interval_is_within_the_margin(values, margin):
    zeros = np.zeros(len(values))
    found, narrow = paired_difference(values, zeros, margin=margin), paired_difference(values, zeros, 0.9)
    assert (found.within == margin) == (-margin < narrow.low and narrow.high < margin)
    assert found[:4] == paired_difference(values, zeros)[:4]  # the interval itself stays
    if found.verdict.startswith("no difference above"):
        assert found.low <= 0 <= found.high
        assert found.seeds_needed is None


def test_the_fourth_verdict():
    """A resolved difference keeps its word, however small; what is asked for without a margin stays not resolved."""
    small, none = [0.002, -0.001, 0.001, -0.002], [0.0] * 4
    assert paired_difference(small, none, margin=0.01).verdict == "no difference above 0.01"
    assert paired_difference(small, none).verdict == "not resolved"
    assert paired_difference(small, none, margin=0.001).verdict == "not resolved"
    above = paired_difference([0.003, 0.0031, 0.0032, 0.0033], none, margin=0.01)
    assert (above.verdict, above.within) == ("higher", 0.01)
    assert paired_difference([0.0], [0.0], margin=0.01).verdict == "not resolved"  # one seed shows nothing


def test_one_seed_resolves_nothing():
    found = paired_difference([0.9], [0.1])
    assert found.verdict == "not resolved"
    assert math.isinf(found.high)


def test_metrics():
    assert mean_accuracy(result([0.4, 1.0, 1.0])) == pytest.approx((0.1 + 0.4 + 1.0) / 3)
    assert final_accuracy(result([0.0] * 9 + [0.8, 0.9], time=list(range(11)))) == pytest.approx(0.85)


def test_roughness_is_the_scatter_around_a_trend_however_often_there_is_an_evaluation():
    def noisy(count, spread):
        time = np.linspace(0.1, 10, count)
        noise = spread * np.random.default_rng(count).standard_normal(count)
        return result(list(0.5 + 0.06 * time - 0.002 * time**2 + noise), list(time))

    assert roughness(noisy(40, 0.0)) == pytest.approx(0, abs=1e-12)  # a smooth rise is not rough
    assert roughness(noisy(4000, 0.01)) == pytest.approx(0.01, rel=0.05)
    assert np.mean([roughness(noisy(count, 0.01)) ** 2 for count in range(20, 60)]) == pytest.approx(1e-4, rel=0.15)
    assert math.isnan(roughness(result([0.0, 0.5, 0.5, 0.5])))  # three points lie on some quadratic


def test_variation_is_the_length_of_the_ups_and_downs_per_time():
    calm = result([0.5] * 4 + [0.7, 0.8, 0.9, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert variation(calm) == pytest.approx(0.5 / 4)  # 0.5 to 1.0 from time 4 to 8
    zigzag = result([0.5, 0.6] * 8)
    assert variation(zigzag) == pytest.approx(0.1)
    assert math.isnan(variation(result([0.5], [1.0])))
    late = result(
        [0.2, 0.5, 0.4, 0.4], [0.7, 2.1, 3.2, 4.3]
    )  # at 3 and 4 the last evaluations are those of 2.1 and 3.2
    assert variation(late) == pytest.approx(0.1)


@pytest.mark.parametrize("evaluations", [1, 2, 4, 8])
def test_variation_does_not_count_evaluations(evaluations):
    """The same noise, seen once or eight times per T_max."""
    rng = np.random.default_rng(0)
    time = np.arange(1, 400 * evaluations + 1) / evaluations
    found = variation(result(0.5 + 0.01 * rng.standard_normal(len(time)), list(time)))
    assert found == pytest.approx(0.01 * 2 / math.sqrt(math.pi), rel=0.15)


def test_at_the_end_is_the_last_tenth_of_the_horizon():
    short = result([0.2, 0.9, 0.7], [1.0, 9.0, 10.0])
    assert final_accuracy(short) == pytest.approx(0.8)
    longer = dataclasses.replace(short, experiment={"timeline": {"horizon": 20.0}})
    assert final_accuracy(longer) == 0.7  # its last evaluation


def test_a_diverged_run_counts_as_a_guess():
    finite, lost = result([0.8] * 10), dataclasses.replace(result([0.8] * 4 + [0.1] * 6), totals={"diverged": 5.0})
    assert mean_accuracy(lost) == pytest.approx((0.1 + 4 * 0.8 + 5 * 0.1) / 10)
    assert final_accuracy(lost) == pytest.approx(0.1)
    assert diverged_runs_note([finite, lost, finite]) == "1 of 3 diverged"
    assert diverged_runs_note([finite]) == ""


def test_what_was_not_counted_is_not_drawn_over():
    columns = {"time": [1.0, 2.0], "test_accuracy": [0.1, 0.2], "joules": [1.0, 2.0], "train_loss": [None, None]}
    run = RunResult({"timeline": {"horizon": 2.0}}, columns, {})
    assert unmeasured_column([run], "test_accuracy", "joules") == ""
    assert mean_band([run], "test_accuracy", "joules").x.tolist() == [1.0, 2.0]
    bare = dataclasses.replace(run, columns={name: each for name, each in columns.items() if name != "joules"})
    assert "joules was not measured in all of these runs: radio.joules_per_symbol" in unmeasured_column(
        [run, bare], "test_accuracy", "joules"
    )
    assert "symbol_rate" in unmeasured_column([run], "test_accuracy", "air_time")
    assert "control_bits is 0 all the time" in unmeasured_column([run], "test_accuracy", "control_bits")
    assert "training_loss=true" in unmeasured_column([run], "train_loss", "time")


def test_means_are_compared_on_shared_seeds():
    one, two, three, four = (result([level]) for level in (0.1, 0.2, 0.3, 0.4))
    many, fewer = {0: one, 1: two, 2: three, 3: four}, {1: four, 2: three, 3: two}

    def shared_seeds(curves):
        return {name: list(runs.values()) for name, runs in aligned_seeds(curves).items()}

    assert shared_seeds({"a": many, "b": fewer, "none yet": {}}) == {"a": [two, three, four], "b": [four, three, two]}
    # a curve with one or two seeds does not cost the others theirs
    assert shared_seeds({"a": many, "b": {7: one}}) == {"a": [one, two, three, four], "b": [one]}
    assert shared_seeds({"a": {0: one}, "b": {1: two}}) == {"a": [one], "b": [two]}
    assert shared_seeds({}) == {}


def test_curves_end_where_the_first_of_them_ends():
    """Continued flat, they would seem to have settled."""
    short, long = result([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]), result([0.1, 0.2, 0.3, 0.9], [2.0, 3.0, 4.0, 5.0])
    assert mean_band([long, short], "test_accuracy").x == pytest.approx([2, 3])
    drawn = difference_band({0: long}, {0: short}, "test_accuracy")
    assert drawn is not None
    assert drawn.x == pytest.approx([2, 3])


def test_the_mean_accuracy_starts_at_zero_for_everyone():
    """A slower clock with the same models is worse, not excused from its start."""
    quick, slow = result([0.8] * 8, [0.5 * k for k in range(1, 9)]), result([0.8] * 4, [1.0, 2.0, 3.0, 4.0])
    assert mean_accuracy(quick) == pytest.approx((0.5 * 0.1 + 3.5 * 0.8) / 4)
    assert mean_accuracy(slow) == pytest.approx((1.0 * 0.1 + 3.0 * 0.8) / 4)
    early = RunResult({"timeline": {"horizon": 8}}, slow.columns, {})  # the last model counts to the end
    assert mean_accuracy(early) == pytest.approx((1.0 * 0.1 + 7.0 * 0.8) / 8)


def test_band_is_mean_and_interval_over_seeds():
    drawn = mean_band([result([0.1, 0.2]), result([0.3, 0.4])], "test_accuracy")
    assert drawn.mean == pytest.approx([0.2, 0.3])
    assert np.all(drawn.low < drawn.mean)
    assert np.all(drawn.mean < drawn.high)
    factor = mean_band([result([0.1, 0.2]), result([0.4, 0.2])], "test_accuracy", ratio=True)
    assert factor.mean == pytest.approx([0.2, 0.2])
    assert factor.low * factor.high == pytest.approx([0.04, 0.04])
    assert factor.low[0] > 0


def test_the_band_of_a_difference_is_paired_and_ends_at_what_decides_claims():
    """Seeds differ a lot, the variants by 0.1 on each: pairing leaves no spread."""
    time = [0.5 * k for k in range(1, 9)]
    better = {seed: result([level] * 8, time) for seed, level in enumerate((0.2, 0.5, 0.8))}
    worse = {seed: result([level - 0.1] * 8, time) for seed, level in enumerate((0.2, 0.5, 0.8, 0.9))}
    drawn = difference_band(worse, better, "test_accuracy")
    assert drawn is not None
    assert drawn.num_seeds == 3
    assert drawn.x == pytest.approx(time)
    assert drawn.mean[0] == pytest.approx(0)  # chance until then, for both
    assert drawn.high - drawn.low == pytest.approx(np.zeros(8), abs=1e-12)
    assert drawn.mean[-1] == pytest.approx(mean_accuracy(worse[0]) - mean_accuracy(better[0]))
    late = {0: result([0.5] * 4, [1.0, 2.0, 3.0, 4.0])}
    begun = difference_band(better, late, "test_accuracy")
    assert begun is not None
    assert begun.x == pytest.approx([1, 2, 3, 4])
    assert difference_band({0: better[0]}, {1: worse[1]}, "test_accuracy") is None


def test_before_the_first_evaluation_there_is_chance():
    ten = result([0.5, 0.5])  # evaluated at 1 and 2 of 2
    assert mean_accuracy(ten) == pytest.approx((0.1 + 0.5) / 2)
    assert mean_accuracy(dataclasses.replace(ten, totals={"num_labels": 81})) == pytest.approx((1 / 81 + 0.5) / 2)
