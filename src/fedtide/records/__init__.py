"""Run folders: complete at every moment, and resumable to the same bytes.

experiment.yaml   the resolved experiment
versions.json     what ran it, and the digests of the user's policy files
rounds.jsonl      one line per aggregation
checkpoint.npz    the server's state after some aggregation, with how far rounds.jsonl had come
model.npy         the final model, once the run is complete

Files are written aside, synced and renamed; rounds.jsonl is only appended to, synced before a checkpoint names its length,
and cut back to that length when a run is resumed.
"""

from fedtide.records.files import write_atomically
from fedtide.records.folder import InUseError, OtherPathError, RunFolder
from fedtide.records.provenance import UNKNOWN, policy_files, policy_folder, provenance
from fedtide.records.reading import Kept, is_complete, is_deployment, read_experiment, read_rounds, read_run
from fedtide.records.round import Ledger, RoundRecord

__all__ = [
    "UNKNOWN",
    "InUseError",
    "Kept",
    "Ledger",
    "OtherPathError",
    "RoundRecord",
    "RunFolder",
    "is_complete",
    "is_deployment",
    "policy_files",
    "policy_folder",
    "provenance",
    "read_experiment",
    "read_rounds",
    "read_run",
    "write_atomically",
]
