"""The PyTorch trainer: any `nn.Module`, or the module that one of our model descriptions stands for."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedtide.core.faults import fault_text
from fedtide.errors import FedtideError, TrainingError
from fedtide.learning import model as m
from fedtide.learning.trainer import (
    Score,
    TableId,
    Task,
    batches,
    check_jobs,
    check_trainer_table,
    read_trainer_tables,
    trainer_table_name,
)
from fedtide.parts.arguments import arg, part_parameters
from fedtide.parts.checks import part_errors_reported
from fedtide.rng import stream, stream_key
from fedtide.types import Ints, Job, Samples, Vector

_EVALUATION_BATCH = 1000

OptimizerName: TypeAlias = Literal["sgd", "adam", "adamw"]
_OWNERS: Final[dict[str, tuple[str, ...]]] = {
    "momentum": ("sgd",),
    "beta1": ("adam", "adamw"),
    "beta2": ("adam", "adamw"),
}


class CodeEmbedding(nn.Embedding):
    """Takes codes that are written as numbers [b 1 1 steps] to rows of its table [b steps width]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Look the codes up; raise if there are others than 0 to num_embeddings - 1."""
        codes = x.flatten(1).long()
        low, high = (int(each) for each in codes.aminmax()) if len(codes) else (0, 0)
        if low < 0 or high >= self.num_embeddings:
            raise TrainingError(
                f"the samples hold codes from {low} to {high}, and the model's embedding has {self.num_embeddings} symbols: "
                "give codes from 0 to num_labels - 1, as the data set shakespeare does"
            )
        return super().forward(codes)


class LastState(nn.GRU):
    """Gated recurrent units [b steps width] of which only the last state is wanted [b out]."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(width, out, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Step through the rows, from zeros on."""
        return cast(torch.Tensor, super().forward(x)[1][0])


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


_MODULES: Final[dict[type, Callable[[Any, m.Shape], nn.Module]]] = {
    m.Conv2d: lambda layer, shape: nn.Conv2d(shape[0], layer.out, layer.kernel, padding=layer.padding),
    m.MaxPool2d: lambda layer, shape: nn.MaxPool2d(layer.size),
    m.ReLU: lambda layer, shape: nn.ReLU(),
    m.Dropout: lambda layer, shape: SeededDropout(layer.p, channels=False),
    m.ChannelDropout: lambda layer, shape: SeededDropout(layer.p, channels=True),
    m.Linear: lambda layer, shape: nn.Linear(math.prod(shape), layer.out),
    m.Embedding: lambda layer, shape: CodeEmbedding(layer.symbols, layer.width),
    m.GRU: lambda layer, shape: LastState(shape[1], layer.out),
}


def build_module(model: m.Model) -> nn.Sequential:
    """Return the module that a description stands for; its parameters lie in the flat vector's order."""
    layers: list[nn.Module] = []
    for layer, shape in zip(model.layers, m.model_shapes(model)[:-1], strict=True):
        if isinstance(layer, m.Linear) and len(shape) > 1:
            layers.append(nn.Flatten())
        layers.append(_MODULES[type(layer)](layer, shape))
    return nn.Sequential(*layers)


class _Table(NamedTuple):
    """Samples where they are trained on."""

    images: Any  # tensor [n channels height width], float32, or bytes with `values`
    labels: Any  # tensor [n]
    values: Any  # what each byte of each channel stands for, tensor [channels 256]; None: float32


@dataclass
class TorchTrainer:
    """Trains in PyTorch, `threads` devices at a time, each on one thread.

    The task's model is a description or a function that makes an `nn.Module` taking images [b c h w] to logits [b labels].
    One thread per job keeps the bits the same whatever the number of threads. An optimizer is begun afresh by every job.
    """

    takes_work: ClassVar[bool] = True
    task: Task
    device: Annotated[
        str | None, arg("device to train on: cpu, cuda, cuda:1, ...; default: cuda if available, else cpu")
    ] = None
    optimizer: Annotated[OptimizerName, arg("the optimizer")] = "sgd"
    momentum: Annotated[float, arg("momentum of sgd", ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, arg("weight decay", ge=0)] = 0.0
    beta1: Annotated[float, arg("adam and adamw: decay rate of the mean gradient", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, arg("adam and adamw: decay rate of the mean squared gradient", ge=0, lt=1)] = 0.999

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        for option, owners in _OWNERS.items():
            if option in self._options() and self.optimizer not in owners:
                raise FedtideError(
                    f"{option}={getattr(self, option)} is an option of {' and '.join(owners)}, and the torch trainer's "
                    f"optimizer is {self.optimizer}: leave it out or choose optimizer={owners[0]}"
                )
        self.device = _place(self.device)
        self._tables: dict[TableId, tuple[Samples, _Table]] = {}
        self._halt = threading.Event()
        module = self._module()
        self._num_parameters = sum(each.numel() for each in module.parameters())
        if stateful := [name for name, buffer in module.named_buffers() if buffer.is_floating_point()]:
            raise FedtideError(
                f"the module keeps state outside its parameters ({', '.join(stateful[:3])}), which devices do not send; "
                "use GroupNorm or LayerNorm in place of BatchNorm"
            )
        if not isinstance(self.task.model, m.Model):
            self._try()

    @property
    def name(self) -> str:
        """What it is called in the records of a run: torch, and whatever makes other bits than plain SGD on a CPU."""
        place = "" if self.device == "cpu" else f" on {self.device}"
        given = [f"{option}={value}" for option, value in self._options().items()]
        return f"torch{place}" + (f" with {', '.join(given)}" if given else "")

    def _options(self) -> dict[str, Any]:
        """Return what is not as it would be if nothing were given, besides the device."""
        declared = [each for each in part_parameters(TorchTrainer, given=1) if each.name != "device"]
        return {each.name: value for each in declared if (value := getattr(self, each.name)) != each.default}

    def _optimizer(self, parameters: list[Any], learning_rate: float) -> Any:
        """Return a fresh optimizer; None for plain SGD, whose step is written out."""
        if self.optimizer == "sgd" and not self.momentum and not self.weight_decay:
            return None
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, learning_rate, self.momentum, weight_decay=self.weight_decay)
        made = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        return made(parameters, learning_rate, (self.beta1, self.beta2), weight_decay=self.weight_decay)

    def _try(self) -> None:
        """Raise if a user's module does not take two images to logits: sooner than after the first period."""
        images, wanted = torch.zeros((2, *self.task.shape), device=self.device), (2, self.task.num_labels)
        with self._reported(FedtideError), torch.no_grad():
            logits = self._module().eval()(images)
        shape: tuple[int, ...] = tuple(getattr(logits, "shape", ()))
        if len(shape) != 2 or shape[0] != wanted[0] or shape[1] < wanted[1]:
            raise FedtideError(
                f"the module takes images {tuple(images.shape)} to {shape or type(logits).__name__}; "
                f"return logits {wanted}, a row per image"
            )

    def _reported(self, failure: type[FedtideError] = TrainingError) -> AbstractContextManager[None]:
        """Turn what a user's module raises into one line with the line of the user's file."""
        if isinstance(self.task.model, m.Model):
            return nullcontext()
        return part_errors_reported("learning.model", _name(self.task.model), self.task.model, failure)

    def _module(self) -> Any:
        model = self.task.model
        if isinstance(model, m.Model):
            return build_module(model).to(self.device)
        if isinstance(model, nn.Module) or not callable(model):
            raise FedtideError(
                f"learning.model is a {type(model).__name__}: name the class or function that makes the module"
            )
        with self._reported(FedtideError):
            module = model()
        if not isinstance(module, nn.Module):
            raise FedtideError(
                f"learning.model made a {type(module).__name__}, not a torch.nn.Module; return the module"
            )
        return module.to(self.device)

    def initial_model(self, seed: int) -> Vector:
        """Return a description's own initialisation, or the one that a user's module makes under this seed."""
        if isinstance(self.task.model, m.Model):
            return m.initialize(self.task.model, stream(seed, "initial_model"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(seed, "initial_model") >> 1)
            return _vector(self._module())

    def train(self, jobs: Sequence[Job]) -> Vector:
        """Return the updates [r d], one row per job."""
        check_jobs(jobs, self._num_parameters)
        self._tables = read_trainer_tables(jobs, self._tables, self._table)
        with self._reported():
            return self._train(jobs)

    def check_samples(self, samples: Samples) -> None:
        """Raise if it can neither train nor score on such samples."""
        check_trainer_table(samples, self.task.shape, "task", "iu")

    def _table(self, samples: Samples) -> _Table:
        self.check_samples(samples)
        labels = torch.from_numpy(samples.labels.astype(np.int64))
        values = None if samples.values is None else _shared(samples.values).to(self.device)
        return _Table(_shared(samples.images).to(self.device), labels.to(self.device), values)

    def _train(self, jobs: Sequence[Job]) -> Vector:
        if self.task.threads == 1 or len(jobs) < 2:
            updates = [self._train_one(job) for job in jobs]
        else:
            # A user's module may draw from PyTorch's one global generator: then its jobs run one after the other.
            workers = self.task.threads if isinstance(self.task.model, m.Model) else 1
            with ThreadPoolExecutor(workers) as pool:
                try:
                    updates = list(pool.map(self._train_one, jobs))
                except BaseException:  # jobs on other threads end at their next step when this one is interrupted
                    self._halt.set()
                    pool.shutdown(cancel_futures=True)
                    self._halt.clear()
                    raise
        return np.stack(updates) if updates else np.empty((0, self._num_parameters), np.float32)

    def _train_one(self, job: Job) -> Vector:
        seed, work = self.task.seed, job.work or self.task.work
        learning_rate = float(job.learning_rate)
        visited, bounds = batches(seed, *job.address, np.asarray(job.indices, np.int64), work)
        images, labels, values = self._tables[trainer_table_name(job.samples)][1]
        module = self._module()
        origin = torch.from_numpy(np.array(job.start)).to(self.device)
        vector_to_parameters(origin.clone(), module.parameters())
        module.train()
        parameters = list(module.parameters())
        origins = _like(parameters, origin)
        order = torch.from_numpy(visited).to(self.device)
        dropout_key = stream_key(seed, "dropout", *job.address) >> 1
        for position, layer in enumerate(each for each in module.modules() if isinstance(each, SeededDropout)):
            layer.generator.manual_seed((dropout_key + position) % 2**63)
        if not isinstance(self.task.model, m.Model):
            torch.manual_seed(dropout_key)
        added = _like(parameters, None if job.correction is None else _shared(job.correction).to(self.device))
        optimizer = self._optimizer(parameters, learning_rate)
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if self._halt.is_set():
                raise InterruptedError
            chosen = order[begin:end]
            loss = nn.functional.cross_entropy(module(_numbers(images[chosen], values)), labels[chosen])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient, first, more in zip(parameters, gradients, origins, added, strict=True):
                    # eq:localItUpdate_async: the gradient of F_k + (lambda/2) ||theta - theta_start||^2
                    whole = gradient + work.proximal * (parameter - first)
                    whole = whole if more is None else whole + more
                    if optimizer is None:
                        parameter -= learning_rate * whole
                    else:
                        parameter.grad = whole
            if optimizer is not None:
                optimizer.step()
        return np.asarray(_vector(module) - job.start)

    def module_of(self, model: Vector) -> Any:
        """Return the module with the parameters of model [d]."""
        module = self._module()
        vector_to_parameters(torch.from_numpy(model.copy()).to(self.device), module.parameters())
        return module

    def predict(self, model: Vector, samples: Samples) -> Ints:
        """Return the label that model [d] gives each sample [n], dropout off, in fixed batches."""
        images, _, values = self._table(samples)
        module = self.module_of(model).eval()
        with self._reported(), torch.no_grad():
            bounds = range(0, len(images), _EVALUATION_BATCH)
            found = [
                module(_numbers(images[at : at + _EVALUATION_BATCH], values)).argmax(1).cpu().numpy() for at in bounds
            ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def evaluate(self, model: Vector, samples: Samples) -> Score:
        """Score model [d] with dropout off, in fixed batches."""
        images, labels, values = self._table(samples)
        module = self.module_of(model)
        module.eval()
        right, loss = 0, 0.0
        with self._reported(), torch.no_grad():
            for begin in range(0, len(labels), _EVALUATION_BATCH):
                part = slice(begin, begin + _EVALUATION_BATCH)
                logits = module(_numbers(images[part], values))
                right += int((logits.argmax(1) == labels[part]).sum())
                loss += float(nn.functional.cross_entropy(logits, labels[part], reduction="sum").double())
        return Score(right / len(labels), loss / len(labels))


def _shared(array: np.ndarray[Any, Any]) -> Any:
    """Return a tensor over the memory of an array, which nobody here writes to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, that it might be written to though it is read-only
        return torch.from_numpy(np.asarray(array))


def _like(parameters: list[Any], vector: Any) -> list[Any]:
    """Return a vector [d] cut into tensors like the parameters; None for each of them if there is none."""
    if vector is None:
        return [None] * len(parameters)
    cut = torch.split(vector, [each.numel() for each in parameters])
    return [part.view_as(each) for part, each in zip(cut, parameters, strict=True)]


def _numbers(images: Any, values: Any) -> Any:
    """Return images [b channels height width] as float32; of bytes, what they stand for."""
    if values is None:
        return images
    made = torch.empty(images.shape, device=images.device)
    for channel, value in enumerate(values):  # one after another: PyTorch counts in 8 bytes
        made[:, channel] = value[images[:, channel].long()]
    return made


def _place(wanted: str | None) -> str:
    """Return where to train; raise if this machine cannot."""
    place = wanted or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=place).cpu()
    except (RuntimeError, AssertionError, ImportError) as error:
        why = fault_text(error).split(". ")[0]
        raise FedtideError(
            f"device={place!r} cannot be used by PyTorch here ({why}): choose device=cpu, or leave it out"
        ) from error
    if place.startswith("cuda"):  # the fastest convolution of the moment gives other bits each time
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return place


def _name(maker: Any) -> str:
    """Return the name of what makes a module, whatever arguments were given to it."""
    while isinstance(maker, functools.partial):
        maker = maker.func
    return str(getattr(maker, "__name__", type(maker).__name__))


def _vector(module: Any) -> Vector:
    return np.asarray(parameters_to_vector(module.parameters()).detach().cpu().numpy(), np.float32)
