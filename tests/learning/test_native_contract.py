"""What the native trainer promises apart from right gradients: dropout, the same bits always, errors instead of crashes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from fedtide.errors import FedtideError
from fedtide.extension import native as extension
from fedtide.learning import native
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
    num_parameters,
)
from fedtide.learning.native import NativeTrainer
from fedtide.learning.trainer import LocalWork, Task
from fedtide.types import Job, Samples

ISAS = native.isas()
PAPER = MODELS["paper_cnn"]((1, 28, 28), 10)


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    monkeypatch.setenv("FEDTIDE_ISA", request.param)
    return request.param


def draw_samples(model, count, seed=0):
    rng = np.random.default_rng(seed)
    return Samples(
        rng.standard_normal((count, *model.input_shape)).astype(np.float32), rng.integers(0, 10, count).astype(np.uint8)
    )


def one_step(model, samples, start, version=1, batch=None, learning_rate=1.0):
    count = len(samples.labels)
    work = LocalWork(batch_size=batch or count, epochs=None, steps=1, proximal=0.0)
    trained = NativeTrainer(task(model, work, seed=3))
    return trained.train([Job(0, version, start, learning_rate, samples, np.arange(count))])[0]


def task(model=PAPER, work=None, seed=1, threads=1):
    return Task(model, work or LocalWork(), seed, model.input_shape, 10, threads)


# ---- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_right_share_and_scales_it(p, isa):
    # One pixel value 1 in each of 4096 inputs, dropped before a linear layer: the weight gradient shows each factor.
    model = Model((1, 64, 64), (Dropout(p), Linear(2)))
    samples = Samples(np.ones((1, 1, 64, 64), np.float32), np.array([0], np.uint8))
    update = one_step(model, samples, np.zeros(num_parameters(model), np.float32))
    factors = update[:4096] / 0.5
    kept = factors != 0
    assert abs(kept.mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / 4096)
    np.testing.assert_allclose(factors[kept], 1 / (1 - p), rtol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("p", [0.25, 0.5])
def test_channel_dropout_drops_whole_channels(p, fused, isa):
    # Zero weights and bias 1: every position of a kept channel is 1 / (1 - p), behind a ReLU and a pool too.
    channels = 2048
    between = [ReLU()] if fused else [ReLU(), ChannelDropout(p)]
    drop = [ChannelDropout(p)] if fused else []
    model = Model((1, 4, 4), (Conv2d(channels, 1), *drop, *between, MaxPool2d(2), Linear(2)))
    start = np.zeros(num_parameters(model), np.float32)
    start[channels : 2 * channels] = 1
    samples = Samples(np.zeros((1, 1, 4, 4), np.float32), np.array([0], np.uint8))
    update = one_step(model, samples, start)
    factors = update[2 * channels : 2 * channels + 4 * channels].reshape(channels, 4) / 0.5
    assert (factors == factors[:, :1]).all()
    kept = factors[:, 0] != 0
    assert abs(kept.mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / channels)
    np.testing.assert_allclose(factors[kept], 1 / (1 - p), rtol=1e-5)


def test_the_gradient_passes_through_what_dropout_kept(isa):
    # A finite difference of the kernel's own loss: the mask depends on the address only, so it stays while theta moves.
    model = Model(
        (2, 8, 8),
        (
            Conv2d(6, 3),
            ChannelDropout(0.5),
            MaxPool2d(2),
            ReLU(),
            Dropout(0.3),
            Linear(7),
            ReLU(),
            Dropout(0.5),
            Linear(2),
        ),
    )
    samples = draw_samples(model, 1)._replace(labels=np.array([1], np.uint8))
    start = initialize(model, np.random.default_rng(4))
    last = num_parameters(model) - 1

    def loss(theta):  # the gradient of the right label's bias is p - 1: it tells the loss -log p
        return -np.log1p(-np.float64(one_step(model, samples, theta)[last]))

    gradient = -one_step(model, samples, start)
    direction = np.random.default_rng(5).standard_normal(len(start)).astype(np.float32)
    step = np.float32(1e-4)
    slope = (loss(start + step * direction) - loss(start - step * direction)) / (2 * step)
    assert abs(slope) > 1e-3
    assert gradient @ direction == pytest.approx(slope, rel=0.03)


def test_dropout_differs_between_samples_steps_versions_and_layers(isa):
    model = Model((1, 8, 8), (Dropout(0.5), Linear(2)))
    zero = np.zeros(num_parameters(model), np.float32)
    images = np.zeros((2, 1, 8, 8), np.float32)
    masks = []
    for sample in range(2):  # only one image is not blank: the weight gradient is its mask
        images[:] = 0
        images[sample] = 1
        samples = Samples(images.copy(), np.zeros(2, np.uint8))
        masks += [one_step(model, samples, zero, version)[:64] != 0 for version in (1, 2)]
    deep = Model((1, 8, 8), (ReLU(), Dropout(0.5), Linear(2)))
    masks.append(one_step(deep, samples, zero, 1)[:64] != 0)
    for i, mask in enumerate(masks):
        assert 12 < mask.sum() < 52
        assert all((mask != other).any() for other in masks[:i])
    work = LocalWork(batch_size=2, epochs=None, steps=2, proximal=0.0)
    both = NativeTrainer(task(model, work, seed=3))
    two_steps = both.train([Job(0, 1, zero, 1e-4, samples, np.arange(2))])[0][:64]
    assert len(np.unique(np.round(two_steps * 1e4, 2))) == 3  # kept never, once or twice


def test_all_channels_of_a_sample_can_be_dropped(isa):
    model = Model((1, 6, 6), (Conv2d(2, 3), ChannelDropout(0.9), MaxPool2d(2), ReLU(), Linear(3)))
    update = one_step(
        model,
        draw_samples(model, 40)._replace(labels=np.zeros(40, np.uint8)),
        initialize(model, np.random.default_rng(0)),
    )
    assert np.isfinite(update).all()


# ---- the same bits -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet():
    samples = draw_samples(PAPER, 400)
    sizes = [120, 7, 50, 1, 73, 149]
    return samples, np.split(np.arange(400), np.cumsum(sizes)[:-1])


def train_fleet(fleet, threads, device, work=None):
    samples, partition = fleet
    trained = NativeTrainer(task(work=work or LocalWork(batch_size=50, epochs=2), seed=11, threads=threads))
    return trained.train(
        [Job(k, k + 3, trained.initial_model(k), 0.01 + 0.001 * k, samples, partition[k]) for k in device]
    )


def test_bits_do_not_depend_on_threads_neighbours_or_order(fleet, isa):
    together = train_fleet(fleet, 1, range(6))
    assert len({row.tobytes() for row in together}) == 6
    for threads in (2, 4):
        np.testing.assert_array_equal(train_fleet(fleet, threads, range(6)), together)
    order = [4, 0, 5, 2, 1, 3]
    np.testing.assert_array_equal(train_fleet(fleet, 2, order), together[order])
    for k in range(6):
        np.testing.assert_array_equal(train_fleet(fleet, 1, [k])[0], together[k])
    np.testing.assert_array_equal(train_fleet(fleet, 2, [3, 3, 0])[:2], together[[3, 3]])


def test_scores_do_not_depend_on_threads(isa):
    samples = draw_samples(PAPER, 333)
    model = initialize(PAPER, np.random.default_rng(1))
    scores = {NativeTrainer(task(threads=threads)).evaluate(model, samples) for threads in (1, 2, 4)}
    assert len(scores) == 1


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 11, 13), (5, 9, 8)])
def test_bytes_give_the_bits_of_what_they_stand_for(shape, isa):
    model = Model(shape, (Conv2d(5, 3, 1), ReLU(), MaxPool2d(2), Linear(10)))
    rng = np.random.default_rng(2)
    values = rng.standard_normal((shape[0], 256)).astype(np.float32)
    bytes_ = Samples(rng.integers(0, 256, (9, *shape), np.uint8), rng.integers(0, 10, 9, np.uint8), values)
    floats = Samples(bytes_.floats(), bytes_.labels)
    start = initialize(model, rng)
    np.testing.assert_array_equal(one_step(model, bytes_, start, batch=4), one_step(model, floats, start, batch=4))
    trained = NativeTrainer(task(model))
    assert trained.evaluate(start, bytes_) == trained.evaluate(start, floats)


def test_work_can_be_a_number_of_steps(fleet, isa):
    whole = train_fleet(fleet, 1, [2, 5], work=LocalWork(batch_size=50, epochs=2))
    np.testing.assert_array_equal(
        train_fleet(fleet, 1, [2], work=LocalWork(batch_size=50, epochs=None, steps=2))[0], whole[0]
    )
    none = train_fleet(fleet, 1, [2, 5], work=LocalWork(batch_size=50, epochs=None, steps=0))
    assert (none == 0).all()


def test_the_inputs_are_left_alone(fleet):
    samples, partition = fleet
    samples.images.flags.writeable = False
    trained = NativeTrainer(task(work=LocalWork(epochs=1)))
    start = trained.initial_model(1)
    start.flags.writeable = False
    before = start.copy()
    trained.train([Job(1, 1, start, 0.1, samples, partition[1])])
    np.testing.assert_array_equal(start, before)


# ---- bad input ---------------------------------------------------------------------------------------------------------


def good(**changes):
    return NativeTrainer(task()._replace(**changes))


def test_no_jobs_give_no_updates():
    updates = good().train([])
    assert updates.shape == (0, 21840)
    assert updates.dtype == np.float32


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("takes images", {"shape": (1, 28, 27)}),
        ("was given a str", {"model": "paper_cnn"}),
        ("cannot take", {"model": Model((1, 28, 28), (Conv2d(4, 40), Linear(10)))}),
    ],
)
def test_bad_trainers_are_refused(message, changes):
    with pytest.raises(FedtideError, match=message):
        good(**changes)


@pytest.mark.parametrize(
    ("message", "changes"),
    [("threads", {"threads": 0}), ("proximal", {"work": LocalWork(proximal=float("nan"))})],
)
def test_what_the_kernel_cannot_do_it_refuses(message, changes):
    with pytest.raises(FedtideError, match=f"the native kernel refuses its input: {message}"):
        good(**changes).train([job()])


def job(**changes):
    samples = draw_samples(PAPER, 30)
    return Job(0, 1, np.zeros(21840, np.float32), 0.1, samples, np.arange(20))._replace(**changes)


def with_nan(shape, place=5, value=np.nan):
    array = np.zeros(shape, np.float32)
    array.flat[place] = value
    return array


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("start", {"start": np.zeros(21839, np.float32)}),
        ("start", {"start": np.zeros((2, 21840), np.float32)}),
        ("float64", {"start": np.zeros(21840)}),
        ("start holds nan", {"start": with_nan(21840)}),
        ("start holds inf", {"start": with_nan(21840, 21839, np.inf)}),
        ("device", {"device": -1}),
        ("device", {"device": 0.0}),
        ("device", {"device": np.array([0, 1])}),
        ("device", {"device": True}),
        ("version", {"version": np.array([1, 2])}),
        ("version", {"version": -1}),
        ("learning rate", {"learning_rate": np.array([0.1])}),
        ("learning rate", {"learning_rate": "fast"}),
        ("learning rate", {"learning_rate": np.nan}),
        ("learning rate", {"learning_rate": np.inf}),
        ("float64", {"samples": Samples(np.zeros((30, 1, 28, 28)), np.zeros(30, np.uint8))}),
        ("images", {"samples": Samples(np.zeros((30, 28, 28), np.float32), np.zeros(30, np.uint8))}),
        ("images", {"samples": Samples(np.zeros((30, 1, 28, 27), np.float32), np.zeros(30, np.uint8))}),
        ("labels", {"samples": Samples(np.zeros((30, 1, 28, 28), np.float32), np.zeros(29, np.uint8))}),
        ("labels", {"samples": Samples(np.zeros((30, 1, 28, 28), np.float32), np.zeros(30, np.int64))}),
        ("label 10", {"samples": Samples(np.zeros((30, 1, 28, 28), np.float32), np.full(30, 10, np.uint8))}),
        ("device 0 holds", {"indices": np.array([30])}),
        ("device 0 holds", {"indices": np.array([-1])}),
        ("device 0 holds", {"indices": np.empty(0, np.int64)}),
        ("device 0 holds", {"indices": np.array([0.5])}),
    ],
)
def test_bad_jobs_are_refused_among_good_ones(message, changes):
    with pytest.raises(FedtideError, match=message):
        good().train([job(), job(**changes)])


def test_something_that_is_no_job_is_refused():
    with pytest.raises(FedtideError, match="job 0 is a int"):
        good().train([3])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 783])
def test_images_that_are_not_finite_are_refused(value, place, isa):
    samples = draw_samples(PAPER, 30)
    samples.images[4].flat[place] = value
    trained = good()
    with pytest.raises(FedtideError, match="image 4 holds NaN"):
        trained.train([job(samples=samples)])
    with pytest.raises(FedtideError, match="image 4 holds NaN"):
        trained.evaluate(np.zeros(21840, np.float32), samples)


def test_bad_evaluations_are_refused():
    trained, samples = good(), draw_samples(PAPER, 5)
    for model in (np.zeros(5, np.float32), np.zeros(21840), np.zeros((1, 21840), np.float32), with_nan(21840)):
        with pytest.raises(FedtideError, match=r"vector|the model holds nan"):
            trained.evaluate(model, samples)
    with pytest.raises(FedtideError, match="no samples"):
        trained.evaluate(np.zeros(21840, np.float32), Samples(samples.images[:0], samples.labels[:0]))


def low_level(**changes):
    """Call the extension itself, past the checks of NativeTrainer."""
    arguments = {
        "layers": native._lower(PAPER),
        "images": np.zeros((4, 1, 28, 28), np.float32),
        "labels": np.zeros(4, np.uint8),
        "values": None,
        "start": np.zeros((1, 21840), np.float32),
        "learning_rate": np.array([0.1]),
        "keys": np.array([1], np.uint64),
        "visited": np.array([0, 1, 2, 3]),
        "visited_start": np.array([0, 4]),
        "bounds": np.array([0, 2, 4]),
        "bounds_start": np.array([0, 3]),
        "proximal": 0.0,
        "momentum": 0.0,
        "correction": None,
        "threads": 1,
        "isa": "",
    }
    return extension.train(**{**arguments, **changes})


def misaligned(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(bytearray(size + 1), np.uint8)[1:].view(dtype).reshape(shape)


@pytest.mark.parametrize(
    "changes",
    [
        {"visited": np.array([0, 1, 2, 4])},
        {"visited": np.array([0, 1, 2, -1])},
        {"visited": np.array([0, 1, 2])},
        {"visited_start": np.array([0, 5])},
        {"visited_start": np.array([3, 1])},
        {"visited_start": np.array([-1, 4])},
        {"visited_start": np.array([0])},
        {"bounds": np.array([0, 3, 3]), "visited": np.array([0, 1, 2])},
        {"bounds": np.array([0, 2, 5])},
        {"bounds": np.array([0, 5, 4])},
        {"bounds": np.array([1, 2, 4])},
        {"bounds_start": np.array([0, 4])},
        {"bounds_start": np.array([0, 0])},
        {"labels": np.array([0, 1, 2, 10], np.uint8)},
        {"labels": np.zeros(3, np.uint8)},
        {"keys": np.array([1, 2], np.uint64)},
        {"learning_rate": np.array([0.1, 0.2])},
        {"proximal": float("inf")},
        {"proximal": -1.0},
        {"momentum": -0.1},
        {"momentum": 1.0},
        {"momentum": float("nan")},
        {"correction": np.zeros((2, 21840), np.float32)},
        {"correction": np.zeros((1, 21839), np.float32)},
        {"correction": np.full((1, 21840), np.nan, np.float32)},
        {"correction": misaligned((1, 21840), np.float32)},
        {"threads": 0},
        {"isa": "avx1024"},
        {"start": np.zeros((1, 5), np.float32)},
        {"start": misaligned((1, 21840), np.float32)},
        {"images": misaligned((4, 1, 28, 28), np.float32)},
        {"images": np.zeros((4, 1, 3, 3), np.float32)},
        {"images": np.zeros((4, 1, 28, 28), np.uint8)},
        {"values": np.zeros((1, 256), np.float32)},
        *(
            {"images": np.zeros((4, 1, 28, 28), np.uint8), "values": values}
            for values in (
                np.zeros((1, 255), np.float32),
                np.zeros((2, 256), np.float32),
                np.zeros((0, 256), np.float32),
                with_nan((1, 256), 255),
                with_nan((1, 256), 0, np.inf),
                misaligned((1, 256), np.float32),
            )
        ),
        {"images": np.zeros((4, 0, 28, 28), np.float32)},
        {"layers": []},
        {"layers": [(9, 1, 1, 1, 0.0)]},
        {"layers": [(0, 4, 3, 0, 0.0)]},
        {"layers": [(0, 0, 3, 0, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(0, 4, 3, -1, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(0, 4, 2**30, 2**30, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(0, 2**20, 5, 2, 0.0), (0, 2**20, 5, 2, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(1, 0, 0, 0, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(1, 29, 0, 0, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(0, 4, 28, 0, 0.0), (1, 2, 0, 0, 0.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(3, 0, 0, 0, 1.0), (5, 10, 0, 0, 0.0)]},
        {"layers": [(3, 0, 0, 0, float("nan")), (5, 10, 0, 0, 0.0)]},
        {"layers": [(5, 0, 0, 0, 0.0)]},
        {"layers": [(5, 2**31 - 1, 0, 0, 0.0)]},
        {"layers": [(5, 10, 0, 0, 0.0), (0, 4, 3, 0, 0.0)]},
    ],
)
def test_the_extension_itself_refuses_what_would_crash_it(changes):
    assert low_level().shape == (1, 21840)
    with pytest.raises(ValueError):
        low_level(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"images": np.zeros((4, 1, 28, 28))},
        {"images": np.zeros((4, 1, 28, 28), np.int8)},
        {"images": np.zeros((4, 784), np.float32)},
        {"images": np.zeros((4, 1, 28, 28), np.uint8), "values": np.zeros((1, 256))},
        {"images": np.zeros((4, 1, 28, 28), np.uint8), "values": np.zeros(256, np.float32)},
        {"images": np.zeros((4, 1, 28, 28), np.uint8), "values": np.zeros((1, 512), np.float32)[:, ::2]},
        {"images": np.zeros((4, 1, 28, 56), np.float32)[..., ::2]},
        {"labels": np.zeros(4, np.int64)},
        {"visited": np.array([0, 1, 2, 3], np.int32)},
        {"start": None},
        {"layers": [(0, 1)]},
    ],
)
def test_the_extension_does_not_convert(changes):
    with pytest.raises(TypeError):
        low_level(**changes)


def test_the_stub_tells_the_names_of_the_extension():
    stub = ast.parse(Path(native.__file__).parents[1].joinpath("_native.pyi").read_text(encoding="utf-8"))
    told = {each.name: [arg.arg for arg in each.args.args] for each in stub.body if isinstance(each, ast.FunctionDef)}
    assert set(told) == {name for name in vars(extension) if not name.startswith("_")}
    for name, arguments in told.items():
        signature = getattr(extension, name).__doc__.splitlines()[0]
        assert re.findall(r"[(,] ?(\w+): ", signature) == arguments


def test_an_unknown_instruction_path_is_refused(monkeypatch):
    monkeypatch.setenv("FEDTIDE_ISA", "sse9")
    with pytest.raises(FedtideError, match=r"sse9.*baseline"):
        good()
