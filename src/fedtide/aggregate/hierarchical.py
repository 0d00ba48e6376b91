"""Edge servers under one cloud: each edge aggregates what arrives at it, and every kappa ticks the cloud averages the edges.

The server's vector is the models of the E edges one after the other [E d]. Devices, codecs and trainers see the [d] of an edge.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import numpy as np

from fedtide import columns
from fedtide.aggregate.base import Around, Cohort, Inner, InnerArgs, weighted_sum
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import checks
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints, Memory, Vector, Vectors

_IDLE_NAMED: Final = 10  # edges in a warning; the others are counted


@dataclass
class _Edges:
    """What arrives at the edges at one tick."""

    edge: Ints  # of each row of the cohort [r]
    inner: dict[int, Any]  # the inner aggregator's accumulators, by edge
    added: dict[int, int]  # rows that are in them


@dataclass(frozen=True)
class Hierarchical(Around):
    """Edge servers: theta_e(t+1) = inner of what arrives at edge e; if kappa divides t, all become sum_e p_e theta_e(t+1).

    A device trains from the model of the edge in whose cell it was when that version came to be, and its update goes to the edge of
    the cell that it is sent to. Weights w_k count relative to those of the same edge, whose inner aggregator has a memory of its
    own. An edge without arrivals keeps its model. p_e is the share of samples of the devices attached to edge e: those that were
    last ready in its cell. Scores, metrics and the saved model are of sum_e p_e theta_e. One edge is the inner aggregator itself.

    Liu, Zhang, Song, Letaief, Client-edge-cloud hierarchical federated learning (ICC 2020): inner=average_models, all devices
    upload at every tick.
    """

    outermost: ClassVar[bool] = True
    every: Annotated[int, arg("kappa: ticks between two cloud averages", unit="ticks", ge=1, le=10**9)] = 1
    edges: Annotated[
        int | None,
        arg(
            "E: number of edge servers. Each has the same number of neighbouring cells, or of devices if radio.coverage has no "
            "cells; default: one per cell",
            ge=1,
            le=10_000,
        ),
    ] = None
    inner: Inner = "average_models"
    inner_args: InnerArgs = None
    coverage: Annotated[Callable[..., Any] | None, arg("the coverage that defines the cells", key="run.coverage")] = (
        None
    )
    num_devices: Annotated[int, arg("N, number of devices", key="fleet.num_devices", ge=1, le=10**8)] = 1
    seed: Annotated[int, arg("assigns devices to edge servers if there are no cells", key="seed")] = 0

    def __post_init__(self) -> None:
        """Raise at once if there are no such edges, or the inner aggregator cannot be at one."""
        cells, given = self.num_cells, f"policy.aggregator.edges={self.edges}"
        if cells is None and self.edges is None and self.coverage is not None:
            raise FedtideError(
                "policy.aggregator=hierarchical has one edge server per cell, and radio.coverage has no cells: give "
                "policy.aggregator.edges, or a coverage of several cells"
            )
        if self.edges is not None and self.edges > (most := cells or self.num_devices):
            whose = f"the {most} cells of radio.coverage" if cells else f"fleet.num_devices={most}"
            raise FedtideError(f"{given} is more than {whose}: some edge servers would have no device; lower it")
        inside, around = self._inner, ""
        while inside is not None:
            inside = checks.unguarded_part(getattr(inside, "part", inside))
            if reason := getattr(inside, "only_global", ""):
                raise FedtideError(f"policy.aggregator.inner={str(self.inner)!r} {around}{reason}: name another inside")
            around = "has one inside that "
            inside = getattr(inside, "_inner", None)

    @property
    def num_cells(self) -> int | None:
        """How many cells radio.coverage has; None: it knows of none."""
        return getattr(self.coverage, "num_cells", None)

    @property
    def count(self) -> int:
        """E."""
        return self.edges or self.num_cells or 1

    @functools.cached_property
    def _dealt(self) -> Ints:
        """The edge of each device where there are no cells [N]: as many at each, in an order that the seed draws."""
        order = np.argsort(columns.uniform(self.seed, "edges", np.arange(self.num_devices)), kind="stable")
        edge = np.empty(self.num_devices, np.int64)
        edge[order] = np.arange(self.num_devices) * self.count // self.num_devices
        return edge

    def edge(self, device: Ints, time: Floats | float, cell: Ints | None = None) -> Ints:
        """Return at which edge these devices are at these times [m]. cell: the cells that serve them, if they are known [m]."""
        if self.count == 1:
            return np.zeros_like(device)
        if (cells := self.num_cells) is None:
            return self._dealt[device]
        return (self._cell(device, time) if cell is None else cell) * self.count // cells

    def _cell(self, device: Ints, time: Floats | float) -> Ints:
        """Return in which cells these devices are [m]; raise if a coverage of the user's own names others than it has."""
        coverage: Any = self.coverage
        when = np.broadcast_to(np.asarray(time, np.float64), device.shape)
        cell = np.asarray(coverage.cell(self.seed, device, when))
        if (
            cell.shape != device.shape
            or cell.dtype.kind not in "iu"
            or np.any((cell < 0) | (cell >= coverage.num_cells))
        ):
            raise TrainingError(
                f"{checks.part_label('coverage', self.coverage)}: cell(seed, device, time) must give one whole number from 0 to "
                f"{coverage.num_cells - 1} for each of the {len(device)} devices"
            )
        return cell.astype(np.int64, copy=False)

    # What the step asks besides.

    def tiled(self, model: Vector) -> Vector:
        """Return the vector of edges that all have this model [E d]."""
        return np.tile(model, self.count)

    def attach(self, num_samples: Ints) -> Memory:
        """Return who is attached to which edge at first [N], how much data that is, and how many uploads each edge had [E]."""
        attached = self.edge(np.arange(len(num_samples)), 0.0).astype(np.int16)  # there are at most 10,000 edges
        samples = np.zeros(self.count, np.int64)
        np.add.at(samples, attached, num_samples)
        return {"attached": attached, "samples": samples, "uploads": np.zeros(self.count, np.int64)}

    def attached(self, before: Memory, device: Ints, num_samples: Ints, edge: Ints, arrived: Ints) -> Memory:
        """Return who is attached after these devices [m] were ready at these edges, and some of their updates [r] arrived."""
        attached, samples, uploads = (before[name].copy() for name in ("attached", "samples", "uploads"))
        np.subtract.at(samples, attached[device], num_samples)
        np.add.at(samples, edge, num_samples)
        np.add.at(uploads, edge[arrived], 1)
        attached[device] = edge
        return {"attached": attached, "samples": samples, "uploads": uploads}

    def averaged(self, tick: int, model: Vector, samples: Ints) -> tuple[Vector, dict[str, float]]:
        """Return the edges' models [E d] after an aggregation, averaged if that is due, and what is recorded of it.

        cloud_average: were they averaged, 1 or 0. edge_spread: how far apart they were before,
        sqrt(sum_e p_e ||theta_e - mean||^2) / ||mean||.
        """
        due, mean = tick % self.every == 0, cloud_average(model, samples)
        apart = [_sq_norm(own - mean) for own in model.reshape(self.count, -1)]
        spread = math.fsum(samples / samples.sum() * apart) / max(_sq_norm(mean), 1e-30)
        told = {"cloud_average": float(due), "edge_spread": math.sqrt(spread)}
        return (self.tiled(mean) if due else model), told

    # An aggregator of all edges.

    def init(self, model: Vector, num_devices: int) -> Memory:
        """Return what the inner aggregator of each edge begins with [E ...]."""
        first = [self.init_inner(own, num_devices) for own in model.reshape(self.count, -1)]
        return {name: np.stack([memory[name] for memory in first]) for name in first[0]}

    def start(self, state: Memory, model: Vector, cohort: Cohort) -> _Edges:
        """Start the inner aggregator of every edge that something arrives at."""
        edge = np.zeros(len(cohort.device), np.int64) if cohort.edge is None else cohort.edge
        models, acc = model.reshape(self.count, -1), _Edges(edge, {}, {})
        for each in np.unique(edge).tolist():
            own = _part_of(cohort, edge == each)
            acc.inner[each], acc.added[each] = self.start_inner(_of_edge(state, each), models[each], own), 0
        return acc

    def add(self, acc: _Edges, rows: slice, starts: Vectors, updates: Vectors) -> _Edges:
        """Give every row to its edge."""
        edge = acc.edge[rows]
        for each in np.unique(edge).tolist():
            at = np.flatnonzero(edge == each).tolist()
            own = slice(acc.added[each], acc.added[each] + len(at))
            begun, sent = [starts[row] for row in at], [updates[row] for row in at]
            acc.inner[each], acc.added[each] = self._inner.add(acc.inner[each], own, begun, sent), own.stop
        return acc

    def finish(self, state: Memory, acc: _Edges, model: Vector) -> tuple[Vector, Memory]:
        """Return the edges' models, those without arrivals as they were."""
        models, after = model.reshape(self.count, -1).copy(), {name: value.copy() for name, value in state.items()}
        for each, inner in acc.inner.items():
            models[each], memory = self.finish_inner(_of_edge(state, each), inner, model.reshape(self.count, -1)[each])
            for name, value in memory.items():
                after[name][each] = value
        return models.reshape(-1), after


def edge_servers(aggregator: Any) -> Hierarchical | None:
    """Return the edge servers that an aggregator is; None: it is one server."""
    found = checks.unguarded_part(aggregator)
    return found if isinstance(found, Hierarchical) else None


def cloud_average(model: Vector, samples: Ints) -> Vector:
    """Return sum_e p_e theta_e [d] of a vector of edges [E d], p_e by the samples of the devices attached to each [E]."""
    return weighted_sum(samples / samples.sum(), model.reshape(len(samples), -1)).astype(model.dtype)


def idle_edges_warning(uploads: Sequence[int]) -> str | None:
    """Return a warning if some edge servers had no upload in a whole run. uploads: how many each had [E]."""
    idle = [str(edge) for edge, count in enumerate(uploads) if not count]
    if not idle:
        return None
    some = ", ".join(idle[:_IDLE_NAMED]) + (f" and {len(idle) - _IDLE_NAMED:,} more" if len(idle) > _IDLE_NAMED else "")
    return (
        f"no update arrives at {len(idle):,} of {len(uploads):,} edge servers ({some}): what they have is the first model or the "
        "cloud's, and counts by the data of their devices; raise policy.limit, lengthen timeline.horizon, let devices come "
        "into their cells (radio.coverage), or take fewer edges (policy.aggregator.edges)"
    )


def _sq_norm(vector: Vector) -> float:
    return float(np.square(vector, dtype=np.float64).sum())


def _of_edge(state: Memory, edge: int) -> Memory:
    """Return the memory of one edge."""
    return {name: np.asarray(value[edge]) for name, value in state.items()}


def _part_of(cohort: Cohort, which: Any) -> Cohort:
    """Return some rows of a cohort, with weights of sum 1."""
    if which.all():
        return cohort
    rows = cohort._replace(server_update=None)._asdict()
    part = {name: each[which] for name, each in rows.items() if isinstance(each, np.ndarray)}
    total, count = part["weights"].sum(), len(part["weights"])
    weights = part["weights"] / total if total > 0 else np.full(count, 1 / count)
    return cohort._replace(**{**part, "weights": weights})
