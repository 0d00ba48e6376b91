import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmas
from fedtide.codec.sparse_quantized import SparseQuantized
from fedtide.errors import FedtideError
from fedtide_lab.theory.bound import SHARP, paper_quantiser, tight_quantiser
from fedtide_lab.theory.objectives import LeastSquares, Softmax
from lemmas import Instance


@st.composite
def instances(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_devices, num_samples, width = draw(st.integers(1, 3)), draw(st.integers(2, 5)), draw(st.integers(1, 4))
    features = [rng.standard_normal((num_samples, width)) for _ in range(num_devices)]
    l2 = draw(st.floats(0.05, 1))
    if draw(st.booleans()):
        own = draw(st.floats(0, 2))
        targets = [
            x @ (1 + own * rng.standard_normal(width)) + 0.3 * rng.standard_normal(num_samples) for x in features
        ]
        objective = LeastSquares(features, targets, l2)
    else:
        objective = Softmax(features, [rng.integers(0, 2, num_samples) for _ in features], 2, l2)
    d = objective.num_parameters
    devices = np.flatnonzero(rng.random(num_devices) < 0.7)
    devices = devices if len(devices) else np.array([0])
    optimum = objective.minimiser(np.full(num_devices, 1 / num_devices))
    return Instance(
        objective=objective,
        devices=devices,
        weights=rng.dirichlet(np.ones(len(devices))),
        model=optimum + draw(st.floats(0, 10)) * rng.standard_normal(d),
        optimum=optimum,
        local_optima=np.array([objective.minimiser(alone) for alone in np.eye(num_devices)]),
        num_kept=draw(st.integers(0, d)),
        num_levels=draw(st.integers(1, 5)),
        batch_size=draw(st.integers(1, num_samples)),
        alpha=draw(st.floats(1e-4, 3)),
    )


@settings(max_examples=150, deadline=None)
@given(instance=instances())
def test_the_lemmas_hold_with_the_papers_and_the_tight_constants(instance):
    c = lemmas.constants(instance)
    assert lemmas.lemma_2(instance, c).holds
    for q in (paper_quantiser(c), tight_quantiser(c)):
        assert lemmas.lemma_1(instance, c, q).holds
        assert lemmas.lemma_3(instance, c, q).holds


@settings(max_examples=150, deadline=None)
@given(instance=instances(), share=st.floats(0.01, 1))
def test_our_one_step_inequality_holds_up_to_its_step_limit(instance, share):
    c = lemmas.constants(instance)
    instance = instance._replace(alpha=share * SHARP.step_limit(c))
    assert lemmas.sharp_step(instance, c).holds


@settings(max_examples=150, deadline=None)
@given(
    vector=st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=8).map(np.array),
    num_levels=st.integers(1, 20),
    data=st.data(),
)
def test_the_quantiser_varies_no_more_than_all_three_bounds_say(vector, num_levels, data):
    r = data.draw(st.integers(0, len(vector)))
    noise = lemmas.compression_noise(vector, r, num_levels)
    kept = r / len(vector) * (vector @ vector)  # E||u~||^2
    for bound in (r / (4 * num_levels**2), r / num_levels**2, np.sqrt(r) / num_levels):
        assert noise <= bound * kept * (1 + 1e-9) + 1e-12


def test_the_exact_compression_noise_is_the_codecs():
    codec, rng = SparseQuantized(2), np.random.default_rng(0)
    update = np.array([1.0, -0.4, 0.1, 0.7, 0.0], np.float32)
    budget = 32 + np.log2(10) + 3 * 3 + 0.01  # r = 3 of d = 5, 3 bits each
    assert codec.num_kept(5, budget) == 3
    sent = np.array([codec.decode(codec.encode(update, budget, rng)) for _ in range(4000)], np.float64)
    second = (sent**2).sum(axis=1)
    exact = lemmas.compression_noise(update.astype(np.float64), 3, 2) + 0.6 * float(update @ update)
    assert abs(second.mean() - exact) < 4 * second.std() / np.sqrt(len(second))
    np.testing.assert_allclose(sent.mean(axis=0), 0.6 * update, atol=0.05)


def test_eq_after_rdmSp_is_no_identity_and_errs_on_both_sides():
    """The codec normalises with the sparsified norm; the paper's right side with the full one. Lemma 3 holds all the same."""
    left, right = lemmas.sparsified_first(np.ones(2), np.ones(2), 1, 1)
    assert left == pytest.approx(1.0)
    assert right == pytest.approx(1 + (np.sqrt(2) - 1))
    left, right = lemmas.sparsified_first(np.ones(4), np.ones(4), 2, 2)
    assert right == pytest.approx(2.0)
    assert left > 2.1


def test_lemma_2_fails_pointwise_where_r_t_is_below_r_min():
    """As printed it has r_min for r_t: in a round with r_t = 0 nothing contracts."""
    objective = LeastSquares([np.eye(2) * np.sqrt(2)], [np.zeros(2)], 0.0)
    zero = np.zeros(2)
    instance = Instance(objective, np.array([0]), np.ones(1), np.ones(2), zero, zero[None], 0, 4, 2, 0.01)
    c = lemmas.constants(instance)
    assert lemmas.lemma_2(instance, c).holds
    assert not lemmas.lemma_2(instance, c._replace(r_min=1.5)).holds


def test_instances_too_large_for_exact_sums_are_refused():
    with pytest.raises(FedtideError, match="small instances"):
        lemmas.compression_noise(np.ones(40), 20, 4)
