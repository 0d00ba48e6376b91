"""Run folders: complete at every moment, and resumable to the same bytes.

experiment.yaml   the resolved experiment
versions.json     what ran it, and the digests of the user's policy files
rounds.jsonl      one line per aggregation
checkpoint.npz    the server's state after some aggregation, with how far rounds.jsonl had come
model.npy         the final model, once the run is complete

Files are written aside, synced and renamed; rounds.jsonl is only appended to, synced before a checkpoint names its length,
and cut back to that length when a resumed run adds to it. The checkpoint vouches for the others: it holds the checksum of
the rounds up to it, versions.json to the letter, and digests of the data and of all else that the run is made of.
"""

from fedtide.core.files import machine_fault, sweep, write_atomically, write_new
from fedtide.records.costs import Costs, costs
from fedtide.records.folder import InUseError, OtherPathError, RunFolder, StatefulError, check_folder, in_use
from fedtide.records.identity import check_identity, data_digest, identity, trainer_name
from fedtide.records.made import Scores, round_record
from fedtide.records.provenance import (
    UNKNOWN,
    begun_with,
    made_on,
    names_files,
    policy_files,
    policy_folder,
    provenance,
)
from fedtide.records.reading import (
    Kept,
    is_complete,
    is_deployment,
    read_experiment,
    read_rounds,
    read_run,
    read_versions,
    refuse_pipes,
)
from fedtide.records.round import Ledger, RoundRecord

__all__ = [
    "UNKNOWN",
    "Costs",
    "InUseError",
    "Kept",
    "Ledger",
    "OtherPathError",
    "RoundRecord",
    "RunFolder",
    "Scores",
    "StatefulError",
    "begun_with",
    "check_folder",
    "check_identity",
    "costs",
    "data_digest",
    "identity",
    "in_use",
    "is_complete",
    "is_deployment",
    "machine_fault",
    "made_on",
    "names_files",
    "policy_files",
    "policy_folder",
    "provenance",
    "read_experiment",
    "read_rounds",
    "read_run",
    "read_versions",
    "refuse_pipes",
    "round_record",
    "sweep",
    "trainer_name",
    "write_atomically",
    "write_new",
]
