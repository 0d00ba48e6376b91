"""Amiri and Gündüz, IEEE TSP 2020: what a device of D-DSGD sends. Goes inside error_feedback, which accumulates the error."""

from functools import cache

import numpy as np

from fedtide.codec.base import index_bits, join_bits, packet, rank_positions, split_bits, unrank_positions, unseal_whole


@cache
def planned(d, q):
    """Return the bits of places and mean; the paper counts 33 for the mean."""
    return [index_bits(d, q), 32] if q else [0, 0]


@cache
def most_kept(d, budget_bits):
    """Return the largest q that a budget carries."""
    fits, too_many = 0, d // 2 + 1
    while too_many - fits > 1:
        q = (fits + too_many) // 2
        fits, too_many = (q, too_many) if sum(planned(d, q)) <= budget_bits else (fits, q)
    return fits


class SparseBinary:
    """The places of the q largest or the q smallest elements, whichever are larger on average, and their mean."""

    code = 80

    def num_kept(self, num_parameters, budget_bits):
        return most_kept(num_parameters, budget_bits)

    def planned_bits(self, num_parameters, budget_bits):
        return sum(planned(num_parameters, self.num_kept(num_parameters, budget_bits)))

    def encode(self, update, budget_bits, rng):
        d, q = len(update), self.num_kept(len(update), budget_bits)
        if q == 0:
            return packet(self.code, d, 0, b"", 0)
        order = np.argsort(update, kind="stable")
        kept = order[-q:] if update[order[-q:]].mean() > -update[order[:q]].mean() else order[:q]
        mean = int(np.float32(update[kept].mean()).view(np.uint32))
        return packet(self.code, d, q, *join_bits([rank_positions(np.sort(kept), d), mean], planned(d, q)))

    def decode(self, packet):
        d = packet.num_parameters
        q, payload = unseal_whole(packet, self.code, 0, lambda q: sum(planned(d, q)))
        places, mean = split_bits(payload, planned(d, q))
        update = np.zeros(d, np.float32)
        if q:
            update[unrank_positions(places, q, d)] = np.uint32(mean).view(np.float32)
        return update
