"""The twin of native/codec_dead_zone.cpp: dead-zone quantisation and its entropy code, with constriction for a coder."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from constriction import stream

from fedtide.codec.base import join_bits, split_bits
from fedtide.types import Ints, Rng, Vector
from twins.refused import CODE_LENGTH, GOES_ON, MAGNITUDE, Refused

_IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]

_ROUNDING: Final = 0.4  # added before the cut to a whole number; 0.5 would be plain rounding
_STEPS_PER_OCTAVE: Final = 2048  # step = 2^(index / 2048)
OCTAVES: Final = 20  # the finest step lies so far below the largest element; beyond, float32 is as short
_ESCAPE: Final = 11  # larger magnitudes are sent as 11 and the rest apart
_WEIGHTS: Final = (4, 3, 2, 2, 1, 1, 1, 1)  # of the elements before, the nearest first
_EDGES: Final = (1, 2, 3, 4, 6, 9, 13, 20, 32, 50)  # of their weighted sum: classes 0..10; 11 is for the first of a row
_RENEWED: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # columns at which the tables take in what was seen
_UNIT, _PRIOR = 16, 512  # the weight of one element seen, and of a table at the start

_SYMBOLS, _CLASSES, _BEFORE = _ESCAPE + 1, len(_EDGES) + 2, len(_WEIGHTS)
WIDTHS: Final = [20, 5, 6, 6, 6]  # step index, low bits, three centres
_INDEX_OFFSET = 1 << 19
_CODER_BITS = 20  # about what the coder adds to the ideal length
_UNIFORM: Any = stream.model.Uniform
_CATEGORICAL: Any = stream.model.Categorical(perfect=False)


class Layout(NamedTuple):
    """Where the elements go: rows of neighbours, held transposed; only the last row may be short."""

    rows: int
    columns: int
    full: int  # columns that reach all rows

    @classmethod
    def of(cls, num_parameters: int) -> Layout:
        """Return the layout for d elements."""
        rows = -(-num_parameters // 64)
        columns = -(-num_parameters // rows)
        return cls(rows, columns, columns - (rows * columns - num_parameters))


@lru_cache(maxsize=64)
def _first_cell(columns: int) -> Ints:
    """Return the number of the first cell of the tables that each column uses [columns 1]; a cell is a class and a symbol."""
    period = np.searchsorted(_RENEWED, np.arange(columns), side="right") - 1
    return (_CLASSES * _SYMBOLS * period)[:, None]


@lru_cache(maxsize=1)
def _model() -> tuple[Ints, Ints]:
    """Return the first cell of the class of every weighted sum, and the tables at the start [classes symbols]."""
    total = sum(_WEIGHTS)
    class_of = np.searchsorted(_EDGES, np.arange(total * _ESCAPE + 1), side="right")
    middle = [0, *((low + high - 1) // 2 for low, high in pairwise(_EDGES)), _EDGES[-1], 3]
    tables = np.empty((_CLASSES, _SYMBOLS), np.int64)
    for row, weighted in enumerate(middle):
        mean = 3 * total + 85 * weighted  # of the magnitude: 0.03 + 0.85 weighted / total, in parts of 100 total
        rest = _PRIOR << 20
        for symbol in range(_SYMBOLS):
            part = rest * 100 * total // (mean + 100 * total) if symbol < _ESCAPE else rest
            tables[row, symbol] = max(part >> 20, 1)
            rest -= part
    return class_of * _SYMBOLS, tables


def _scale(weighted: _IntArray, column: int) -> None:
    """Scale up the weighted sums of an early column, which has fewer elements before it."""
    weighted[:] = weighted * sum(_WEIGHTS) // sum(_WEIGHTS[:column])


def _classes(weighted: _IntArray, begin: int) -> Ints:
    """Return the first cell of the class of every weighted sum; rows of it are columns of the layout from begin on."""
    found = np.take(_model()[0], weighted, mode="clip")
    if begin == 0:
        found[:1] = (_CLASSES - 1) * _SYMBOLS
    return found


class Quantized(NamedTuple):
    """An update as whole numbers."""

    magnitude: _IntArray  # [d], in the order of the update
    low_bits: int  # how many bits of every magnitude are sent as they are
    cell: Ints  # table and symbol of every element: (period * classes + class) * symbols + symbol [columns rows]
    counts: Ints  # how often each cell came [periods classes symbols]

    @property
    def tables(self) -> Ints:
        """Return the frequency tables of every period [periods * classes, symbols]."""
        seen = np.cumsum(self.counts, axis=0) - self.counts
        return (_model()[1] + _UNIT * seen).reshape(-1, _SYMBOLS)

    @property
    def beyond(self) -> _IntArray:
        """Return by how much the escaped magnitudes exceed ESCAPE - 1, in the order of the update."""
        high = self.magnitude >> self.low_bits
        return np.asarray(high[high >= _ESCAPE] - (_ESCAPE - 1))

    @property
    def bits(self) -> float:
        """Return the length of the payload; the coder may add a few bits."""
        tables = self.tables
        each = np.log2(tables.sum(axis=1, keepdims=True)) - np.log2(tables)
        plain = np.count_nonzero(self.magnitude) + self.low_bits * len(self.magnitude)
        plain += int((4 + np.frexp(self.beyond)[1]).sum()) + sum(WIDTHS) + _CODER_BITS
        return float(self.counts.ravel() @ each.ravel()) + plain


def _quantize(size: Vector, index: int) -> Quantized:
    """Quantise the magnitudes size [d] of an update with the step of this index."""
    d = len(size)
    rows, columns, full = Layout.of(d)
    magnitude = (size * np.float32(1 / _step(index)) + np.float32(_ROUNDING)).astype(np.int32)
    low_bits = max(math.frexp(int(magnitude.sum(dtype=np.int64)) / d)[1] - 2, 0)
    flat = np.zeros(rows * columns, np.int16)
    np.minimum(magnitude >> low_bits if low_bits else magnitude, _ESCAPE, out=flat[:d], casting="unsafe")
    symbol = np.zeros((_BEFORE + columns, rows), np.int16)
    symbol[_BEFORE:] = flat.reshape(rows, columns).T
    weighted = _WEIGHTS[0] * symbol[_BEFORE - 1 : -1]
    for back, weight in enumerate(_WEIGHTS[1:], 2):
        weighted += weight * symbol[_BEFORE - back : -back]
    for column in range(1, min(_BEFORE, columns)):
        _scale(weighted[column], column)
    cell = _classes(weighted, 0)
    cell += _first_cell(columns)
    cell += symbol[_BEFORE:]
    counts = np.bincount(cell.ravel(), minlength=len(_RENEWED) * _CLASSES * _SYMBOLS)
    if full < columns:  # what lies beyond the end of the last row does not count
        counts -= np.bincount(cell[full:, -1], minlength=len(counts))
    return Quantized(magnitude, low_bits, cell, counts.reshape(-1, _CLASSES, _SYMBOLS))


def _step(index: int) -> float:
    return float(2.0 ** (index / _STEPS_PER_OCTAVE))


@lru_cache(maxsize=8)
def least_bits(num_parameters: int) -> float:
    """Return the length of the code of zeros."""
    return _quantize(np.zeros(num_parameters, np.float32), 0).bits


def _finest(size: Vector, budget_bits: float) -> tuple[int, Quantized] | None:
    """Return the finest step that fits (so that 99.8 % of the budget is used, if steps allow), or None if none does."""
    coarsest = math.floor(
        _STEPS_PER_OCTAVE * math.log2(float(size.max()) / (1 - _ROUNDING))
    )  # the last with a non-zero
    fits, misses, found = coarsest + 1, coarsest - OCTAVES * _STEPS_PER_OCTAVE - 1, None
    rate = budget_bits / len(size)
    index = round((math.log2(float(size.mean())) + 2.3 - rate) * _STEPS_PER_OCTAVE)  # a guess to start from
    slope = -1 / ((0.6 + 0.75 * rate) * _STEPS_PER_OCTAVE)  # of the log of the length; another guess
    last = None
    while fits - misses > 1:
        if not misses < index < fits:
            index = (misses + fits) // 2
        now = _quantize(size, index)
        bits = now.bits
        if bits > budget_bits:
            misses = index
        else:
            fits, found = index, (index, now)
            if bits >= 0.998 * budget_bits:
                break
        excess = math.log(bits / (0.999 * budget_bits))
        if last and last[0] != index:  # from the second try on, the secant
            slope = min((excess - last[1]) / (index - last[0]), slope / 4)
        last = (index, excess)
        index -= round(excess / slope)
    return found


def _coded(quantized: Quantized, negative: npt.NDArray[np.bool_]) -> int:
    """Return the code of an update as one number. What is written last is read first."""
    ans, magnitude, beyond = stream.stack.AnsCoder(), quantized.magnitude, quantized.beyond
    ans.encode_reverse(negative[magnitude > 0].astype(np.int32), _UNIFORM(2))
    if quantized.low_bits:
        low = magnitude & ((1 << quantized.low_bits) - 1)
        ans.encode_reverse(low.astype(np.int32), _UNIFORM(1 << quantized.low_bits))
    width = (np.frexp(beyond)[1] - 1).astype(np.int32)
    power = (1 << width).astype(np.int32)
    ans.encode_reverse((beyond - power).astype(np.int32)[width > 0], _UNIFORM(), power[width > 0])
    ans.encode_reverse(width, _UNIFORM(32))
    full, cell = Layout.of(len(magnitude)).full, quantized.cell
    cell = np.concatenate([cell[:full].ravel(), cell[full:, :-1].ravel()])
    table, symbol = np.divmod(np.arange(quantized.counts.size, dtype=np.int32), np.int32(_SYMBOLS))
    frequency = np.take(quantized.tables.astype(np.float32), np.take(table, cell), axis=0)
    ans.encode_reverse(np.take(symbol, cell), _CATEGORICAL, frequency)
    return int.from_bytes(ans.get_compressed().astype("<u4").tobytes(), "little")


def _decoded(number: int, num_parameters: int, low_bits: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the magnitudes [d] and which of them are negative [d]; the inverse of _coded."""
    d, layout = num_parameters, Layout.of(num_parameters)
    words = number.to_bytes((number.bit_length() + 31) // 32 * 4, "little")
    ans = stream.stack.AnsCoder(np.frombuffer(words, "<u4").astype(np.uint32))
    high = _read_symbols(ans, d, layout)
    width = ans.decode(_UNIFORM(32), int(np.count_nonzero(high == _ESCAPE)))
    if len(width) and width.max() > OCTAVES + 1:
        raise Refused(MAGNITUDE)
    power = np.left_shift(1, width.astype(np.int64))
    beyond = power.copy()
    beyond[width > 0] += ans.decode(_UNIFORM(), power[width > 0].astype(np.int32))
    high[high == _ESCAPE] += beyond - 1
    low = ans.decode(_UNIFORM(1 << low_bits), d) if low_bits else 0
    magnitude = high << low_bits | low
    negative = np.zeros(d, bool)
    negative[magnitude > 0] = ans.decode(_UNIFORM(2), int(np.count_nonzero(magnitude))) == 1
    if not ans.is_empty():
        raise Refused(GOES_ON)
    return magnitude, negative


def _read_symbols(ans: Any, num_parameters: int, layout: Layout) -> Ints:
    """Read the symbols column by column and return them in the order of the update [d]."""
    symbol = np.zeros((_BEFORE + layout.columns, layout.rows), np.float32)
    weighted = np.zeros((layout.columns, layout.rows), np.int64)
    weights = np.array(_WEIGHTS[::-1], np.float32)
    first_cell, tables = _model()
    for column in range(layout.columns):
        if column in _RENEWED:
            begin = max((each for each in _RENEWED if each < column), default=0)
            seen = _classes(weighted[begin:column], begin) + symbol[_BEFORE + begin : _BEFORE + column].astype(np.int64)
            counts = np.bincount(seen.ravel(), minlength=tables.size)
            if layout.full < column:
                counts -= np.bincount(seen[max(layout.full - begin, 0) :, -1], minlength=tables.size)
            tables = tables + _UNIT * counts.reshape(tables.shape)
            frequency = tables.astype(np.float32)
            by_sum = frequency.take(first_cell // _SYMBOLS, axis=0)  # the table that a weighted sum picks
        weighted[column] = weights @ symbol[column : column + _BEFORE]  # exact: small whole numbers
        if 0 < column < _BEFORE:
            _scale(weighted[column], column)
        filled = layout.rows if column < layout.full else layout.rows - 1
        table = by_sum.take(weighted[column, :filled], axis=0) if column else frequency[-1:].repeat(filled, axis=0)
        symbol[_BEFORE + column, :filled] = ans.decode(_CATEGORICAL, table)
    return symbol[_BEFORE:].T.ravel()[:num_parameters].astype(np.int64)


def _centres(size: Vector, magnitude: _IntArray, step: float) -> list[int]:
    """Return where within their cells the elements of magnitude 1, 2 and 3+ lie on average, in 64ths of the cell."""
    some = np.flatnonzero(magnitude)
    group = np.minimum(magnitude[some], 3)
    inside = size[some] / step - magnitude[some] + _ROUNDING
    # Summed in the order of the elements: a long dot product would be split over BLAS threads, which is slow on a busy
    # machine and rounds as their number has it.
    count, total = np.bincount(group, minlength=4)[1:], np.bincount(group, inside, minlength=4)[1:]
    return [min(max(int(t / c * 64), 0), 63) if c else 32 for c, t in zip(count, total, strict=True)]


def encode(update: Vector, whole_bits: int, rng: Rng) -> tuple[bytes, int]:
    """Return the payload of an update [d] and its bits, at most whole_bits; no bits if nothing fits."""
    d, octave = len(update), int(np.frexp(np.abs(update).max())[1])
    size = np.ldexp(np.abs(update), -octave)  # at most 1
    limit = float(whole_bits)
    while size.any():
        found = _finest(size, limit)
        if found is None:
            if least_bits(d) > limit:
                break
            size *= rng.random(d) < 0.5
            continue
        index, quantized = found
        centres = _centres(size, quantized.magnitude, _step(index))
        number = _coded(quantized, np.signbit(update))
        fields = [index + octave * _STEPS_PER_OCTAVE + _INDEX_OFFSET, quantized.low_bits, *centres, number]
        payload, bits = join_bits(fields, [*WIDTHS, number.bit_length()])
        if bits <= whole_bits:
            return payload, bits
        limit = min(limit, quantized.bits) - (bits - whole_bits)  # the coder added more than _CODER_BITS
    return b"", 0


def decode(payload: bytes, bits: int, num_parameters: int) -> Vector:
    """Return the update [d] of a payload of so many bits; raise Refused on anything malformed."""
    index, low_bits, *centres, number = split_bits(payload, [*WIDTHS, bits - sum(WIDTHS)])
    if low_bits > OCTAVES or number.bit_length() != bits - sum(WIDTHS):
        raise Refused(CODE_LENGTH)
    magnitude, negative = _decoded(number, num_parameters, low_bits)
    centre = (np.array([0, *centres]) + 0.5) / 64 - _ROUNDING
    centre[0] = 0
    size = (magnitude + centre[np.minimum(magnitude, 3)]) * _step(index - _INDEX_OFFSET)
    size = np.minimum(size, float(np.finfo(np.float32).max))
    return np.where(negative, -size, size).astype(np.float32)
