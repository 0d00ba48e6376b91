"""The 5G NR uplink as a modem: MCS tables, transport blocks, block errors, link adaptation and HARQ.

Each round of a transport block over a link of constant SNR fails with 1 - (1 - p)^C: C code blocks, each with the error p of
its MCS and size over an AWGN channel (`nr_curves.csv`, fitted to the tables of Sionna SYS by tools/fit_nr.py). All functions
take and return arrays and have no state.
"""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import numpy as np

from fedtide.errors import FedtideError
from fedtide.parts.arguments import arg
from fedtide.types import Floats, Ints

# TS 38.214, tables 5.1.3.1-1 (64-QAM) and -2 (256-QAM), which a PUSCH without transform precoding uses (6.1.4.1): modulation
# order (bits of a coded symbol) and 1024 times the code rate of every MCS index.
_QAM16: Final = (378, 434, 490, 553, 616, 658)
_QAM64: Final = (466, 517, 567, 616, 666, 719, 772, 822, 873)
MCS_ORDERS: Final = {1: (2,) * 10 + (4,) * 7 + (6,) * 12, 2: (2,) * 5 + (4,) * 6 + (6,) * 9 + (8,) * 8}
MCS_RATES: Final = {
    1: (120, 157, 193, 251, 308, 379, 449, 526, 602, 679, 340, *_QAM16, 438, *_QAM64, 910, 948),
    2: (120, 193, 308, 449, 602, *_QAM16, *_QAM64, 682.5, 711, 754, 797, 841, 885, 916.5, 948),
}
PRB_SYMBOLS: Final = 12 * 14  # of a physical resource block in a slot: subcarriers x OFDM symbols
# TS 38.214, table 5.1.3.2-1: transport block sizes up to 3824 bit
_SMALL_SIZES: Final = np.array(
    [
        *range(24, 193, 8), *range(208, 385, 16), *range(408, 577, 24), *range(608, 769, 32), *range(808, 929, 40), 984,
        1032, 1064, *range(1128, 1353, 32), *range(1416, 1929, 64), *range(2024, 2281, 64), *range(2408, 2857, 64), 2976,
        3104, 3240, 3368, 3496, 3624, 3752, 3824,
    ]
)  # fmt: skip
_LARGEST_SMALL: Final = 3824  # bit
_NEVER: Final = 1e-15  # share of blocks that does not count


class TransportBlock(NamedTuple):
    """What a slot carries in one go."""

    size: int  # bits of information
    code_block_bits: int  # of each code block, with its CRC
    num_code_blocks: int


def transport_block(num_symbols: int, order: int, rate: float) -> TransportBlock:
    """Return the transport block of so many symbols (TS 38.214, 5.1.3.2) and its code blocks (TS 38.212, 5.2.2).

    order: bits of a coded symbol. rate: of the code, below 1.
    """
    bits = num_symbols * order * rate
    if bits <= _LARGEST_SMALL:
        step = 2 ** max(3, math.floor(math.log2(max(bits, 1))) - 6)
        wanted = max(24, step * math.floor(bits / step))
        size = int(_SMALL_SIZES[np.searchsorted(_SMALL_SIZES, wanted)])
        return TransportBlock(size, size + 16, 1)
    step = 2 ** (math.floor(math.log2(bits - 24)) - 5)
    wanted = max(3840, step * math.floor((bits - 24) / step + 0.5))
    largest = 3816 if rate <= 0.25 else 8424  # of a code block without its CRC: base graphs 2 and 1
    count = math.ceil((wanted + 24) / largest) if rate <= 0.25 or wanted > largest else 1
    size = 8 * count * math.ceil((wanted + 24) / (8 * count)) - 24
    return TransportBlock(size, (size + 24) // count + (24 if count > 1 else 0), count)


class Curve(NamedTuple):
    """Block error of one modulation and code rate: BLER = 1/(1 + exp((SNR in dB - middle)/width))."""

    middle_db: float  # SNR at which every other block is lost
    width_db: float


@functools.cache
def _curves() -> tuple[list[int], dict[tuple[int, float], list[float]]]:
    """Return code block sizes, and by order and rate: middles at these, width at 500 bit, and its exponent."""
    text = (resources.files(__package__) / "nr_curves.csv").read_text("ascii").splitlines()
    names, *rows = csv.reader(line for line in text if not line.startswith("#"))
    sizes = [int(name.rpartition("_")[2]) for name in names if name.startswith("snr_db_")]
    return sizes, {(int(row[0]), float(row[1])): [float(each) for each in row[2 : len(sizes) + 4]] for row in rows}


def block_error_curve(order: int, rate: float, code_block_bits: float) -> Curve:
    """Return the block error of code blocks. rate: 1024 times the code rate, of an MCS table.

    Sionna has blocks of 24 to 2000 bit: shorter and longer ones count as these. It has no codes below 1/5, where NR repeats coded
    bits: their energy per bit is that of the lowest rate there is.
    """
    sizes, curves = _curves()
    lowest = min(known for modulation, known in curves if modulation == order)
    *middles, width, exponent = curves[order, max(rate, lowest)]
    size = min(max(code_block_bits, sizes[0]), sizes[-1])
    middle = float(np.interp(math.log(size), np.log(sizes), middles))
    return Curve(middle + 10 * math.log10(min(rate / lowest, 1)), width * (size / 500) ** exponent)


class Ladder(NamedTuple):
    """The MCS that link adaptation chooses from, each from a higher SNR on than the one before [l]."""

    mcs: Ints  # index in its table
    threshold: Floats  # SNR from which its block error is at most the target; a number, not in dB
    capacity: Floats  # bit/symbol of a round, overhead counted
    size: Floats  # bits of a transport block
    num_code_blocks: Floats
    log_middle: Floats  # ln of the SNR at which every other code block is lost
    steepness: Floats  # p = 1/(1 + (SNR/middle)^steepness)


class Blocks(NamedTuple):
    """What becomes of transport blocks over some links [m]."""

    capacity: Floats  # bit/symbol of a round, without blocks that are sent anew; 0: nothing is sent
    size: Floats  # bits of a block
    rounds: Floats  # that a block takes on average
    first: Floats  # share of blocks that fail in their first round
    residual: Floats  # share that fail in all rounds


@dataclass(frozen=True)
class NewRadio:
    """5G NR PUSCH: C = (1 - overhead) TBS/N_RE (1 - p_K)/(1 + p_1 + ... + p_(K-1)) of the MCS chosen; 0 below the lowest.

    TBS: transport block of 38.214, 5.1.3.2. p_k: share of blocks not decoded after k of K rounds at k SNR (chase) or
    (1 + SNR)^k - 1 (ir; Caire and Tuninetti, IEEE Trans. Inf. Theory 2001); 1 - (1 - BLER)^(code blocks) of an MCS.
    """

    table: Annotated[Literal[1, 2], arg("MCS table of TS 38.214: 1 up to 64-QAM, 2 up to 256-QAM")] = 1
    bler_target: Annotated[float, arg("largest block error rate of first transmissions", gt=0, lt=1)] = 0.1
    adaptation: Annotated[
        Literal["inner", "outer"],
        arg(
            "inner: the highest MCS that meets the target at the estimated SNR; outer: ACKs keep the target at the true SNR"
        ),
    ] = "inner"
    harq: Annotated[
        Literal["none", "chase", "ir"],
        arg("after a failed round, send nothing (none), the same bits (chase) or new parity (ir)"),
    ] = "ir"
    rounds: Annotated[int, arg("K, largest number of rounds of a block, if harq is not none", ge=1, le=16)] = 4
    acknowledged: Annotated[
        bool, arg("resend blocks that fail in all rounds (RLC AM); false: their packet is lost")
    ] = True
    overhead: Annotated[
        float, arg("share of symbols for DMRS and control; TS 38.306 has 0.08 for FR1, 0.10 for FR2", ge=0, lt=1)
    ] = 0.08
    num_prbs: Annotated[int, arg("number of resource blocks of a transport block", ge=1, le=275)] = 25
    min_mcs: Annotated[int, arg("lowest MCS index in use", ge=0, le=28)] = 0
    max_mcs: Annotated[int | None, arg("highest MCS index in use; default: the table's last", ge=0, le=28)] = None
    error_by_size: ClassVar[bool] = True  # `error` is asked with the bits of packets

    def __post_init__(self) -> None:
        last = len(MCS_RATES[self.table]) - 1
        highest = last if self.max_mcs is None else self.max_mcs
        if not self.min_mcs <= highest <= last:
            raise FedtideError(
                f"modem=nr: min_mcs={self.min_mcs} and max_mcs={highest}: table {self.table} has MCS 0 to {last}; choose "
                f"0 <= min_mcs <= max_mcs <= {last}"
            )
        if math.floor(PRB_SYMBOLS * (1 - self.overhead)) < 1:
            raise FedtideError(f"modem=nr: overhead={self.overhead:g} leaves no symbol for data; choose at most 0.99")

    def __call__(self, snr: Floats) -> Floats:
        """Return what links carry whose SNR is known [m]."""
        return self.achieved(snr, snr)

    def achieved(self, snr: Floats, estimated_snr: Floats) -> Floats:
        """Return what links carry that are adapted to an estimate of their SNR [m]."""
        found = self.blocks(snr, estimated_snr)
        return np.asarray(found.capacity / found.rounds)

    def error(self, snr: Floats, estimated_snr: Floats | None = None, bits: Floats | None = None) -> Floats:
        """Return how likely packets of so many bits are lost, by default of one block [m]: 0 if blocks are acknowledged."""
        if self.acknowledged:
            return np.zeros(len(snr))
        found = self.blocks(snr, snr if estimated_snr is None else estimated_snr)
        with np.errstate(divide="ignore", invalid="ignore"):
            count = np.ones(len(snr)) if bits is None else np.ceil(np.where(found.size > 0, bits / found.size, 1.0))
            return np.where(count > 0, -np.expm1(count * np.log1p(-found.residual)), 0.0)

    def blocks(self, snr: Floats, estimated_snr: Floats) -> Blocks:
        """Return what becomes of transport blocks whose MCS is chosen for an estimate of their SNR [m]."""
        ladder, outer = mcs_ladder(self), self.adaptation == "outer"
        # counted, which is several times as fast as a search where numbers come in any order
        reached = (snr if outer else estimated_snr) >= ladder.threshold[:, None]
        chosen = reached.sum(axis=0, dtype=np.int8) - 1
        at = np.maximum(chosen, 0)
        low = self._sent(ladder, at, snr)
        if outer:  # ACKs and NACKs keep it between this MCS and the next one, which fails too often
            top = at == len(ladder.mcs) - 1
            high = self._sent(ladder, np.where(top, at, at + 1), snr)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(top, 0.0, np.clip((self.bler_target - low.first) / (high.first - low.first), 0, 1))
            low = Blocks(*((1 - share) * one + share * other for one, other in zip(low, high, strict=True)))
        return low._replace(capacity=np.where(chosen < 0, 0.0, low.capacity), size=np.where(chosen < 0, 0.0, low.size))

    def _sent(self, ladder: Ladder, at: Ints, snr: Floats) -> Blocks:
        """Return what becomes of blocks of these MCS [m], numbers of the ladder."""
        first = failed = _block_errors(ladder, at, self._heard(snr, 1))
        rounds = np.ones(len(snr))
        for k in range(2, 1 if self.harq == "none" else self.rounds + 1):
            rounds, before = rounds + failed, failed
            again = np.flatnonzero(before > _NEVER)
            failed = np.zeros(len(snr))
            failed[again] = _block_errors(ladder, at[again], self._heard(snr[again], k))
        capacity = ladder.capacity[at]
        capacity = capacity * (1 - failed) if self.acknowledged else capacity
        return Blocks(capacity, ladder.size[at], rounds, first, failed)

    def _heard(self, snr: Floats, k: int) -> Floats:
        """Return ln of the SNR that a receiver has after k rounds [m]."""
        with np.errstate(divide="ignore", over="ignore"):
            if self.harq == "ir" and k > 1:  # mutual information adds up
                return np.asarray(np.log(np.expm1(k * np.log1p(snr))))
            return np.asarray(np.log(snr) + math.log(k))


def _block_errors(ladder: Ladder, at: Ints, log_snr: Floats) -> Floats:
    """Return the share of transport blocks of these MCS that fail [m], numbers of the ladder."""
    with np.errstate(over="ignore"):
        odds = np.exp(ladder.steepness[at] * (ladder.log_middle[at] - log_snr))
        return np.asarray(-np.expm1(-ladder.num_code_blocks[at] * np.log1p(odds)))


@functools.lru_cache(maxsize=64)
def mcs_ladder(modem: NewRadio) -> Ladder:
    """Return what link adaptation chooses from: MCS that no higher one beats."""
    data_symbols = math.floor(PRB_SYMBOLS * (1 - modem.overhead)) * modem.num_prbs
    table = list(zip(MCS_ORDERS[modem.table], MCS_RATES[modem.table], strict=True))
    rows: list[tuple[float, ...]] = []
    for mcs in range(len(table) - 1 if modem.max_mcs is None else modem.max_mcs, modem.min_mcs - 1, -1):
        order, rate = table[mcs]
        block = transport_block(data_symbols, order, rate / 1024)
        curve = block_error_curve(order, rate, block.code_block_bits)
        each = -math.expm1(math.log1p(-modem.bler_target) / block.num_code_blocks)  # error of one code block
        threshold = 10 ** ((curve.middle_db + curve.width_db * math.log(1 / each - 1)) / 10)
        if not rows or threshold < rows[-1][1]:
            scale = 10 / math.log(10)  # dB of a factor e
            capacity = block.size / (PRB_SYMBOLS * modem.num_prbs)
            shape = (block.num_code_blocks, curve.middle_db / scale, scale / curve.width_db)
            rows.append((mcs, threshold, capacity, block.size, *shape))
    index, *columns = zip(*reversed(rows), strict=True)
    return Ladder(np.array(index, np.int64), *(np.array(column, np.float64) for column in columns))
