from __future__ import annotations

import math

import numpy as np
import pytest

from fedtide.errors import FedtideError
from fedtide.learning.model import (
    GRU,
    MODELS,
    ChannelDropout,
    Conv2d,
    Dropout,
    Embedding,
    Linear,
    MaxPool2d,
    Model,
    ReLU,
    initialize,
    model_shapes,
    num_labels,
    num_parameters,
    parameter_places,
    without_dropout,
)
from fedtide.rng import stream

GREY = (1, 28, 28)


@pytest.mark.parametrize(
    ("name", "d"),
    [("paper_cnn", 21840), ("mcmahan_cnn", 1_663_370), ("lenet", 44_426), ("mlp", 199_210), ("softmax", 7850)],
)
def test_number_of_parameters(name: str, d: int) -> None:
    model = MODELS[name](GREY, 10)
    assert num_parameters(model) == d
    assert num_labels(model) == 10


def test_lenet_on_colour_images_is_that_of_niid_bench() -> None:
    model = MODELS["lenet"]((3, 32, 32), 10)
    assert num_parameters(model) == 62_006
    shapes = [place.weight_shape for place in parameter_places(model)]
    assert shapes == [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]


def test_parts_of_the_papers_model() -> None:
    places = parameter_places(MODELS["paper_cnn"](GREY, 10))
    assert [place.bias.stop - place.weight.start for place in places] == [260, 5020, 16050, 510]
    assert [place.weight_shape for place in places] == [(10, 1, 5, 5), (20, 10, 5, 5), (50, 320), (10, 50)]
    edges = [edge for place in places for edge in (place.weight.start, place.weight.stop, place.bias.start)]
    assert edges == sorted(edges)
    assert places[0].weight.start == 0


def test_initialisation_is_pytorchs() -> None:
    model = MODELS["paper_cnn"](GREY, 10)
    vector = initialize(model, stream(0, "initial_model"))
    assert vector.dtype == np.float32
    for place, fan_in in zip(parameter_places(model), [25, 250, 320, 50], strict=True):
        both = vector[place.weight.start : place.bias.stop]
        bound = 1 / math.sqrt(fan_in)
        assert np.abs(both).max() <= bound * (1 + 1e-6)
        assert np.abs(both).max() > 0.95 * bound
        assert both.std() == pytest.approx(bound / math.sqrt(3), rel=0.15)
    assert np.array_equal(vector, initialize(model, stream(0, "initial_model")))


def test_dropout_has_no_parameters_and_can_go() -> None:
    model = MODELS["paper_cnn"](GREY, 10)
    bare = without_dropout(model)
    assert num_parameters(bare) == 21840
    assert not any(isinstance(layer, Dropout | ChannelDropout) for layer in bare.layers)
    assert len(bare.layers) == len(model.layers) - 2


def test_shapes_through_the_papers_model() -> None:
    found = model_shapes(MODELS["paper_cnn"](GREY, 10))
    assert found[0] == GREY
    assert (20, 4, 4) in found
    assert found[-1] == (10,)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((Conv2d(4, 9), Linear(2)), "smaller kernel"),
        ((MaxPool2d(9), Linear(2)), "smaller size"),
        ((Linear(3), Conv2d(4, 3)), "before the first Linear"),
        ((Conv2d(4, 3), ReLU()), "add a Linear"),
        ((Dropout(1.0), Linear(2)), "p must lie"),
        ((Linear(0),), "at least one output"),
        ((Embedding(5, 2), GRU(3), Linear(2)), r"needs codes \[1 1 steps\]"),
        ((GRU(3), Linear(2)), "behind an Embedding"),
    ],
)
def test_layers_that_do_not_fit(layers: tuple, message: str) -> None:
    with pytest.raises(FedtideError, match=message):
        num_parameters(Model((1, 8, 8), layers))


def test_a_model_of_images_over_text_names_the_one_for_text() -> None:
    with pytest.raises(FedtideError, match=r"learning\.model=char_gru learning\.trainer=torch"):
        num_parameters(MODELS["paper_cnn"]((1, 1, 80), 81))
