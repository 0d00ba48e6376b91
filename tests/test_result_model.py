"""The model of a result: scored, asked for labels, and as PyTorch's state_dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide import config
from fedtide.engine.making import load_dataset
from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.learning.forward import model_logits, state_arrays
from fedtide.learning.model import GRU, MODELS, Embedding, Linear, Model, initialize
from fedtide.types import Samples
from helpers import FakeTrainer, small, small_dataset

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "partition": "iid", "num_train": 120, "num_test": 60},
    "fleet": {"num_devices": 4},
    "timeline": {"horizon": 1.0},
    "policy": {"limit": 2},
    "learning": {"model": "paper_cnn", "local_epochs": 1, "batch_size": 10, "learning_rate": 0.1},
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> fedtide.Result:
    folder = tmp_path_factory.mktemp("run") / "run"
    fedtide.simulate(config.experiment(TINY), folder)
    return fedtide.load(folder)


def test_a_result_scores_its_model(result: fedtide.Result) -> None:
    last, data = result.rounds[-1], load_dataset(result.experiment)
    assert (last.test_accuracy, last.test_loss) == tuple(result.evaluate())
    some = data.test.taken(slice(0, 20))
    assert result.evaluate(some).accuracy == np.mean(result.predict(some.floats()) == some.labels)


def test_labels_without_a_trainer_are_those_of_the_trainers(result: fedtide.Result) -> None:
    test = load_dataset(result.experiment).test
    labels = result.predict(test)
    assert np.mean(labels == test.labels) == pytest.approx(result.evaluate().accuracy)
    torch_too = result._replace(experiment=config.experiment(result.experiment, {"learning": {"trainer": "torch"}}))
    pytest.importorskip("torch")
    assert np.array_equal(torch_too.predict(test), labels)
    assert result.predict(np.zeros((0, 1, 28, 28), np.float32)).tolist() == []
    with pytest.raises(FedtideError, match=r"images are \(3, 28, 28\); this model takes \[n, \*\(1, 28, 28\)\]"):
        result.predict(np.zeros((3, 28, 28)))


@pytest.mark.parametrize("name", ["paper_cnn", "mcmahan_cnn", "small_cnn", "lenet", "mlp", "softmax"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_the_state_loads_into_pytorch_and_numpy_follows_it(name: str, shape: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    from fedtide.learning.torch import build_module

    rng = np.random.default_rng(3)
    model = MODELS[name](shape, 7)
    vector, images = initialize(model, rng), rng.standard_normal((5, *shape)).astype(np.float32)
    module = build_module(model).eval()
    module.load_state_dict({key: torch.from_numpy(value) for key, value in state_arrays(model, vector).items()})
    assert np.array_equal(torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy(), vector)
    with torch.no_grad():
        wanted = module(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(model_logits(model, vector, images), wanted, rtol=1e-4, atol=1e-5)


def test_the_state_of_a_recurrent_model_loads_too() -> None:
    torch = pytest.importorskip("torch")
    from fedtide.learning.torch import build_module

    model = Model((1, 1, 9), (Embedding(5, 3), GRU(4), Linear(5)))
    vector, module = initialize(model, np.random.default_rng(1)), build_module(model)
    module.load_state_dict({key: torch.from_numpy(value) for key, value in state_arrays(model, vector).items()})
    assert np.array_equal(torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy(), vector)
    with pytest.raises(FedtideError, match=r"Embedding is PyTorch's alone"):
        model_logits(model, vector, np.zeros((1, 1, 1, 9)))


def test_a_module_of_ones_own_has_its_own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    own = {"learning": {"model": "net.py:Net", "trainer": {"name": "torch", "device": "cpu"}}}
    result = fedtide.simulate(config.experiment(TINY, own))
    state = result.state_dict()
    assert list(state) == ["1.weight", "1.bias"]
    assert torch.equal(torch.cat([state["1.weight"].ravel(), state["1.bias"]]), torch.from_numpy(result.model))
    test = load_dataset(result.experiment).test
    assert np.mean(result.predict(test) == test.labels) == pytest.approx(result.evaluate().accuracy)


def test_what_came_from_python_is_not_made_up(tmp_path: Path) -> None:
    fedtide.simulate(small(), tmp_path / "run", dataset=small_dataset(), trainer=FakeTrainer())
    for result in (fedtide.load(tmp_path / "run"), fedtide.simulate(small(), trainer=FakeTrainer())):
        with pytest.raises(
            FedtideError, match=r"trainer of this run came from Python and cannot be made again: use that"
        ):
            result.predict(np.zeros((1, 1, 8, 8)))
    own = config.experiment(TINY, {"learning": {"model": "softmax"}})
    data = load_dataset(own)
    result = fedtide.simulate(own, dataset=data)
    with pytest.raises(FedtideError, match=r"dataset of this run came from Python .*: give samples"):
        result.evaluate()
    assert result.evaluate(data.test).accuracy == result.rounds[-1].test_accuracy
    with pytest.raises(FedtideError, match="no model yet"):
        result._replace(model=np.empty(0, np.float32)).evaluate()
    assert isinstance(data.test, Samples)
    assert build(own, dataset=data).model == MODELS["softmax"]((1, 28, 28), 10)
