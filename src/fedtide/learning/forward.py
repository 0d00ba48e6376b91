"""A described model in NumPy: from images to logits, without a trainer. For predictions; scores are the trainers' own."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from fedtide.errors import FedtideError
from fedtide.learning import model as m
from fedtide.types import Floats, Vector

_BATCH: Final = 500  # images at a time: a convolution takes kernel^2 times their memory


def state_arrays(model: m.Model, vector: Vector) -> dict[str, np.ndarray[Any, Any]]:
    """Return the parameters of a model [d] by the names that PyTorch's state_dict has, in its order."""
    if len(vector) != m.num_parameters(model):
        raise FedtideError(
            f"the vector has {len(vector):,} numbers; the model has {m.num_parameters(model):,} parameters"
        )
    shapes = m.model_shapes(model)
    flattened = [
        isinstance(layer, m.Linear) and len(shape) > 1 for layer, shape in zip(model.layers, shapes, strict=False)
    ]
    found: dict[str, np.ndarray[Any, Any]] = {}
    for place in m.parameter_places(model):
        number = place.layer + sum(flattened[: place.layer + 1])  # PyTorch counts the Flatten in front of a Linear
        layer, weight, bias = model.layers[place.layer], vector[place.weight], vector[place.bias]
        if isinstance(layer, m.GRU):  # in, state; then a bias of each
            inside = 3 * layer.out * shapes[place.layer][1]
            found[f"{number}.weight_ih_l0"] = weight[:inside].reshape(3 * layer.out, -1).copy()
            found[f"{number}.weight_hh_l0"] = weight[inside:].reshape(3 * layer.out, -1).copy()
            found[f"{number}.bias_ih_l0"], found[f"{number}.bias_hh_l0"] = (half.copy() for half in np.split(bias, 2))
            continue
        found[f"{number}.weight"] = weight.reshape(place.weight_shape).copy()
        if bias.size:
            found[f"{number}.bias"] = bias.copy()
    return found


def model_logits(model: m.Model, vector: Vector, images: np.ndarray[Any, Any]) -> Floats:
    """Return the logits [n labels] that a model [d] gives images [n channels height width], dropout off."""
    places = {place.layer: place for place in m.parameter_places(model)}
    bounds = [*range(0, len(images), _BATCH), len(images)]
    parts = [_logits(model, places, vector, images[low:high]) for low, high in itertools.pairwise(bounds)]
    return np.concatenate(parts) if parts else np.zeros((0, m.num_labels(model)))


def _logits(model: m.Model, places: dict[int, m.Parameters], vector: Vector, images: np.ndarray[Any, Any]) -> Floats:
    x = np.asarray(images, np.float64)
    for number, layer in enumerate(model.layers):
        if isinstance(layer, (m.Conv2d, m.Linear)):
            place = places[number]
            weight = vector[place.weight].reshape(place.weight_shape).astype(np.float64)
            bias = vector[place.bias].astype(np.float64)
        if isinstance(layer, m.Conv2d):
            around = [(0, 0), (0, 0), *[(layer.padding, layer.padding)] * 2]
            patches = np.lib.stride_tricks.sliding_window_view(np.pad(x, around), (layer.kernel, layer.kernel), (2, 3))
            x = np.moveaxis(np.tensordot(patches, weight, ([1, 4, 5], [1, 2, 3])), 3, 1) + bias[:, None, None]
        elif isinstance(layer, m.Linear):
            x = x.reshape(len(x), -1) @ weight.T + bias
        elif isinstance(layer, m.MaxPool2d):
            size, (height, width) = layer.size, (side // layer.size for side in x.shape[2:])
            blocks = x[:, :, : size * height, : size * width].reshape(*x.shape[:2], height, size, width, size)
            x = blocks.max(axis=(3, 5))
        elif isinstance(layer, m.ReLU):
            x = np.maximum(x, 0.0)
        elif isinstance(layer, (m.Embedding, m.GRU)):
            raise FedtideError(f"{type(layer).__name__} is PyTorch's alone: predict with learning.trainer=torch")
    return x
