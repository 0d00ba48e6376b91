from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from fedtide.studies.results import COLUMNS, RunResult
from fedtide.studies.table import table_effect
from fedtide_lab.paper.claims import Check, Claim, Finding, adjusted_p_values, decide_claim
from fedtide_lab.paper.figures import FIGURES, fedasync_uploads, figure_study
from fedtide_lab.paper.page import _anchor
from fedtide_lab.paper.reproduce import claims_rows, difference_words, in_words, observed_rows
from fedtide_lab.paper.sentences import CLAIMS, OBSERVATIONS


def result(level: float) -> RunResult:
    columns = {name: [1.0, 2.0] for name in COLUMNS} | {"test_accuracy": [level, level], "train_loss": [level, level]}
    return RunResult({"timeline": {"horizon": 2.0}}, columns, {})


def runs(levels):
    return dict(enumerate(map(result, levels)))


def claim(**kind) -> Claim:
    return Claim("c", "text", (Check("R", "a", "b", **kind),))


def test_every_claim_names_curves_that_exist() -> None:
    checks = [check for claim in CLAIMS for group in claim.groups for check in group]
    checks += [check for each in OBSERVATIONS for check in each.checks]
    for check in checks:
        for side in (check.better, check.worse):
            curves = {side} if isinstance(side, str) else set(side)
            assert curves <= FIGURES[check.figure].variants().keys()
    assert len({each.name for each in CLAIMS}) == len(CLAIMS)
    assert len({_anchor(each.text) for each in CLAIMS}) == len(CLAIMS)  # the page links to them


@pytest.mark.parametrize("each", CLAIMS, ids=lambda each: each.name)
def test_every_claim_carries_the_papers_own_words(each):
    assert 20 < len(each.quote) <= 300
    assert re.fullmatch(
        r"abstract|section (I|II|III|IV|V|VI)(-[A-D])?(, (of .+|footnote|Remark 2|Assumption 4))?", each.section
    )
    assert not re.search(r'[\\$`"|]', each.quote)  # plain text, and it fits into a table and between quotation marks
    assert not re.search(r"[|]", each.text + each.reading)
    row = claims_rows([decide_claim(each, {})])[0]
    assert (row["kind"], row["quote"], row["section"]) == ("claim", each.quote, each.section)
    assert row["reading"] == each.reading


@pytest.mark.parametrize("each", [each for each in CLAIMS if each.otherwise], ids=lambda each: each.name)
def test_a_claim_with_a_choice_says_so(each):
    """What is decided existentially is read so in writing."""
    assert re.search(r"\bone\b", each.reading, re.IGNORECASE)


def test_every_comparison_of_a_claim_has_another_measure():
    for each in (*CLAIMS, *OBSERVATIONS):
        assert each.by_other_measure() != each


def by_name(name: str) -> Claim:
    return next(each for each in CLAIMS if each.name == name)


def weights(setting: str, **levels: tuple[float, float, float]) -> dict:
    """Make five seeds of the weights figure: accuracy at gamma = 1, 0.846, 1.182, by schedule."""
    spread = np.array([0.0, 0.001, -0.001, 0.002, -0.002])
    return {
        "weights": {
            f"{schedule}, $\\gamma$={gamma:g} | {setting}": runs(level + spread * (1 + 0.1 * gamma))
            for schedule, three in levels.items()
            for gamma, level in zip((1.0, 0.846, 1.182), three, strict=True)
        }
    }


@pytest.mark.parametrize("setting", ["i.i.d.", "non-i.i.d."])
@pytest.mark.parametrize(
    ("proposed", "random", "verdict"),
    [
        ((0.8, 0.9, 0.7), (0.8, 0.9, 0.7), "holds"),  # fresh under both
        ((0.8, 0.7, 0.9), (0.8, 0.7, 0.9), "holds"),  # old under both
        (
            (0.8, 0.9, 0.7),
            (0.8, 0.7, 0.9),
            "contradicted",
        ),  # fresh under one, old under the other: no gamma serves both
        ((0.8, 0.7, 0.7), (0.8, 0.7, 0.7), "contradicted"),
        ((0.8, 0.9, 0.7), (0.8, 0.8, 0.7), "not resolved"),
        ((0.8, 0.7, 0.8), (0.8, 0.7, 0.8), "not resolved"),  # fresh loses, old is open
    ],
)
def test_one_gamma_other_than_1_is_enough(setting, proposed, random, verdict):
    """What is open differs from seed to seed by more than the levels do."""
    results = weights(setting, proposed=proposed, random=random)
    assert decide_claim(by_name(f"weights, {setting}"), results).verdict == verdict


@pytest.mark.parametrize(
    ("proposed", "random", "verdict"),
    [
        ((0.8, 0.82, 0.8), (0.7, 0.8, 0.6), "holds"),  # fresh alone
        ((0.8, 0.8, 0.82), (0.7, 0.6, 0.8), "holds"),  # old alone: both count alike
        ((0.8, 0.6, 0.6), (0.7, 0.65, 0.65), "contradicted"),  # it only loses less: no gain
        ((0.8, 0.9, 0.9), (0.7, 0.75, 0.75), "contradicted"),  # gains less
        ((0.8, 0.9, 0.8), (0.7, 0.75, 0.7), "not resolved"),  # fresh gains less, old is open
    ],
)
def test_the_clearer_gain_under_random_does_not_hang_on_one_gamma(proposed, random, verdict):
    results = weights("non-i.i.d.", proposed=proposed, random=random)
    assert decide_claim(by_name("weights, random"), results).verdict == verdict


def test_one_mixing_is_enough_for_the_stragglers():
    def frameworks(first, second):
        both = [
            (f"{name} | {setting}", level)
            for setting in ("i.i.d.", "non-i.i.d.")
            for name, level in (("FedAvg", 0.7), ("FedAsync 0.4", first), ("FedAsync 0.8", second))
        ]
        # seeds that differ between the curves, so that equal levels stay open
        return {
            "frameworks": {
                name: runs([level, level + 0.001 * k, level - 0.001 * k]) for k, (name, level) in enumerate(both)
            }
        }

    stragglers = by_name("FedAsync, stragglers")
    assert decide_claim(stragglers, frameworks(0.8, 0.6)).verdict == "holds"
    assert decide_claim(stragglers, frameworks(0.6, 0.8)).verdict == "holds"
    assert decide_claim(stragglers, frameworks(0.6, 0.6)).verdict == "contradicted"
    assert decide_claim(stragglers, frameworks(0.6, 0.7)).verdict == "not resolved"


def test_findings_of_ours_get_no_verdict_on_the_paper():
    results = {"R": {"a | i.i.d.": runs([0.5, 0.52, 0.53]), "b | i.i.d.": runs([0.9, 0.91, 0.92])}}
    ours = Claim("o", "text", (Check("R", "a | i.i.d.", "b | i.i.d."),), reading="note")
    row = observed_rows([decide_claim(ours, results)])[0]
    assert (row["kind"], row["finding"], row["note"]) == ("finding of ours", "o", "note")
    assert "verdict" not in row
    (found,) = row["comparisons"]
    assert (found["verdict"], found["by_other_measure"]["metric"]) == ("lower", "final_accuracy")
    assert found["mean"] == pytest.approx(-0.39 / 2, abs=0.01)
    assert difference_words(found) == "a less b, i.i.d."


def test_what_the_paper_does_not_say_is_no_claim():
    """Old updates in general, and more from fresh ones under the proposed schedule, are findings of ours."""
    assert {"old", "fresh by schedule"} <= {each.name for each in OBSERVATIONS}
    old = [
        f"{schedule}, $\\gamma$=1.182 | {setting}"
        for schedule in ("proposed", "random")
        for setting in ("i.i.d.", "non-i.i.d.")
    ]
    for each in CLAIMS:
        for group in each.groups:
            assert not set(old) <= {check.better for check in group}, each.name
        if len(each.groups) == 1:  # nothing hangs on old updates alone
            assert not set(old) & {check.better for check in each.checks}, each.name


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([0.9, 0.91, 0.92], [0.8, 0.81, 0.83], "holds"),
        ([0.8, 0.81, 0.83], [0.9, 0.91, 0.92], "contradicted"),
        ([0.9, 0.7, 0.8], [0.8, 0.81, 0.8], "not resolved"),
        ([0.9], [0.1], "not resolved"),
    ],
)
def test_verdicts(a, b, verdict):
    results = {"R": {"a": runs(a), "b": runs(b)}}
    assert decide_claim(claim(), results).verdict == verdict
    assert (decide_claim(claim(), results).p_value <= 0.05) == (verdict in ("holds", "contradicted"))
    flipped = {"holds": "contradicted", "contradicted": "holds"}.get(verdict, verdict)
    assert decide_claim(claim(metric="mean_train_loss", lower_is_better=True), results).verdict == flipped


@pytest.mark.parametrize(
    ("groups", "verdict"),
    [
        ([["near a"]], "no difference above 0.01"),
        ([["a a"]], "no difference above 0.01"),  # the same on every seed
        ([["near a", "a near"]], "no difference above 0.01"),
        ([["near a", "above a"]], "no difference above 0.01"),  # one is resolved, and small
        ([["near a", "far a"]], "not resolved"),  # one is not small
        ([["above a"]], "holds"),  # however small it is
        ([["a above"]], "contradicted"),
        ([["near a"], ["a near"]], "no difference above 0.01"),
        (
            [["near a"], ["a far"]],
            "not resolved",
        ),  # the best way in which it may hold is no difference, the other is one
        ([["near a", "a missing"]], "runs missing"),
    ],
)
def test_a_claim_may_be_about_no_difference_above_the_margin(groups: list[list[str]], verdict: str) -> None:
    level = np.array([0.5, 0.52, 0.54, 0.5])
    curves = {"a": 0.0, "near": np.array([2, -2, 1, -1]) / 1000, "above": np.array([4, 5, 4, 5]) / 1000, "far": 0.05}
    results = {"R": {name: runs(level + change) for name, change in curves.items()}}
    checks = [tuple(Check("R", *words.split()) for words in group) for group in groups]
    found = decide_claim(Claim("c", "text", checks[0], tuple(checks[1:])), results)
    assert found.verdict == verdict
    assert found.seeds_needed is None or verdict == "not resolved"
    assert (found.p_value <= 0.05) == (verdict in ("holds", "contradicted"))


def test_p_values_are_adjusted_for_the_number_of_claims() -> None:
    found = adjusted_p_values([0.01, 0.04, 0.03, 0.005])
    assert found["Holm"] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert found["Benjamini-Hochberg"] == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert adjusted_p_values([]) == {"Holm": [], "Benjamini-Hochberg": []}


def test_a_metric_without_a_margin_is_not_asked_for_equivalence() -> None:
    results = {"R": {"a": runs([0.9, 0.7]), "b": runs([0.9, 0.7])}}
    assert decide_claim(claim(), results).verdict == "no difference above 0.01"
    assert decide_claim(claim(metric="mean_train_loss"), results).verdict == "not resolved"


def test_the_seeds_of_a_claim_count_what_no_difference_still_needs() -> None:
    """A comparison within the margin is not resolved: the claim waits for it."""
    level, near = np.array([0.5, 0.52, 0.54, 0.5]), np.array([3, -2, 2, -1]) / 1000
    results = {"R": {"a": runs(level), "near": runs(level + near), "far": runs(level + 0.05)}}
    found = decide_claim(Claim("c", "text", (Check("R", "near", "a"), Check("R", "far", "a"))), results)
    assert (found.verdict, found.weakest.answer()) == ("not resolved", "no difference above 0.01")
    assert (found.seeds_needed or 0) > 4


def test_a_claim_holds_only_if_all_its_comparisons_do():
    good, bad = runs([0.9, 0.91, 0.92]), runs([0.5, 0.52, 0.53])
    results = {"R": {"a": good, "b": bad}}
    both = Claim("c", "text", (Check("R", "a", "b"), Check("R", "b", "a")))
    assert decide_claim(both, results).verdict == "contradicted"
    assert (
        decide_claim(Claim("c", "text", (Check("R", "a", "b"), Check("R", "a", "missing"))), results).verdict
        == "runs missing"
    )


def test_the_weakest_comparison_is_the_one_on_which_the_claim_hangs():
    good, bad, near = runs([0.9, 0.91, 0.92]), runs([0.5, 0.52, 0.53]), runs([0.9, 0.9, 0.93])
    results = {"R": {"a": good, "b": bad, "n": near}}
    sure, doubtful, wrong = Check("R", "a", "b"), Check("R", "a", "n"), Check("R", "b", "a")

    def hangs_on(*groups):
        verdict = decide_claim(Claim("c", "text", groups[0], groups[1:]), results)
        return verdict.weakest.check, [finding.check for finding in verdict.decisive]

    missing = Check("R", "a", "missing")
    assert hangs_on((sure, doubtful)) == (doubtful, [sure, doubtful])
    assert hangs_on((doubtful, wrong, sure)) == (wrong, [doubtful, wrong, sure])
    assert hangs_on((wrong, sure), (sure, doubtful), (wrong,)) == (doubtful, [sure, doubtful])
    assert hangs_on((sure, missing)) == (missing, [sure, missing])


def test_what_is_contradicted_is_so_whatever_is_missing():
    results = {"R": {"a": runs([0.9, 0.91, 0.92]), "b": runs([0.5, 0.52, 0.53])}}
    wrong, sure, missing = Check("R", "b", "a"), Check("R", "a", "b"), Check("R", "a", "missing")
    assert decide_claim(Claim("c", "text", (wrong, missing)), results).verdict == "contradicted"
    assert decide_claim(Claim("c", "text", (sure, missing)), results).verdict == "runs missing"
    assert decide_claim(Claim("c", "text", (missing,), ((sure,),)), results).verdict == "holds"


def test_runs_too_short_to_tell_are_not_resolved():
    results = {"R": {"a": runs([0.9, 0.8]), "b": runs([0.7, 0.6])}}  # two evaluations: no scatter to speak of
    verdict = decide_claim(claim(metric="roughness"), results)
    assert verdict.verdict == "not resolved"
    assert table_effect(claims_rows([verdict])[0]["weakest"]) == "runs too short to tell"


def test_every_claim_is_decided_by_another_measure_too():
    results = {"R": {"a": runs([0.9, 0.91, 0.92]), "b": runs([0.5, 0.52, 0.53])}}
    other = decide_claim(claim(), results).other
    assert other.findings[0].check.metric == "final_accuracy"
    assert other.findings[0].difference == pytest.approx((0.4, 0.39, 0.39))
    row = claims_rows([decide_claim(claim(), results)])[0]
    assert (row["verdict"], row["by_other_measure"]) == ("holds", "holds")
    for each in CLAIMS:
        assert len(each.by_other_measure().groups) == len(each.groups)


def test_one_way_in_which_a_claim_holds_is_enough():
    good, bad, wild = runs([0.9, 0.91, 0.92]), runs([0.5, 0.52, 0.53]), runs([0.1, 0.9, 0.4])
    results = {"R": {"a": good, "b": bad, "w": wild}}
    yes, no, open_ = ((Check("R", *sides),) for sides in (("a", "b"), ("b", "a"), ("w", "b")))
    assert decide_claim(Claim("c", "text", no, (yes,)), results).verdict == "holds"
    assert decide_claim(Claim("c", "text", no, (open_,)), results).verdict == "not resolved"
    assert decide_claim(Claim("c", "text", no, (no,)), results).verdict == "contradicted"


def test_many_comparisons_do_not_contradict_a_claim_by_chance():
    """Resolved the other way at 95 % alone, but not at 1 - 5 %/8."""
    a, b = runs([0.80, 0.82, 0.84]), runs([0.83, 0.86, 0.905])
    results = {"R": {"a": a, "b": b}}
    one = Claim("c", "text", (Check("R", "a", "b"),))
    assert decide_claim(one, results).verdict == "contradicted"
    assert decide_claim(one._replace(checks=one.checks * 8), results).verdict == "not resolved"


def test_the_seeds_that_would_decide_are_those_of_the_whole_claim():
    """All comparisons at once, four times in five: more than the weakest alone needs."""
    base = np.array([0.5, 0.51, 0.52, 0.5])
    near, far = runs(np.add(base, [0.05, -0.03, 0.04, 0.0])), runs(np.add(base, [0.06, -0.02, 0.05, 0.01]))
    results = {"R": {"a": runs(base), "near": near, "far": far}}
    one, other = Check("R", "near", "a"), Check("R", "far", "a")
    alone = decide_claim(Claim("c", "text", (one,)), results)
    assert alone.seeds_needed == alone.weakest.at(0.95).seeds_needed
    both = decide_claim(Claim("c", "text", (one, other)), results)
    assert both.seeds_needed > alone.seeds_needed
    row = claims_rows([both])[0]
    assert f"about {both.seeds_needed} would resolve it" in table_effect(row["weakest"])
    rng, n = np.random.default_rng(0), both.seeds_needed

    def drawn(finding):
        difference = np.array(finding.difference)
        return Finding(finding.check, tuple(rng.normal(difference.mean(), difference.std(ddof=1), n)))

    again = [both._replace(groups=(tuple(map(drawn, both.groups[0])),)).verdict for _ in range(400)]
    assert np.mean([each == "holds" for each in again]) >= 0.77


def test_the_seeds_that_would_decide_are_counted_at_the_level_of_the_rule():
    base = np.array([0.5, 0.51, 0.52, 0.5])
    results = {"R": {"a": runs(base), "b": runs(np.add(base, [0.05, -0.03, 0.04, 0.0]))}}
    up, down = (Check("R", "b", "a"),), (Check("R", "a", "b"),)
    usual = decide_claim(Claim("c", "text", up), results).seeds_needed
    assert decide_claim(Claim("c", "text", up, (down, down)), results).seeds_needed > usual  # 1 - 5 %/3
    many = decide_claim(Claim("c", "text", down * 8), results)  # to be contradicted, at 1 - 5 %/8
    assert many.seeds_needed > usual
    assert claims_rows([many])[0]["comparisons"][0]["seeds_needed"] == many.seeds_needed


def test_of_what_is_decided_no_seeds_are_asked_for():
    results = {"R": {"a": runs([0.9, 0.91, 0.92]), "b": runs([0.5, 0.52, 0.53])}}
    assert decide_claim(claim(), results).seeds_needed is None
    assert decide_claim(Claim("c", "text", (Check("R", "a", "missing"),)), results).seeds_needed is None
    mixed = {"R": {"a": runs([0.9, 0.7, 0.8]), "b": runs([0.8, 0.81, 0.79]), "c": runs([0.9, 0.7])}}
    few = decide_claim(Claim("c", "text", (Check("R", "a", "b"), Check("R", "c", "b"))), mixed)
    assert few.seeds_needed is None  # two seeds say too little


def test_a_comparison_says_how_many_of_its_runs_diverged():
    lost = {seed: dataclasses.replace(each, totals={"diverged": 0.5}) for seed, each in runs([0.1, 0.1]).items()}
    finding = decide_claim(claim(), {"R": {"a": runs([0.9, 0.8]), "b": lost}}).findings[0]
    assert finding.diverged_note == "2 of 4 diverged"
    assert table_effect(
        claims_rows([decide_claim(claim(), {"R": {"a": runs([0.9, 0.8]), "b": lost}})])[0]["weakest"]
    ).endswith("; 2 of 4 diverged")


def test_gains_are_differences_of_differences():
    results = {"R": {"a": runs([0.9, 0.8]), "b": runs([0.7, 0.6]), "c": runs([0.95, 0.85]), "d": runs([0.9, 0.8])}}
    finding = decide_claim(Claim("c", "text", (Check("R", ("a", "b"), ("c", "d")),)), results).findings[0]
    assert finding.difference == pytest.approx((0.15 / 2, 0.15 / 2))


def test_only_shared_seeds_are_compared():
    results = {"R": {"a": {0: result(0.9), 1: result(0.8)}, "b": {1: result(0.7), 2: result(0.1)}}}
    finding = decide_claim(claim(), results).findings[0]
    assert finding.difference == pytest.approx((0.1 / 2,))
    row = claims_rows([decide_claim(claim(), results)])[0]["comparisons"][0]
    assert row["low"] is None


def test_no_verdict_before_the_seeds_of_the_plan_and_none_from_later_ones():
    good, bad = runs([0.9, 0.91, 0.92, 0.2]), runs([0.5, 0.52, 0.53, 0.9])
    results = {"R": {"a": good, "b": bad}}
    waiting = decide_claim(claim(), results, {"R": range(5)})
    assert (waiting.verdict, waiting.awaited, waiting.so_far, waiting.p_value) == ("runs missing", 1, "not resolved", 1)
    row = claims_rows([waiting])[0]
    assert (row["verdict"], row["seeds"], row["seeds_awaited"]) == ("runs missing", 4, 1)
    whole = decide_claim(claim(), results, {"R": range(3)})
    assert (whole.verdict, whole.awaited, len(whole.findings[0].difference)) == ("holds", 0, 3)


def test_no_verdict_rests_on_fewer_than_six_seeds():
    for each in CLAIMS:
        for check in each.checks:
            assert FIGURES[check.figure].seeds >= 6, each.name


def test_seeds_on_which_fedasync_uploads_too_much_are_skipped():
    assert FIGURES["R"].seed_numbers() == list(range(10))
    few = FIGURES["frameworks_no_minimum"].seed_numbers()
    assert few == [0, 1, 2, 3, 5, 7, 8, 9, 10, 11]
    assert max(fedasync_uploads(seed).sum() for seed in few) <= 20_000 < fedasync_uploads(4).sum()


def test_a_claim_may_ask_for_more_than_a_difference():
    results = {"R": {"a": runs([0.91, 0.921, 0.93]), "b": runs([0.9, 0.91, 0.92])}}
    assert decide_claim(claim(), results).verdict == "holds"
    assert decide_claim(claim(least=0.02), results).verdict == "contradicted"
    assert decide_claim(claim(margin=0.001), {"R": {"a": runs([0.9, 0.702]), "b": runs([0.9, 0.7])}}).verdict == (
        "not resolved"
    )


def test_costs_are_totals_of_a_run():
    cheap, dear = (dataclasses.replace(result(0.5), totals={"uploads": n}) for n in (10, 30))
    results = {"R": {"a": {0: dear, 1: dear}, "b": {0: cheap, 1: cheap}}}
    found = decide_claim(claim(metric="uploads"), results)
    assert found.findings[0].difference == (20, 20)
    assert found.verdict == "holds"


def test_settings_of_the_figures_are_the_papers():
    def only(name):
        return [run.experiment for run in figure_study(FIGURES[name], [0]).runs]

    assert {(e.fleet.num_devices, e.radio.num_symbols) for e in only("R")} == {(40, 50_000)}
    assert sorted({e.policy.limit for e in only("R")}) == [2, 4, 8, 12, 20]
    assert {(e.fleet.num_devices, e.policy.limit, e.radio.num_symbols) for e in only("schedulers")} == {
        (40, 8, 300_000)
    }
    assert {(e.fleet.num_devices, e.policy.limit, e.radio.num_symbols) for e in only("weights")} == {(100, 30, 380_000)}
    assert {e.part("codec").name for name in FIGURES for e in only(name)} == {"sparse_quantized"}
    assert {e.timeline.period for e in only("period")} == {0.125, 0.25, 0.5, 1.0}
    assert np.isclose(sorted({e.policy.age_base for e in only("weights")}), [0.846, 1.0, 1.182]).all()


def test_figures_share_runs():
    names = [
        run.name for name in ("period", "frameworks", "schedulers") for run in figure_study(FIGURES[name], [0]).runs
    ]
    assert len(set(names)) < len(names)


def test_a_comparison_in_words_says_once_what_both_sides_share():
    def words(better: str, worse: str, lower: bool = False, metric: str = "mean_accuracy") -> str:
        return in_words({"better": better, "worse": worse, "lower_is_better": lower, "metric": metric})

    assert words("proposed | i.i.d.", "random | i.i.d.") == "proposed > random, i.i.d."
    assert words("random | i.i.d.", "random | non-i.i.d.", lower=True) == "random, i.i.d. < non-i.i.d."
    assert words("a | i.i.d.", "b | i.i.d.", True, "variation") == "a < b, i.i.d. (variation)"
    assert words("a | i.i.d.", "b | non-i.i.d.") == "a, i.i.d. > b, non-i.i.d."
    assert words("gain of a | i.i.d. over b", "gain of c | i.i.d. over d") == (
        "gain of a, i.i.d. over b > gain of c, i.i.d. over d"
    )
