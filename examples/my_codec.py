"""A codec of your own: one sign bit per element and one common size, of as many random elements as the budget carries.

The elements are drawn from a seed that travels along (32 bits), so the index set costs next to nothing.

fedtide run codec.name=examples/my_codec.py:RandomSigns
"""

import struct

import numpy as np

from fedtide.codec.base import packet, unseal


class RandomSigns:
    """Payload: seed (32 bits), mean size (32 bits, float), one bit per kept element."""

    code = 200  # yours to choose, from 100 to 255

    def num_kept(self, num_parameters, budget_bits):
        """Return how many elements fit."""
        return int(min(max(budget_bits - 64, 0), num_parameters))

    def encode(self, update, budget_bits, rng):
        """Draw the elements, send their signs."""
        kept, seed = self.num_kept(len(update), budget_bits), int(rng.integers(2**32))
        if kept == 0:
            return packet(self.code, len(update), 0, b"", 0)
        values = update[self._places(seed, kept, len(update))]
        size = np.abs(values).mean(dtype=np.float64)
        payload = struct.pack("<If", seed, size) + np.packbits(values > 0).tobytes()
        return packet(self.code, len(update), kept, payload, 64 + kept)

    def decode(self, packet):
        """Draw the same elements, put the signs there."""
        header, payload = unseal(packet.data, self.code, packet.num_parameters)
        update = np.zeros(packet.num_parameters, np.float32)
        if header.num_kept:
            seed, size = struct.unpack_from("<If", payload)
            signs = np.unpackbits(np.frombuffer(payload[8:], np.uint8), count=header.num_kept)
            update[self._places(seed, header.num_kept, len(update))] = np.where(signs, size, -size)
        return update

    def _places(self, seed, kept, num_parameters):
        return np.random.default_rng(seed).permutation(num_parameters)[:kept]
