"""How fast is local training? Native kernel, PyTorch eager, PyTorch vmap and the machine's own limit, in one run.

    python benchmarks/kernel.py [--repeats 5] [--seconds 0.25] [--one-core]

The limit is the rate at which a 2048^3 float32 matrix product runs here, divided by the 2.6 MFLOP that a dense forward and
backward pass of the paper's CNN takes per sample; that of evaluation by the 0.96 MFLOP of a forward pass. The small CNN and
LeNet on colour images of 32 x 32, as bytes, are measured against eager alone, without and with fast=true. Every competitor
is measured in turn, several times over, and its best time counts: the machine may be shared. If it is busy, `--one-core`
compares one thread of each by processor time instead of the clock on the wall. Prints a table and writes
benchmarks/out/kernel.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from fedtide.learning.model import MODELS, Model, num_parameters
from fedtide.learning.native import NativeTrainer, isas
from fedtide.learning.trainer import LocalWork, Task
from fedtide.types import Job, Samples

BATCHES = (10, 16, 32, 50, 64)
COLOUR_BATCHES = (10, 32, 64)
COLOUR_MODELS = ("small_cnn", "lenet")
FLOP_PER_SAMPLE = 2.6e6
FLOP_PER_SCORE = 961_000  # 288,000 + 640,000 of the convolutions, 32,000 + 1,000 of the linear layers
RATE, PROXIMAL, MODEL_STACK = 0.01, 0.02, 8
MODEL = MODELS["paper_cnn"]((1, 28, 28), 10)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
OUT = Path(os.path.relpath(Path(__file__).parent)) / "out" / "kernel.json"


def draw_samples(count: int) -> Samples:
    """Return images of MNIST's shape: a constant background, about a fifth of the pixels bright."""
    rng = np.random.default_rng(1)
    images = np.full((count, 1, 28, 28), -0.4242, np.float32)
    inside = images[:, :, 4:24, 4:24]
    bright = rng.random(inside.shape) < 0.4
    inside[bright] = rng.uniform(0, 2.8, bright.sum())
    return Samples(images, rng.integers(0, 10, count).astype(np.uint8))


def draw_colour(count: int) -> Samples:
    """Return images of CIFAR-10's shape, as bytes."""
    rng = np.random.default_rng(2)
    values = ((np.arange(256) / 255 - 0.47) / 0.25).astype(np.float32)
    images, labels = rng.integers(0, 256, (count, 3, 32, 32), np.uint8), rng.integers(0, 10, count, np.uint8)
    return Samples(images, labels, np.tile(values, (3, 1)))


def colour_module(name: str) -> nn.Sequential:
    channels, kernel, padding = ((3, 16, 32, 64), 3, 1) if name == "small_cnn" else ((3, 6, 16), 5, 0)
    convolutions = [nn.Conv2d(a, b, kernel, padding=padding) for a, b in itertools.pairwise(channels)]
    blocks = [(convolution, nn.ReLU(), nn.MaxPool2d(2)) for convolution in convolutions]
    if name == "small_cnn":
        linear = (nn.Linear(1024, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))
    else:
        linear = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*itertools.chain(*blocks), nn.Flatten(), *linear)


def paper_module() -> nn.Sequential:
    return nn.Sequential(
        *(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.Dropout2d(),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ),
        *(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, 10)),
    )


clock = time.perf_counter


# ---- the competitors: each returns samples per second over about `seconds` ---------------------------------------------


class Native:
    def __init__(self, samples: Samples, model: Model = MODEL, fast: bool = False) -> None:
        self.samples, self.model, self.fast = samples, model, fast
        self.partition = np.array_split(np.arange(len(samples.labels)), 4 * CORES)

    def __call__(self, batch: int, seconds: float) -> float:
        work = LocalWork(batch_size=batch, epochs=1, proximal=PROXIMAL)
        trainer = NativeTrainer(Task(self.model, work, 1, self.model.input_shape, 10, CORES), fast=self.fast)
        start = trainer.initial_model(1)
        done, begin = 0, clock()
        while (spent := clock() - begin) < seconds:
            parts = enumerate(self.partition)
            trainer.train([Job(k, 1 + done, start, RATE, self.samples, mine) for k, mine in parts])
            done += len(self.samples.labels)
        return done / spent


def eager_steps(samples: Samples, batch: int, seconds: float, which: str = "paper") -> float:
    module = paper_module() if which == "paper" else colour_module(which)
    anchor = [p.detach().clone() for p in module.parameters()]
    images, labels = torch.from_numpy(samples.floats()), torch.from_numpy(samples.labels.astype(np.int64))
    done, begin = 0, clock()
    while (spent := clock() - begin) < seconds:
        low = done % (len(labels) - batch)
        loss = nn.functional.cross_entropy(module(images[low : low + batch]), labels[low : low + batch])
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for p, g, a in zip(module.parameters(), gradients, anchor, strict=True):
                p.sub_(g.add_(p - a, alpha=PROXIMAL), alpha=RATE)
        done += batch
    return done / spent


def eager_threads(samples: Samples, batch: int, seconds: float, which: str = "paper") -> float:
    torch.set_num_threads(CORES)
    return eager_steps(samples, batch, seconds, which)


def eager_worker(pipe, count: int) -> None:
    torch.set_num_threads(1)
    paper, colour = draw_samples(count), draw_colour(count // 3)
    while (order := pipe.recv()) is not None:
        batch, seconds, which = order
        pipe.send(eager_steps(paper if which == "paper" else colour, batch, seconds, which))


class EagerProcesses:
    """One single-threaded process per core, all at once."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for _ in range(CORES):
            ours, theirs = context.Pipe()
            context.Process(target=eager_worker, args=(theirs, count), daemon=True).start()
            self.pipes.append(ours)
        self(10, 0.05)

    def __call__(self, batch: int, seconds: float, which: str = "paper") -> float:
        for pipe in self.pipes:
            pipe.send((batch, seconds, which))
        return sum(pipe.recv() for pipe in self.pipes)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def vmap_steps(samples: Samples, batch: int, seconds: float) -> float:
    """A stack of models trained in lockstep by torch.func."""
    torch.set_num_threads(CORES)
    modules = [paper_module() for _ in range(MODEL_STACK)]
    parameters, buffers = stack_module_state(modules)
    parameters = {name: p.detach() for name, p in parameters.items()}
    anchor = {name: p.clone() for name, p in parameters.items()}

    def loss(p, x, y):
        return nn.functional.cross_entropy(functional_call(modules[0], (p, buffers), (x,)), y)

    step = vmap(grad(loss), randomness="different")
    images, labels = torch.from_numpy(samples.images), torch.from_numpy(samples.labels.astype(np.int64))
    taken = MODEL_STACK * batch
    done, begin = 0, clock()
    while (spent := clock() - begin) < seconds or done == 0:
        low = done % (len(labels) - taken)
        x = images[low : low + taken].view(MODEL_STACK, batch, 1, 28, 28)
        gradients = step(parameters, x, labels[low : low + taken].view(MODEL_STACK, batch))
        parameters = {
            name: p - RATE * (gradients[name] + PROXIMAL * (p - anchor[name])) for name, p in parameters.items()
        }
        done += taken
    return done / spent


def sgemm_flops(size: int = 2048) -> float:
    torch.set_num_threads(CORES)
    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(4):
        begin = clock()
        a @ b
        times.append(clock() - begin)
    return 2 * size**3 / min(times)


# ---- evaluation --------------------------------------------------------------------------------------------------------


def native_evaluation(samples: Samples) -> float:
    trainer = NativeTrainer(Task(MODEL, LocalWork(), 1, MODEL.input_shape, 10, CORES))
    model = trainer.initial_model(1)
    begin = clock()
    trainer.evaluate(model, samples)
    return clock() - begin


def eager_evaluation(samples: Samples, batch: int) -> float:
    torch.set_num_threads(CORES)
    module = paper_module().eval()
    images, labels = torch.from_numpy(samples.images), torch.from_numpy(samples.labels.astype(np.int64))
    begin = clock()
    with torch.no_grad():
        for low in range(0, len(labels), batch):
            logits = module(images[low : low + batch])
            nn.functional.cross_entropy(logits, labels[low : low + batch]).item()
            (logits.argmax(1) == labels[low : low + batch]).sum().item()
    return clock() - begin


def measure_colour(options: argparse.Namespace, processes: EagerProcesses | None, console: Console) -> list[dict]:
    """Return samples/s of the models for colour images: native, the same with fast=true, and the better way to run eager."""
    samples = draw_colour(1000)
    best = {(name, batch): [0.0, 0.0, 0.0] for name in COLOUR_MODELS for batch in COLOUR_BATCHES}
    for _ in track(range(options.repeats), "colour", console=console, transient=True):
        for (name, batch), found in best.items():
            model = MODELS[name]((3, 32, 32), 10)
            measured = [Native(samples, model, fast)(batch, options.seconds) for fast in (False, True)]
            eager = [eager_threads(samples, batch, options.seconds, name)]
            if processes:
                eager.append(processes(batch, options.seconds, name))
            found[:] = map(max, found, [*measured, max(eager)])
    return [
        {"model": name, "batch": batch, "native": plain, "native_fast": fast, "eager": eager}
        for (name, batch), (plain, fast, eager) in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25, help="per measurement")
    parser.add_argument("--one-core", action="store_true", help="one thread each, by processor time")
    options = parser.parse_args()
    console = Console()
    if options.one_core:
        global CORES, clock
        CORES, clock = 1, time.process_time

    samples = draw_samples(3000)
    processes = None if options.one_core else EagerProcesses(3000)
    competitors = {
        "native": Native(samples),
        "eager_threads": lambda batch, seconds: eager_threads(samples, batch, seconds),
        "eager_processes": processes or (lambda batch, seconds: eager_threads(samples, batch, seconds)),
        "vmap": lambda batch, seconds: vmap_steps(samples, batch, seconds),
    }
    best = {name: dict.fromkeys(BATCHES, 0.0) for name in competitors}
    peak = 0.0
    for _ in track(range(options.repeats), "training", console=console, transient=True):
        for batch in BATCHES:
            peak = max(peak, sgemm_flops())
            for name, measure in competitors.items():
                best[name][batch] = max(best[name][batch], measure(batch, options.seconds))
    colour = measure_colour(options, processes, console)
    if processes:
        processes.close()

    test = draw_samples(10_000)
    evaluation = {"native": np.inf, "eager": np.inf}
    for _ in track(range(2 * options.repeats), "evaluation", console=console, transient=True):
        evaluation["native"] = min(evaluation["native"], native_evaluation(test))
        evaluation["eager"] = min(evaluation["eager"], *(eager_evaluation(test, batch) for batch in (100, 1000)))

    limit = peak / FLOP_PER_SAMPLE
    score_share = len(test.labels) * FLOP_PER_SCORE / peak / evaluation["native"]
    rows = [
        {
            "batch": batch,
            **{name: best[name][batch] for name in competitors},
            "limit": limit,
            "share_of_limit": best["native"][batch] / limit,
            "times_eager": best["native"][batch] / max(best["eager_threads"][batch], best["eager_processes"][batch]),
            "times_vmap": best["native"][batch] / best["vmap"][batch],
        }
        for batch in BATCHES
    ]
    result = {
        "model": "paper_cnn",
        "num_parameters": num_parameters(MODEL),
        "cores": CORES,
        "clock": "processor time" if options.one_core else "wall",
        "machine": platform.machine(),
        "isa": os.environ.get("FEDTIDE_ISA") or isas()[0],
        "torch": torch.__version__,
        "sgemm_gflops": peak / 1e9,
        "training": rows,
        "colour": colour,
        "evaluation": {
            "images": len(test.labels),
            "native_seconds": evaluation["native"],
            "eager_seconds": evaluation["eager"],
            "times_eager": evaluation["eager"] / evaluation["native"],
            "share_of_limit": score_share,
        },
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result, indent=2) + "\n")

    table = Table(
        title=f"Training the paper's CNN with dropout: samples/s on {CORES} cores ({result['isa']})",
        caption="PyTorch eager: one process with all threads, or one single-threaded process per core",
    )
    headings = (
        "batch",
        "native",
        "threads",
        "process.",
        "vmap",
        "limit",
        "of limit",
        "x eager",
        "x vmap",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        rates = (f"{row[name]:,.0f}" for name in (*competitors, "limit"))
        table.add_row(
            str(row["batch"]),
            *rates,
            f"{row['share_of_limit']:.0%}",
            f"{row['times_eager']:.1f}",
            f"{row['times_vmap']:.1f}",
        )
    console.print(table)
    for row in colour:
        console.print(
            f"{row['model']} on 3 x 32 x 32 bytes, batch {row['batch']}: eager {row['eager']:,.0f} samples/s, "
            f"native {row['native']:,.0f} ({row['native'] / row['eager']:.1f} x), "
            f"fast {row['native_fast']:,.0f} ({row['native_fast'] / row['eager']:.1f} x)"
        )
    console.print(
        f"limit: {peak / 1e9:.0f} GFLOP/s (2048^3 SGEMM) / 2.6 MFLOP per sample.  Evaluation of {len(test.labels):,} images: "
        f"native {evaluation['native'] * 1e3:.0f} ms, eager {evaluation['eager'] * 1e3:.0f} ms "
        f"({result['evaluation']['times_eager']:.1f} x), {score_share:.0%} of the limit of 0.96 MFLOP per image.  "
        f"Written to {OUT}"
    )


if __name__ == "__main__":
    main()
