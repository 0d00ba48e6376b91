"""Run folders: complete at every moment, and resumable to the same bytes.

experiment.yaml   the resolved experiment
versions.json     what ran it, and the digests of the user's policy files
rounds.jsonl      one line per aggregation
checkpoint.npz    the server's state after some aggregation, and the manifest: what the other files were then
model.npy         the final model, once the run is complete

Files are written aside, synced and renamed; rounds.jsonl is only appended to, synced before a checkpoint names its length,
and cut back to that length when a resumed run adds to it. The manifest holds the digest of the experiment, the checksum of
the rounds up to the checkpoint, and all of versions.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.runs.folder import (
        InUseError,
        Run,
        RunFolder,
        RunHeader,
        is_complete,
        is_deployment_folder,
        read_rounds,
        read_run,
        read_run_header,
        run_folder_in_use,
    )
    from fedtide.runs.manifest import (
        UNKNOWN_PATH,
        data_digest,
        policy_files,
        provenance,
        run_identity,
        trainer_name,
    )
    from fedtide.runs.record import Costs, Ledger, RoundRecord, Scores, record_costs, round_record

__all__ = [
    "UNKNOWN_PATH",
    "Costs",
    "InUseError",
    "Ledger",
    "RoundRecord",
    "Run",
    "RunFolder",
    "RunHeader",
    "Scores",
    "data_digest",
    "is_complete",
    "is_deployment_folder",
    "policy_files",
    "provenance",
    "read_rounds",
    "read_run",
    "read_run_header",
    "record_costs",
    "round_record",
    "run_folder_in_use",
    "run_identity",
    "trainer_name",
]

__getattr__ = lazy_names(
    __name__,
    folder="InUseError Run RunFolder RunHeader is_complete is_deployment_folder read_rounds read_run read_run_header "
    "run_folder_in_use",
    manifest="UNKNOWN_PATH data_digest policy_files provenance run_identity trainer_name",
    record="Costs Ledger RoundRecord Scores record_costs round_record",
)
