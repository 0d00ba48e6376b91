"""The PyTorch trainer: any `nn.Module`, or the module that one of our model descriptions stands for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedtide.core.parts import reported
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning import model as m
from fedtide.learning.trainer import LocalWork, MadeOf, Score, batches
from fedtide.rng import key, stream
from fedtide.types import Floats, Ints, Samples, Vector

EVALUATION_BATCH = 1000


class SeededDropout(nn.Module):
    """Dropout that draws from a generator of its own, so that jobs on several threads keep their streams apart."""

    def __init__(self, p: float, channels: bool) -> None:
        super().__init__()
        self.p, self.channels, self.generator = p, channels, torch.Generator()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zero elements, or whole channels, with probability p and scale the rest."""
        if not self.training or self.p == 0:
            return x
        shape = (*x.shape[:2], 1, 1) if self.channels else x.shape
        kept = torch.empty(shape).bernoulli_(1 - self.p, generator=self.generator).div_(1 - self.p)
        return x * kept.to(x.device)


def build_module(model: m.Model) -> nn.Sequential:
    """Return the module that a description stands for; its parameters lie in the flat vector's order."""
    layers: list[nn.Module] = []
    for layer, shape in zip(model.layers, m.shapes(model)[:-1], strict=True):
        if isinstance(layer, m.Conv2d):
            layers.append(nn.Conv2d(shape[0], layer.out, layer.kernel, padding=layer.padding))
        elif isinstance(layer, m.MaxPool2d):
            layers.append(nn.MaxPool2d(layer.size))
        elif isinstance(layer, m.ReLU):
            layers.append(nn.ReLU())
        elif isinstance(layer, m.Dropout):
            layers.append(SeededDropout(layer.p, channels=False))
        elif isinstance(layer, m.ChannelDropout):
            layers.append(SeededDropout(layer.p, channels=True))
        else:
            if len(shape) == 3:
                layers.append(nn.Flatten())
            layers.append(nn.Linear(int(np.prod(shape)), layer.out))
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class TorchTrainer:
    """Trains one device after another in PyTorch, `threads` of them at a time, each on one thread.

    `model` is a description or a function that makes an `nn.Module` taking images [b c h w] to logits [b labels]. One thread
    per job keeps the bits the same whatever the number of threads.
    """

    model: m.Model | Callable[[], Any]
    samples: Samples
    partition: Sequence[Ints]
    work: LocalWork
    seed: int
    threads: int = 1
    device: str = "cpu"
    _images: Any = field(init=False, repr=False)
    _labels: Any = field(init=False, repr=False)
    _halt: threading.Event = field(init=False, repr=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        object.__setattr__(
            self, "_images", torch.from_numpy(np.require(self.samples.images, requirements="W")).to(self.device)
        )
        object.__setattr__(self, "_labels", torch.from_numpy(self.samples.labels.astype(np.int64)).to(self.device))
        stateful = [name for name, buffer in self._module().named_buffers() if buffer.is_floating_point()]
        if stateful:
            raise FedtideError(
                f"the module keeps state outside its parameters ({', '.join(stateful[:3])}), which devices do not send; "
                "use GroupNorm or LayerNorm in place of BatchNorm"
            )
        if not isinstance(self.model, m.Model):
            self._try()

    @property
    def made_of(self) -> MadeOf:
        """What it was made of."""
        return MadeOf(self.model, self.samples, self.partition, self.work, self.seed)

    def _try(self) -> None:
        """Raise if a user's module does not take two images to logits: sooner than after the first period."""
        with self._reported(FedtideError), torch.no_grad():
            logits = self._module().eval()(self._images[:2])
        shape: tuple[int, ...] = tuple(getattr(logits, "shape", ()))
        labels = int(self._labels.max()) + 1
        if len(shape) != 2 or shape[0] != len(self._images[:2]) or shape[1] < labels:
            raise FedtideError(
                f"the module takes images {tuple(self._images[:2].shape)} to {shape or type(logits).__name__}; "
                f"return logits (2, {labels}), a row per image"
            )

    def _reported(self, failure: type[FedtideError] = TrainingError) -> AbstractContextManager[None]:
        """Turn what a user's module raises into one line with the line of the user's file."""
        if isinstance(self.model, m.Model):
            return nullcontext()
        return reported("learning.model", getattr(self.model, "__name__", "?"), self.model, failure)

    def _module(self) -> Any:
        if isinstance(self.model, m.Model):
            return build_module(self.model).to(self.device)
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise FedtideError(
                f"learning.model is a {type(self.model).__name__}: name the class or function that makes the module"
            )
        with self._reported(FedtideError):
            module = self.model()
        if not isinstance(module, nn.Module):
            raise FedtideError(
                f"learning.model made a {type(module).__name__}, not a torch.nn.Module; return the module"
            )
        return module.to(self.device)

    def initial_model(self, seed: int) -> Vector:
        """Return a description's own initialisation, or the one that a user's module makes under this seed."""
        if isinstance(self.model, m.Model):
            return m.initialize(self.model, stream(seed, "initial_model"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key(seed, "initial_model") >> 1)
            return _vector(self._module())

    def train(self, start: Vector, device: Ints, version: Ints, learning_rate: Floats) -> Vector:
        """Return the updates [r d]."""
        with self._reported():
            return self._train(start, device, version, learning_rate)

    def _train(self, start: Vector, device: Ints, version: Ints, learning_rate: Floats) -> Vector:
        jobs = list(zip(start, device.tolist(), version.tolist(), learning_rate.tolist(), strict=True))
        if self.threads == 1 or len(jobs) < 2:
            updates = [self._train_one(*job) for job in jobs]
        else:
            # A user's module may draw from PyTorch's one global generator: then its jobs run one after the other.
            workers = self.threads if isinstance(self.model, m.Model) else 1
            with ThreadPoolExecutor(workers) as pool, self._halting(pool):
                updates = list(pool.map(lambda job: self._train_one(*job), jobs))
        return np.stack(updates) if updates else np.empty((0, start.shape[1]), np.float32)

    @contextmanager
    def _halting(self, pool: ThreadPoolExecutor) -> Iterator[None]:
        """Make jobs on other threads end at their next step when this one is interrupted."""
        try:
            yield
        except BaseException:
            self._halt.set()
            pool.shutdown(cancel_futures=True)
            self._halt.clear()
            raise

    def _train_one(self, start: Vector, device: int, version: int, learning_rate: float) -> Vector:
        visited, bounds = batches(self.seed, device, version, self.partition[device], self.work)
        module = self._module()
        origin = torch.from_numpy(start.copy()).to(self.device)
        vector_to_parameters(origin.clone(), module.parameters())
        module.train()
        parameters = list(module.parameters())
        parts = torch.split(origin, [each.numel() for each in parameters])
        origins = [part.view_as(each) for part, each in zip(parts, parameters, strict=True)]
        order = torch.from_numpy(visited).to(self.device)
        dropout_key = key(self.seed, "dropout", device, version) >> 1
        for position, layer in enumerate(each for each in module.modules() if isinstance(each, SeededDropout)):
            layer.generator.manual_seed((dropout_key + position) % 2**63)
        if not isinstance(self.model, m.Model):
            torch.manual_seed(dropout_key)
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if self._halt.is_set():
                raise InterruptedError
            chosen = order[begin:end]
            loss = nn.functional.cross_entropy(module(self._images[chosen]), self._labels[chosen])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient, first in zip(parameters, gradients, origins, strict=True):
                    # eq:localItUpdate_async: the gradient of F_k + (lambda/2) ||theta - theta_start||^2
                    parameter -= learning_rate * (gradient + self.work.proximal * (parameter - first))
        return np.asarray(_vector(module) - start)

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Score model [d] with dropout off, in fixed batches."""
        module = self._module()
        vector_to_parameters(torch.from_numpy(model.copy()).to(self.device), module.parameters())
        module.eval()
        right, loss = 0, 0.0
        with self._reported(), torch.no_grad():
            for begin in range(0, len(samples.labels), EVALUATION_BATCH):
                part = slice(begin, begin + EVALUATION_BATCH)
                logits = module(torch.from_numpy(samples.images[part]).to(self.device))
                labels = torch.from_numpy(samples.labels[part].astype(np.int64)).to(self.device)
                right += int((logits.argmax(1) == labels).sum())
                loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum").double())
        return Score(right / len(samples.labels), loss / len(samples.labels))


def _vector(module: Any) -> Vector:
    return np.asarray(parameters_to_vector(module.parameters()).detach().cpu().numpy(), np.float32)
