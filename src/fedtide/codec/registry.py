"""Our codecs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fedtide.codec.base import Codec
from fedtide.codec.sparse_quantized import Ideal, SparseQuantized

CODECS: Final[dict[str, Callable[..., Codec] | str]] = {
    "sparse_quantized": SparseQuantized,
    "dead_zone": "fedtide.codec.dead_zone:DeadZone",  # imported when it is used: its tables take as long as a plan's rest
    "ideal": Ideal,
    "top_k": "fedtide.codec.top_k:TopK",
    "qsgd": "fedtide.codec.qsgd:Qsgd",
    "sign": "fedtide.codec.sign:Sign",
    "error_feedback": "fedtide.codec.error_feedback:ErrorFeedback",
    "ef21": "fedtide.methods:Ef21",
}
