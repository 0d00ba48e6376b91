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

from fedtide.core.files import machine_fault, remove_temporary, write_atomically, write_new
from fedtide.runs.folder import InUseError, OtherPathError, RunFolder, StatefulError, check_folder, in_use
from fedtide.runs.identity import check_identity, data_digest, identity, trainer_name
from fedtide.runs.ledger import Costs, Scores, costs, round_record
from fedtide.runs.provenance import (
    UNKNOWN_PATH,
    begun_with,
    made_on,
    names_files,
    part_files_folder,
    policy_files,
    provenance,
)
from fedtide.runs.reading import (
    RunContents,
    is_complete,
    is_deployment,
    read_experiment,
    read_rounds,
    read_run,
    read_versions,
    refuse_pipes,
)
from fedtide.runs.record import Ledger, RoundRecord

__all__ = [
    "UNKNOWN_PATH",
    "Costs",
    "InUseError",
    "Ledger",
    "OtherPathError",
    "RoundRecord",
    "RunContents",
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
    "part_files_folder",
    "policy_files",
    "provenance",
    "read_experiment",
    "read_rounds",
    "read_run",
    "read_versions",
    "refuse_pipes",
    "remove_temporary",
    "round_record",
    "trainer_name",
    "write_atomically",
    "write_new",
]
