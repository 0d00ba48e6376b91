"""What the parts of a node remember, in Flower's context: as it was before the last use, and after it.

Only the server knows whether a use counted: an upload may be lost, a training may come too late. Its next order says which
was the last one that it has seen, and the node goes on from there. A node that does not remember that one (it was restarted,
or another one played its device since) begins anew, and says so: the trace notes it for the replay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedtide.types import Memory


class Use(NamedTuple):
    """What a part remembers after a use."""

    number: int  # tick of an upload, version of a training; 0: it was not used yet
    memory: Memory | None  # None: nothing yet


def recall(state: RecordDict, kind: str, device: int, seen: int) -> Memory | None:
    """Return what a part remembers of this device after the last use (tick or version) that the server has seen.

    None if that is nothing yet, or was forgotten.
    """
    note = state.get(f"{kind}-memory")
    if not isinstance(note, ConfigRecord) or note["device"] != device:
        return None
    sides = [side for side in ("after", "before") if note[side] == seen]
    record = state.get(f"{kind}-{sides[0]}") if sides else None
    if not isinstance(record, ArrayRecord):
        return None
    return {name: np.array(each.numpy()) for name, each in record.items()}


def keep(state: RecordDict, kind: str, device: int, before: Use, after: Use) -> None:
    """Keep what a part remembered before a use and remembers after it; nothing of a part without memory."""
    for side, use in (("before", before), ("after", after)):
        name = f"{kind}-{side}"
        if use.memory is not None:
            state[name] = ArrayRecord({key: Array(np.array(each, order="C")) for key, each in use.memory.items()})
        elif name in state:
            del state[name]
    if before.memory is not None or after.memory is not None:
        state[f"{kind}-memory"] = ConfigRecord({"device": device, "before": before.number, "after": after.number})
    elif f"{kind}-memory" in state:
        del state[f"{kind}-memory"]
