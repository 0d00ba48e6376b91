import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.timeline.timelines import Periodic
from fedtide_lab.theory import bound
from fedtide_lab.theory.bound import PAPER_BOUND, SHARP, TIGHT, Constants
from helpers import ticks_of

BASE = Constants(
    d=20, nu=2, mu=0.8, L=1.1, C_1=0.3, C_2=1.4, zeta=0.05, local_gap=0.02, r_min=15.0, a_lim=4, initial=10.0
)
positive = st.floats(0.01, 10)
sets = st.builds(
    lambda d, nu, mu, ratio, C_1, C_2, zeta, rho: BASE._replace(
        d=d, nu=nu, mu=mu, L=mu * ratio, C_1=C_1, C_2=C_2, zeta=zeta, local_gap=mu * ratio * zeta / 2, r_min=rho * d
    ),
    st.integers(1, 500),
    st.integers(1, 64),
    positive,
    st.floats(1, 20),
    positive,
    st.floats(1, 5),
    positive,
    st.floats(0.05, 0.9),
)


def test_the_numbers_of_the_theorem_by_hand():
    c = Constants(d=4, nu=1, mu=1, L=1, C_1=0.5, C_2=1, zeta=0.1, local_gap=0.05, r_min=2, a_lim=1, initial=3)
    assert bound.paper_quantiser(c) == 1.0
    assert bound.C_3(c, 1.0) == 24.0  # 8 [(1 + 1) 1 + 1]
    assert PAPER_BOUND.step_limit(c) == pytest.approx(0.5 / 26)
    alpha = 0.25 / 26
    assert PAPER_BOUND.contraction(c, alpha) == pytest.approx(1 - 0.5 * alpha + 26 * alpha**2)
    assert bound._epsilon(c, alpha, 1.0) == pytest.approx(0.1 + alpha * (2.6 + 4))
    assert PAPER_BOUND.asymptote(c, alpha) == pytest.approx((0.1 + alpha * 6.6) / 0.25)


def test_the_theorem_says_nothing_about_the_cnn():
    """Even with mu = L, C_2 = 1 and nothing lost on the air, L would have to be below 0.0364 for a step of 0.01."""
    c = BASE._replace(d=21840, nu=4, mu=1.0, L=1.0, C_2=1.0, r_min=21840)
    assert bound.C_3(c, bound.paper_quantiser(c)) == pytest.approx(8 * 343.25)
    assert PAPER_BOUND.step_limit(c) == pytest.approx(1 / 2748)
    assert TIGHT.step_limit(c) > PAPER_BOUND.step_limit(c)


@settings(max_examples=100, deadline=None)
@given(c=sets, share=st.floats(0.05, 0.8))
def test_remark_2_the_asymptote_moves_as_the_paper_says(c, share):
    alpha = share * PAPER_BOUND.step_limit(c)
    for variant in (PAPER_BOUND, TIGHT):
        here = variant.asymptote(c, alpha)
        assert variant.asymptote(c._replace(zeta=1.5 * c.zeta), alpha) > here
        assert variant.asymptote(c._replace(r_min=1.1 * c.r_min), alpha) < here
        assert variant.asymptote(c._replace(nu=c.nu + 1), alpha) < here
        assert variant.asymptote(c, 0.9 * alpha) < here


@settings(max_examples=100, deadline=None)
@given(c=sets, share=st.floats(0.05, 0.95))
def test_remark_3_the_contraction_moves_as_the_paper_says(c, share):
    alpha = share * PAPER_BOUND.step_limit(c)
    here = PAPER_BOUND.contraction(c, alpha)
    assert here < 1
    assert PAPER_BOUND.contraction(c._replace(r_min=1.05 * c.r_min), alpha) < here
    assert PAPER_BOUND.contraction(c._replace(nu=c.nu + 1), alpha) < here
    assert np.all(bound._exponents(c.a_lim + 1, 100) <= bound._exponents(c.a_lim, 100))
    # what the remark does not say: alpha helps up to half of the limit and harms from there on
    fastest = PAPER_BOUND.contraction(c, 0.5 * PAPER_BOUND.step_limit(c))
    assert here >= fastest
    assert PAPER_BOUND.contraction(c, PAPER_BOUND.step_limit(c)) == pytest.approx(1)


@settings(max_examples=100, deadline=None)
@given(c=sets, share=st.floats(0.05, 0.95))
def test_each_variant_is_below_the_one_before(c, share):
    alpha, ticks = share * PAPER_BOUND.step_limit(c), ticks_of(Periodic(0.25), np.array([0.1, 0.3, 0.6, 1.0]), 25.0)
    curves = [bound.bound_curve(variant, c, alpha, ticks) for variant in bound.VARIANTS]
    assert all(each.holds for each in curves)
    for looser, tighter in pairwise(curves):
        assert tighter.step_limit >= looser.step_limit * (1 - 1e-12)
        assert tighter.asymptote <= looser.asymptote * (1 + 1e-12)
        assert np.all(tighter.values <= looser.values * (1 + 1e-12))


@settings(max_examples=100, deadline=None)
@given(c=sets, share=st.floats(0.001, 0.999))
def test_what_the_theorem_can_never_promise(c, share):
    """C_2 >= 1 forces C-bar >= 1 - (mu/L)^2/72, and the asymptote never falls below zeta: one device alone does as well."""
    alpha = share * PAPER_BOUND.step_limit(c)
    assert PAPER_BOUND.contraction(c, alpha) >= 1 - (c.mu / c.L) ** 2 / 72
    assert PAPER_BOUND.asymptote(c, alpha) >= c.zeta * c.L / c.mu / c.rho
    assert SHARP.asymptote(c, alpha) >= c.zeta * (1 - 1e-12)


def test_the_smaller_quantiser_variance_is_taken():
    assert bound.tight_quantiser(BASE._replace(d=100, nu=1)) == 10.0
    assert bound.paper_quantiser(BASE._replace(d=100, nu=1)) == 25.0
    assert bound.tight_quantiser(BASE._replace(d=10, nu=4)) == bound.paper_quantiser(BASE._replace(d=10, nu=4))


def test_r_min_has_no_part_in_the_sharp_asymptote():
    assert SHARP.asymptote(BASE._replace(r_min=1.0), 0.01) == SHARP.asymptote(BASE, 0.01)


def test_exponents_by_hand():
    assert bound._exponents(2, 8).tolist() == [1, 1, 1, 2, 2, 2, 3, 3]


@settings(max_examples=60, deadline=None)
@given(durations=st.lists(st.floats(0.001, 1), min_size=1, max_size=6), parts=st.integers(1, 8))
def test_the_true_timeline_contracts_at_least_as_often_as_the_theorem_counts(durations, parts):
    """With a device that is always ready no round is empty, and the tight exponent (so the paper's too) is covered."""
    ticks = ticks_of(Periodic(1 / parts), np.array([0.5 / parts, *durations]), 12.0)
    assert bound.empty_rounds(ticks) == 0
    planned = bound._planned_exponents(ticks)
    assert np.all(planned >= bound._exponents(parts - 1, len(ticks)))
    assert np.all(planned <= np.arange(1, len(ticks) + 1))


def test_a_step_size_above_the_limit_is_reported_and_has_no_values():
    ticks = ticks_of(Periodic(0.25), np.array([0.1, 1.0]), 10.0)
    limit = PAPER_BOUND.step_limit(BASE)
    for alpha in (limit, 1.01 * limit):
        broken = bound.bound_curve(PAPER_BOUND, BASE, alpha, ticks)
        assert broken.values is None
        assert not broken.holds
        assert math.isnan(broken.asymptote)
        assert "condition is broken" in broken.problem
    assert bound.bound_curve(PAPER_BOUND, BASE, 0.99 * limit, ticks).holds


def test_rounds_without_a_ready_device_are_not_covered():
    ticks = ticks_of(Periodic(0.25), np.array([1.0, 1.0]), 10.0)
    assert bound.empty_rounds(ticks) == 30
    assert bound._planned_exponents(ticks)[:9].tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    alpha = 0.5 * PAPER_BOUND.step_limit(BASE)
    assert "no ready device" in bound.bound_curve(PAPER_BOUND, BASE, alpha, ticks).problem
    assert bound.bound_curve(SHARP, BASE, alpha, ticks).holds


def test_no_bits_no_bound():
    ticks = ticks_of(Periodic(0.25), np.array([0.1]), 5.0)
    assert "Assumption 4" in bound.bound_curve(PAPER_BOUND, BASE._replace(r_min=0.0), 1e-3, ticks).problem
