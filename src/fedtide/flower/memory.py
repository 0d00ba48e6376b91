"""What the parts of a node remember, in Flower's context: as it was before the last use, and after it.

Only the server knows whether a use counted: an upload may be lost, a training may come too late. Its next order says which
was the last one that it has seen, and the node goes on from there.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtide.types import Memory


def recall(state: RecordDict, kind: str, device: int, seen: int | None) -> Memory | None:
    """Return what a part remembers of this device; None if that is nothing yet.

    seen: the last use (tick or version) that the server has seen; None: as it was before the last use.
    """
    note = state.get(f"{kind}-memory")
    if not isinstance(note, ConfigRecord) or note["device"] != device:
        return None
    side = "after" if seen is not None and note["use"] == seen else "before"
    record = state.get(f"{kind}-{side}")
    if not isinstance(record, ArrayRecord):
        return None
    return {name: np.array(each.numpy()) for name, each in record.items()}


def keep(state: RecordDict, kind: str, device: int, before: Memory | None, after: Memory | None, use: int) -> None:
    """Keep what a part remembered before this use (tick or version), and after it; nothing for a part without memory."""
    for side, memory in (("before", before), ("after", after)):
        name = f"{kind}-{side}"
        if memory is not None:
            state[name] = ArrayRecord({key: Array(np.ascontiguousarray(each)) for key, each in memory.items()})
        elif name in state:
            del state[name]
    if before is not None or after is not None:
        state[f"{kind}-memory"] = ConfigRecord({"device": device, "use": use})
