"""What every model description promises."""

from __future__ import annotations

import numpy as np
import pytest

from fedtide.learning import model as m
from fedtide.learning.native import _lower
from fedtide.parts.kinds import builtin_parts
from fedtide.rng import stream


def narrow(input_shape: tuple[int, int, int], num_labels: int, width: int = 3) -> m.Model:
    """A description of a user's own."""
    return m.Model(input_shape, (m.Linear(width), m.ReLU(), m.Linear(num_labels)))


OTHERS = {"my own": narrow}
MAKERS = {**builtin_parts("model"), **OTHERS}

Shape = tuple[int, int, int]

IMAGES: list[tuple[Shape, int]] = [((1, 28, 28), 10), ((3, 32, 32), 7), ((2, 28, 40), 2)]
CODES: list[tuple[Shape, int]] = [((1, 1, 80), 81), ((1, 1, 1), 2)]
READERS = ("char_gru",)  # what takes characters
CASES = [(name, *each) for name in MAKERS for each in (CODES if name in READERS else IMAGES)]

models = pytest.mark.parametrize(("name", "shape", "labels"), CASES)


@models
def test_contract(name: str, shape: Shape, labels: int) -> None:
    model = MAKERS[name](shape, labels)
    m.check_model(model, shape, labels, name)  # layers of ours, which fit these images
    assert m.num_labels(model) == labels
    assert model == MAKERS[name](shape, labels)  # it depends on its arguments alone
    assert hash(model) == hash(MAKERS[name](shape, labels))
    vector = m.initialize(model, stream(3, "initial_model"))
    assert vector.shape == (m.num_parameters(model),)
    assert vector.dtype == np.float32
    assert np.isfinite(vector).all()
    assert vector.any()
    assert np.array_equal(vector, m.initialize(model, stream(3, "initial_model")))
    assert m.num_parameters(m.without_dropout(model)) == m.num_parameters(model)
    if not m.needs_torch(model):
        assert len(_lower(model)) == len(model.layers)  # the kernel knows them all


@models
def test_the_module_is_the_same_vector(name: str, shape: Shape, labels: int) -> None:
    torch = pytest.importorskip("torch")
    from fedtide.learning.torch import build_module

    model = MAKERS[name](shape, labels)
    module = build_module(model)
    assert sum(each.numel() for each in module.parameters()) == m.num_parameters(model)
    with torch.no_grad():
        assert tuple(module.eval()(torch.zeros(2, *shape)).shape) == (2, labels)
