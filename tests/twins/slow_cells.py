"""Several cells as plainly as can be: one device and one cell after the other, nothing shared with the package."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any


@dataclass
class Network:
    """Base stations and devices at known places, without shadowing."""

    sites: list[tuple[float, float]]
    devices: list[tuple[float, float]]
    shifts: list[tuple[float, float]]  # by which everything is repeated; (0, 0) at least
    sectors: int
    p0: float | None  # dBm
    alpha: float
    symbols: float
    blocks: int
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def loss(self, device: int, cell: int) -> float:
        """From a device to a cell, in dB; worked out once."""
        if (device, cell) not in self.known:
            self.known[device, cell] = self._loss(device, cell)
        return self.known[device, cell]

    def _loss(self, device: int, cell: int) -> float:
        x, y = self.devices[device]
        site_x, site_y = self.sites[cell // self.sectors]
        ways = [(x - site_x + dx, y - site_y + dy) for dx, dy in self.shifts]
        dx, dy = min(ways, key=lambda way: math.hypot(*way))
        loss = 128.1 + 37.6 * math.log10(max(math.hypot(dx, dy), 35) / 1000)
        if self.sectors == 1:
            return loss
        angle = math.degrees(math.atan2(dy, dx)) - 30 - 120 * (cell % self.sectors)
        while angle > 180:
            angle -= 360
        while angle < -180:
            angle += 360
        return loss + min(12 * (angle / 65) ** 2, 30)

    def cell(self, device: int) -> int:
        """That serves a device."""
        return min(range(len(self.sites) * self.sectors), key=lambda cell: self.loss(device, cell))

    def received(self, device: int, cell: int) -> float:
        """Power of a device at a cell, over the noise."""
        power = 23.0
        if self.p0 is not None:
            own = self.loss(device, self.cell(device))
            power = min(power, self.p0 + 10 * math.log10(10e6 / 180e3) + self.alpha * own)
        return float(10 ** ((power - self.loss(device, cell) - (-174 + 70 + 5)) / 10))

    def interference(self, mine: int, sends: list[dict[str, Any]]) -> float:
        """What the cell of a device hears of the devices of others, over the noise. sends: device, taken, power, block."""
        here, block = self.cell(mine), next(each["block"] for each in sends if each["device"] == mine)
        total = 0.0
        for each in sends:
            if self.cell(each["device"]) != here and each["block"] == block:
                there = self.symbols if block is None else self.symbols / self.blocks
                total += each["taken"] / there * each["power"] * self.received(each["device"], here)
        return total

    def expected(self, mine: int) -> float:
        """What the server plans with: of every other cell its mean device, all the time."""
        here, by_cell = self.cell(mine), dict[int, list[float]]()
        for device in range(len(self.devices)):
            by_cell.setdefault(self.cell(device), []).append(self.received(device, here))
        return sum(sum(heard) / len(heard) for cell, heard in by_cell.items() if cell != here)


def hexagon_shifts(rings: int, spacing: float) -> list[tuple[float, float]]:
    """By which a hexagonal grid of 1 + 3 rings (rings + 1) sites is repeated, the nearest 25."""
    angle = math.atan2(rings * math.sqrt(3) / 2, rings + 1 + rings / 2) + math.radians(30)
    length = spacing * math.sqrt(1 + 3 * rings * (rings + 1))
    one = length * math.cos(angle), length * math.sin(angle)
    other = length * math.cos(angle + math.pi / 3), length * math.sin(angle + math.pi / 3)
    return [(a * one[0] + b * other[0], a * one[1] + b * other[1]) for a, b in product(range(-2, 3), repeat=2)]
