"""Our codecs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fedtide.codec.base import Codec
from fedtide.codec.dead_zone import DeadZone
from fedtide.codec.sparse_quantized import Ideal, SparseQuantized

CODECS: Final[dict[str, Callable[..., Codec]]] = {
    "sparse_quantized": SparseQuantized,
    "dead_zone": DeadZone,
    "ideal": Ideal,
}
