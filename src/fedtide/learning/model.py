"""Models as plain descriptions: an input shape and a tuple of layers. Each backend builds its own executable from it.

The flat vector [d] holds, layer by layer, weight then bias, each in PyTorch's order
(Conv2d: out x in x kernel x kernel; Linear: out x in; Embedding: symbols x width; GRU: 3 out x in, then 3 out x out), so that
`torch.nn.utils.parameters_to_vector` of the module that `fedtide.learning.torch.build_module` makes is the same vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np

from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Rng, Vector

Shape: TypeAlias = tuple[int, ...]


class Conv2d(NamedTuple):
    """Convolution with stride 1: [c h w] -> [out h' w'], h' = h + 2 padding - kernel + 1."""

    out: int
    kernel: int
    padding: int = 0


class MaxPool2d(NamedTuple):
    """Maximum over size x size blocks (stride = size, remainder dropped); ties go to the first in row-major order."""

    size: int


class ReLU(NamedTuple):
    """max(x, 0)."""


class Dropout(NamedTuple):
    """Zero each element with probability p while training, scale the rest by 1/(1-p)."""

    p: float


class ChannelDropout(NamedTuple):
    """Zero whole channels with probability p while training, scale the rest by 1/(1-p) (PyTorch's Dropout2d)."""

    p: float


class Linear(NamedTuple):
    """Fully connected; a [c h w] input is flattened first."""

    out: int


class Embedding(NamedTuple):
    """A row of a table for each code: codes 0 to symbols - 1, as numbers [1 1 steps] -> [steps width]."""

    symbols: int
    width: int


class GRU(NamedTuple):
    """Gated recurrent units over the steps: [steps width] -> the last state [out]."""

    out: int


Layer: TypeAlias = Conv2d | MaxPool2d | ReLU | Dropout | ChannelDropout | Linear | Embedding | GRU


class Model(NamedTuple):
    """A network whose last layer gives one logit per label; the loss is softmax cross-entropy."""

    input_shape: tuple[int, int, int]  # channels, height, width
    layers: tuple[Layer, ...]


class Parameters(NamedTuple):
    """Where one layer's weight and bias lie in the flat vector."""

    layer: int
    weight_shape: Shape
    weight: slice
    bias: slice


def model_shapes(model: Model) -> list[Shape]:
    """Return the shape in front of every layer, then the shape of the output; raise if the layers do not fit."""
    found: list[Shape] = [model.input_shape]
    for position, layer in enumerate(model.layers):
        output = _output_shape(layer, found[-1])
        if isinstance(output, str):
            raise FedtideError(f"layer {position} ({layer}) cannot take the shape {found[-1]}: {output}")
        found.append(output)
    if len(found[-1]) != 1:
        raise FedtideError(
            f"the model ends with shape {found[-1]}, not one logit per label: add a Linear layer at the end"
        )
    return found


def _output_shape(layer: Layer, shape: Shape) -> Shape | str:
    """Return the shape behind a layer, or why it cannot take the one in front of it."""
    if isinstance(layer, (Conv2d, MaxPool2d, ChannelDropout)) and len(shape) != 3:
        return "it needs [channels height width]; place it before the first Linear"
    if isinstance(layer, (Dropout, ChannelDropout)) and not 0 <= layer.p < 1:
        return "p must lie in [0, 1)"
    if isinstance(layer, GRU) and len(shape) != 2:
        return "it needs [steps width]; place it behind an Embedding"
    if isinstance(layer, (GRU, Linear)):
        return (layer.out,) if layer.out >= 1 else "it needs at least one output"
    if isinstance(layer, Embedding):
        if len(shape) != 3 or shape[:2] != (1, 1):
            return "it needs codes [1 1 steps], as the data set shakespeare has them; place it first"
        if min(layer) < 1:
            return "it needs at least one symbol and a width of at least one"
        return (shape[2], layer.width)
    if isinstance(layer, Conv2d):
        height, width = (side + 2 * layer.padding - layer.kernel + 1 for side in shape[1:])
        if min(layer.out, layer.kernel, layer.padding + 1, height, width) >= 1:
            return (layer.out, height, width)
        text = shape[:2] == (1, 1)
        other = "text is learned by learning.model=char_gru learning.trainer=torch"
        return f"nothing is left; {other if text else 'use a smaller kernel or more padding'}"
    if isinstance(layer, MaxPool2d):
        if not 1 <= layer.size <= min(shape[1:]):
            return "the image is smaller than the block; use a smaller size"
        return (shape[0], shape[1] // layer.size, shape[2] // layer.size)
    return shape


def check_model(model: Any, shape: Shape, num_labels: int, label: str) -> None:
    """Raise if what a user's part made is no description of a model for images of this shape and so many labels."""
    if not isinstance(model, Model) or not isinstance(model.layers, (tuple, list)):
        what = f"layers in a {type(model.layers).__name__}" if isinstance(model, Model) else f"a {type(model).__name__}"
        raise FedtideError(f"{label} made {what}: return fedtide.learning.model.Model(input_shape, a tuple of layers)")
    for position, layer in enumerate(model.layers):
        if not isinstance(layer, Layer):
            raise FedtideError(
                f"{label}: layer {position} is a {type(layer).__name__}: use those of fedtide.learning.model"
            )
        for name, value in layer._asdict().items():
            wanted = (int, float) if name == "p" else (int, np.integer)
            if isinstance(value, bool) or not isinstance(value, wanted):
                raise FedtideError(f"{label}: layer {position} has {name}={shown(value)}: it must be a number")
    if not isinstance(model.input_shape, (tuple, list)) or tuple(model.input_shape) != shape:
        raise FedtideError(f"{label} takes images {shown(model.input_shape)}, and there are {shape}: take input_shape")
    try:
        logits = model_shapes(model)[-1][0]
    except FedtideError as error:
        raise FedtideError(f"{label}: {error}") from error
    if logits < num_labels:
        raise FedtideError(f"{label} gives {logits} logits for {num_labels} labels: end with Linear(num_labels)")


def parameter_places(model: Model) -> list[Parameters]:
    """Return the place of every parameter in the flat vector, in order."""
    found, offset = [], 0
    for position, (layer, shape) in enumerate(zip(model.layers, model_shapes(model)[:-1], strict=True)):
        if isinstance(layer, Conv2d):
            weight_shape: Shape = (layer.out, shape[0], layer.kernel, layer.kernel)
            num_biases = layer.out
        elif isinstance(layer, Linear):
            weight_shape, num_biases = (layer.out, math.prod(shape)), layer.out
        elif isinstance(layer, Embedding):
            weight_shape, num_biases = (layer.symbols, layer.width), 0
        elif isinstance(layer, GRU):  # of three gates, each with a bias for what comes in and one for the state
            weight_shape, num_biases = (3 * layer.out, shape[1] + layer.out), 6 * layer.out
        else:
            continue
        end = offset + math.prod(weight_shape)
        found.append(Parameters(position, weight_shape, slice(offset, end), slice(end, end + num_biases)))
        offset = end + num_biases
    return found


def num_parameters(model: Model) -> int:
    """Return d.

    >>> num_parameters(Model((1, 28, 28), (Conv2d(10, 5), MaxPool2d(2), ReLU(), Linear(10))))
    14670
    >>> num_parameters(MODELS["paper_cnn"]((1, 28, 28), 10))
    21840
    """
    places = parameter_places(model)
    return places[-1].bias.stop if places else 0


def num_labels(model: Model) -> int:
    """Return how many logits the model gives."""
    return model_shapes(model)[-1][0]


def initialize(model: Model, rng: Rng) -> Vector:
    """Draw PyTorch's default initialisation [d]: weight and bias uniform in +-1/sqrt(fan_in).

    Of an Embedding standard normal; of a GRU uniform in +-1/sqrt(out).
    """
    vector = np.empty(num_parameters(model), np.float32)
    for place in parameter_places(model):
        layer = model.layers[place.layer]
        if isinstance(layer, Embedding):
            vector[place.weight] = rng.standard_normal(place.weight.stop - place.weight.start)
            continue
        bound = 1 / math.sqrt(layer.out if isinstance(layer, GRU) else math.prod(place.weight_shape[1:]))
        for part in (place.weight, place.bias):
            vector[part] = rng.uniform(-bound, bound, part.stop - part.start)
    return vector


def without_dropout(model: Model) -> Model:
    """Return the same model with its dropout layers removed."""
    return model._replace(layers=tuple(la for la in model.layers if not isinstance(la, (Dropout, ChannelDropout))))


def needs_torch(model: Model) -> bool:
    """Say whether the model has layers that the native kernel does not know."""
    return any(isinstance(layer, (Embedding, GRU)) for layer in model.layers)


def _paper_cnn(input_shape: tuple[int, int, int], labels: int) -> Model:
    """The paper's CNN: 21,840 parameters on 28 x 28 grey images (260 + 5020 + 16050 + 510)."""
    first, second = (Conv2d(10, 5), MaxPool2d(2), ReLU()), (Conv2d(20, 5), ChannelDropout(0.5), MaxPool2d(2), ReLU())
    return Model(input_shape, (*first, *second, Linear(50), ReLU(), Dropout(0.5), Linear(labels)))


def _mcmahan_cnn(input_shape: tuple[int, int, int], labels: int) -> Model:
    """The CNN of McMahan et al. 2017: 1,663,370 parameters on 28 x 28 grey images."""
    first, second = ((Conv2d(out, 5, 2), ReLU(), MaxPool2d(2)) for out in (32, 64))
    return Model(input_shape, (*first, *second, Linear(512), ReLU(), Linear(labels)))


def _small_cnn(input_shape: tuple[int, int, int], labels: int) -> Model:
    """Three blocks of 3 x 3 convolutions, for colour images of 32 x 32."""
    first, second, third = ((Conv2d(out, 3, 1), ReLU(), MaxPool2d(2)) for out in (16, 32, 64))
    return Model(input_shape, (*first, *second, *third, Linear(64), ReLU(), Dropout(0.5), Linear(labels)))


def _lenet(input_shape: tuple[int, int, int], labels: int) -> Model:
    """The LeNet of NIID-Bench (Li et al. 2022): 62,006 parameters on colour images of 32 x 32, 44,426 on 28 x 28 grey ones."""
    first, second = ((Conv2d(out, 5), ReLU(), MaxPool2d(2)) for out in (6, 16))
    return Model(input_shape, (*first, *second, Linear(120), ReLU(), Linear(84), ReLU(), Linear(labels)))


def _mlp(input_shape: tuple[int, int, int], labels: int) -> Model:
    """Two hidden layers of 200, McMahan's "2NN": 199,210 parameters on 28 x 28 grey images."""
    return Model(input_shape, (Linear(200), ReLU(), Linear(200), ReLU(), Linear(labels)))


def _softmax(input_shape: tuple[int, int, int], labels: int) -> Model:
    """Softmax regression: one Linear layer."""
    return Model(input_shape, (Linear(labels),))


def _char_gru(
    input_shape: tuple[int, int, int],
    labels: int,
    embedding: Annotated[int, arg("width of the character embedding", ge=1, le=2**16)] = 8,
    hidden: Annotated[int, arg("number of recurrent units", ge=1, le=2**16)] = 128,
) -> Model:
    """Next character: an embedding and one layer of gated recurrent units, 64,089 parameters for shakespeare; PyTorch only."""
    return Model(input_shape, (Embedding(labels, embedding), GRU(hidden), Linear(labels)))


MODELS: Final[dict[str, Callable[..., Model]]] = {
    "paper_cnn": _paper_cnn,
    "mcmahan_cnn": _mcmahan_cnn,
    "small_cnn": _small_cnn,
    "lenet": _lenet,
    "mlp": _mlp,
    "softmax": _softmax,
    "char_gru": _char_gru,
}
