"""The native kernel against PyTorch: gradients and scores, layer by layer and network by network, on every instruction path."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from fedtide.learning import native, trainer
from fedtide.learning.model import (
    MODELS,
    ChannelDropout,
    Conv2d,
    Dropout,
    Linear,
    MaxPool2d,
    Model,
    ReLU,
    initialize,
    model_shapes,
    num_labels,
    num_parameters,
    without_dropout,
)
from fedtide.learning.native import NativeTrainer
from fedtide.learning.torch import build_module
from fedtide.learning.trainer import LocalWork, Task
from fedtide.types import Job, Samples

ISAS = native.isas()
COLOUR = ("small_cnn", "lenet")  # models that are tested on colour images of 32 x 32
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    monkeypatch.setenv("FEDTIDE_ISA", request.param)
    return request.param


def draw_samples(model, count, seed=0, background=True):
    """Return noise on a constant background: pool blocks and patches full of ties."""
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((count, *model.input_shape)).astype(np.float32)
    if background:
        images[rng.random(images.shape) < 0.5] = -0.5
        images[:, :, : model.input_shape[1] // 2] = -0.5
    return Samples(images, rng.integers(0, num_labels(model), count).astype(np.uint8))


def torch_update(model, samples, start, visited, bounds, learning_rate, proximal=0.0):
    """Return the update that PyTorch's autograd and plain SGD give on the same mini-batches, in float64."""
    module = build_module(model).double()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(start.astype(np.float64)), module.parameters())
    anchor = [p.detach().clone() for p in module.parameters()]
    for low, high in itertools.pairwise(bounds):
        chosen = visited[low:high]
        images, labels = (
            torch.from_numpy(samples.images[chosen]),
            torch.from_numpy(samples.labels[chosen].astype(np.int64)),
        )
        loss = torch.nn.functional.cross_entropy(module(images.double()), labels)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient, origin in zip(module.parameters(), gradients, anchor, strict=True):
                parameter -= learning_rate * (gradient + proximal * (parameter - origin))
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy() - start


def gradient(model, samples, start, batch=None, fast=False):
    """Return the kernel's gradient of the mean loss over all samples: one step at learning rate 1."""
    count = len(samples.labels)
    work = LocalWork(batch_size=batch or count, epochs=None, steps=1, proximal=0.0)
    trained = NativeTrainer(task(model, work, seed=5), fast=fast)
    return -trained.train([Job(0, 1, start, 1.0, samples, np.arange(count))])[0]


def task(model, work=None, seed=1):
    return Task(model, work or LocalWork(), seed, model.input_shape, 10)


def assert_close(found, wanted, tolerance):
    assert found.shape == wanted.shape
    assert np.all(np.isfinite(found))
    scale = np.abs(wanted).max() + 1e-12
    np.testing.assert_allclose(found / scale, wanted / scale, atol=tolerance, rtol=0)


def assert_gradient_agrees(model, count, seed=0, tolerance=2e-5, fast=False):
    # Winograd's algorithm rounds equal sums differently, so that PyTorch may choose another of two maxima: noise, not ties.
    samples = draw_samples(model, count, seed, background=not fast)
    start = initialize(model, np.random.default_rng(seed + 1))
    wanted = -torch_update(model, samples, start, np.arange(count), np.array([0, count]), 1.0)
    assert_close(gradient(model, samples, start, fast=fast), wanted, tolerance)


@pytest.fixture(params=[False, True], ids=["", "fast"])
def fast(request):
    return request.param


LAYERS = {
    "linear": (1, 3, 5, [Linear(4)]),
    "linear wide": (2, 9, 7, [Linear(33), ReLU(), Linear(18)]),
    "linear relu last": (1, 4, 4, [Linear(6), ReLU()]),
    "conv": (1, 7, 6, [Conv2d(3, 3), Linear(4)]),
    "conv 1x1": (3, 5, 5, [Conv2d(7, 1), Linear(4)]),
    "conv 1x1 padded": (3, 5, 5, [Conv2d(7, 1, 1), Linear(4)]),
    "conv 7x7": (2, 9, 11, [Conv2d(5, 7), ReLU(), Linear(4)]),
    "conv 9x9": (2, 10, 11, [Conv2d(3, 9, 1), ReLU(), Linear(4)]),
    "conv padding": (2, 6, 7, [Conv2d(9, 3, 2), ReLU(), Linear(4)]),
    "conv relu": (5, 8, 9, [Conv2d(6, 3), ReLU(), Linear(4)]),
    "conv pool": (6, 9, 9, [Conv2d(7, 3), MaxPool2d(2), Linear(4)]),
    "conv pool relu": (17, 9, 9, [Conv2d(13, 3, 1), MaxPool2d(2), ReLU(), Linear(4)]),
    "conv relu pool": (3, 9, 9, [Conv2d(11, 3, 1), ReLU(), MaxPool2d(2), Linear(4)]),
    "conv pool 3": (4, 11, 12, [Conv2d(5, 3), ReLU(), MaxPool2d(3), Linear(4)]),
    "conv pool 4": (4, 11, 12, [Conv2d(5, 3, 1), ReLU(), MaxPool2d(4), Linear(4)]),
    "conv pool 1": (4, 5, 5, [Conv2d(5, 3), MaxPool2d(1), ReLU(), Linear(4)]),
    "conv pool pool": (2, 14, 14, [Conv2d(5, 3), MaxPool2d(2), MaxPool2d(2), ReLU(), ReLU(), Linear(4)]),
    "conv conv": (2, 9, 8, [Conv2d(20, 3), Conv2d(6, 3, 1), Linear(4)]),
    "conv conv conv": (
        3,
        10,
        10,
        [Conv2d(3, 3), ReLU(), Conv2d(18, 2), MaxPool2d(2), ReLU(), Conv2d(4, 3, 1), Linear(4)],
    ),
    "small to conv": (1, 9, 9, [Conv2d(2, 3), ReLU(), Conv2d(5, 3), ReLU(), Linear(4)]),
    "pool first": (2, 9, 9, [MaxPool2d(2), Conv2d(4, 3), ReLU(), Linear(4)]),
    "relu first": (2, 6, 6, [ReLU(), Conv2d(4, 3), Linear(4)]),
    "pool only": (2, 9, 9, [MaxPool2d(2), ReLU(), Linear(4)]),
    "no dropout": (
        2,
        9,
        9,
        [Dropout(0.0), Conv2d(4, 3), ChannelDropout(0.0), ReLU(), Dropout(0.0), Linear(4), Dropout(0.0)],
    ),
    "wide image": (1, 3, 40, [Conv2d(4, 3), MaxPool2d(1), Linear(4)]),
    "3x3 pools": (9, 11, 13, [Conv2d(21, 3, 1), ReLU(), MaxPool2d(2), Conv2d(17, 3, 2), MaxPool2d(2), Linear(4)]),
    "3x3 pools, aligned": (
        16,
        16,
        8,
        [Conv2d(32, 3, 1), MaxPool2d(2), ReLU(), Conv2d(64, 3, 1), MaxPool2d(2), Linear(4)],
    ),
    "3x3 pool of one block": (8, 4, 5, [Conv2d(8, 3), ReLU(), MaxPool2d(2), Linear(4)]),
    "many channels": (40, 6, 6, [Conv2d(35, 5, 2), MaxPool2d(2), ReLU(), Conv2d(33, 3), Linear(3)]),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("count", [1, 5])
def test_the_gradient_of_each_arrangement_of_layers_agrees_with_pytorch(name, count, fast, isa):
    channels, height, width, layers = LAYERS[name]
    assert_gradient_agrees(Model((channels, height, width), tuple(layers)), count, fast=fast)


@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 65, 130])
def test_any_batch_size_gives_the_mean_gradient(count, isa):
    model = Model((1, 8, 8), (Conv2d(6, 3), MaxPool2d(2), ReLU(), Linear(9), ReLU(), Linear(3)))
    assert_gradient_agrees(model, count)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "char_gru"])
def test_the_gradient_of_each_shipped_model_agrees_with_pytorch(name, fast, isa):
    shape = (3, 32, 32) if name in COLOUR else (1, 28, 28)
    assert_gradient_agrees(without_dropout(MODELS[name](shape, 10)), count=9, fast=fast)


def test_the_gradient_of_lenet_on_grey_images_agrees_with_pytorch(isa):
    assert_gradient_agrees(MODELS["lenet"]((1, 28, 28), 10), count=9)


@st.composite
def models(draw):
    shape = (draw(st.integers(1, 20)), draw(st.integers(1, 14)), draw(st.integers(1, 14)))
    layers, height, width = [], *shape[1:]
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["conv", "pool", "relu", "nothing"]))
        if kind == "conv":
            padding = draw(st.integers(0, 2))
            kernel = draw(st.integers(1, min(7, height + 2 * padding, width + 2 * padding)))
            layers.append(Conv2d(draw(st.integers(1, 21)), kernel, padding))
            height, width = height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1
        elif kind == "pool" and min(height, width) > 1:
            size = draw(st.integers(1, min(4, height, width)))
            layers.append(MaxPool2d(size))
            height, width = height // size, width // size
        elif kind == "relu":
            layers.append(ReLU())
        elif kind == "nothing":
            layers.append(draw(st.sampled_from([Dropout(0.0), ChannelDropout(0.0)])))
    for _ in range(draw(st.integers(0, 2))):
        layers += [Linear(draw(st.integers(1, 40))), *draw(st.sampled_from([[], [ReLU()], [Dropout(0.0)]]))]  # type: ignore[list-item]
    return Model(shape, (*layers, Linear(draw(st.integers(1, 12)))))


@given(model=models(), count=st.integers(1, 12), seed=st.integers(0, 1000), fast=st.booleans())
@SETTINGS
def test_the_gradient_of_random_networks_agrees_with_pytorch(isa, model, count, seed, fast):
    # float32 can choose another maximum than float64 where two differ by rounding only: rare, so noise instead of ties.
    samples = draw_samples(model, count, seed, background=False)
    start = initialize(model, np.random.default_rng(seed + 1))
    wanted = -torch_update(model, samples, start, np.arange(count), np.array([0, count]), 1.0)
    assert_close(gradient(model, samples, start, fast=fast), wanted, 1e-4)


DROPS = Model(
    (3, 18, 15),
    (
        *(Conv2d(12, 5), ReLU(), Conv2d(9, 3, 1), ChannelDropout(0.4), MaxPool2d(2), ReLU(), Dropout(0.3)),
        *(Conv2d(20, 3, 1), ReLU(), MaxPool2d(2), Linear(30), ReLU(), Dropout(0.5), Linear(10)),
    ),
)


@pytest.mark.parametrize("count", [1, 6])
def test_dropout_is_the_same_if_convolutions_are_fast(count, isa):
    samples, start = draw_samples(DROPS, count, background=False), initialize(DROPS, np.random.default_rng(8))
    plain, other = (gradient(DROPS, samples, start, fast=fast) for fast in (False, True))
    assert_close(other, plain, 1e-5)
    assert not np.array_equal(other, plain)


def test_fast_bits_do_not_depend_on_threads_neighbours_or_scored_before(isa):
    samples, work = draw_samples(DROPS, 90), LocalWork(batch_size=40, epochs=2)
    threaded = NativeTrainer(Task(DROPS, work, 1, DROPS.input_shape, 10, 3), fast=True)
    jobs = [Job(k, 1, threaded.initial_model(k), 0.1, samples, np.arange(k, 90, 2 + k)) for k in range(4)]
    together = threaded.train(jobs)
    for job, update in zip(jobs, together, strict=True):
        alone = NativeTrainer(task(DROPS, work), fast=True)
        alone.evaluate(update, samples)
        np.testing.assert_array_equal(alone.train([job])[0], update)


@given(values=st.lists(st.integers(-2, 2), min_size=36, max_size=36), size=st.integers(1, 4), relu=st.booleans())
@example(values=[0] * 36, size=1, relu=True)
@example(values=[0] * 36, size=2, relu=True)
@example(values=[0] * 36, size=3, relu=True)
@example(values=[0] * 36, size=4, relu=True)
@SETTINGS
def test_pool_ties_go_to_the_first_maximum_and_relu_passes_nothing_at_zero(isa, values, size, relu):
    # Small whole numbers through a 1 x 1 convolution are exact: the chosen elements must be PyTorch's, one for one.
    model = Model((1, 6, 6), (Conv2d(3, 1), *([ReLU()] if relu else []), MaxPool2d(size), Linear(2)))
    samples = Samples(np.array(values, np.float32).reshape(1, 1, 6, 6), np.array([1], np.uint8))
    start = initialize(model, np.random.default_rng(len(values)))
    start[:6] = [1, -1, 2, 0, 0, 0]
    wanted = -torch_update(model, samples, start, np.array([0]), np.array([0, 1]), 1.0)
    assert_close(gradient(model, samples, start), wanted, 1e-6)


def test_which_of_two_equal_maxima_gets_the_gradient(isa):
    # The image's left neighbour of each tied pixel tells the two apart, so a wrong choice shows in the weight gradient.
    image = np.array(
        [[[[0, 0, 0], [5, 1, 1], [7, 1, 1]]]], np.float32
    )  # pool block: the 1s; its kernel sees 0 0 5 or 7
    model = Model((1, 3, 3), (Conv2d(1, 2), MaxPool2d(2), Linear(2)))
    start = np.array([0, 0, 0, 1, 0, 1, -1, 0, 0], np.float32)  # the convolution copies the pixel at the lower right
    samples = Samples(image, np.array([0], np.uint8))
    found = gradient(model, samples, start)
    half = -0.5 * (1 - math.tanh(1)) * 2  # dL/dx of the pooled value: (p - 1) - p with p = sigmoid(2)
    np.testing.assert_allclose(found[:5], half * np.array([0, 0, 5, 1, 1]), rtol=1e-5)


@pytest.mark.parametrize("batch", [10, 50])
def test_three_epochs_of_the_papers_cnn_agree_with_pytorch(batch, isa):
    model = without_dropout(MODELS["paper_cnn"]((1, 28, 28), 10))
    samples = draw_samples(model, 230)
    part, work = np.arange(5, 225), LocalWork(batch_size=batch, epochs=3, proximal=0.02)
    trained = NativeTrainer(task(model, work, seed=7))
    start = trained.initial_model(3)
    found = trained.train([Job(0, 4, start, 0.01, samples, part)])[0]
    visited, bounds = trainer.batches(7, 0, 4, part, work)
    wanted = torch_update(model, samples, start, visited, bounds, 0.01, 0.02)
    assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)


def test_the_proximal_term_pulls_towards_the_start(isa):
    model = Model((1, 5, 5), (Conv2d(3, 3), ReLU(), Linear(3)))
    samples = draw_samples(model, 12)
    work = LocalWork(batch_size=4, epochs=4, proximal=1.5)
    trained = NativeTrainer(task(model, work))
    start = trained.initial_model(0)
    found = trained.train([Job(0, 1, start, 0.3, samples, np.arange(12))])[0]
    visited, bounds = trainer.batches(1, 0, 1, np.arange(12), work)
    assert_close(found, torch_update(model, samples, start, visited, bounds, 0.3, 1.5), 1e-5)
    free = torch_update(model, samples, start, visited, bounds, 0.3, 0.0)
    assert np.linalg.norm(found) < 0.9 * np.linalg.norm(free)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "char_gru"])
def test_scores_agree_with_pytorch(name, fast, isa):
    shape = (3, 32, 32) if name in COLOUR else (1, 28, 28)
    model = MODELS[name](shape, 10)
    samples = draw_samples(model, 150)
    trained = NativeTrainer(task(model), fast=fast)
    start = trained.initial_model(2) * 2
    module = build_module(model).eval()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), module.parameters())
    with torch.no_grad():
        logits = module(torch.from_numpy(samples.images))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(samples.labels.astype(np.int64))).item()
    score = trained.evaluate(start, samples)
    assert score.loss == pytest.approx(loss, rel=1e-5)
    assert score.accuracy == pytest.approx((logits.argmax(1).numpy() == samples.labels).mean(), abs=0.008)


def test_the_initial_model_is_the_shared_one():
    from fedtide.rng import stream

    model = MODELS["mlp"]((1, 28, 28), 10)
    trained = NativeTrainer(task(model))
    np.testing.assert_array_equal(trained.initial_model(9), initialize(model, stream(9, "initial_model")))
    assert trained.initial_model(9).shape == (num_parameters(model),)
    assert len(model_shapes(model)) == len(model.layers) + 1
