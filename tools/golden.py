"""Hashes of many small runs, compared with tools/golden.json: shows whether a change keeps every bit. About 15 seconds.

python tools/golden.py [NAME ...]    runs these cases (default: all), lists what differs, exits with 1 if anything does
python tools/golden.py --write       stores the hashes anew
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("FEDTIDE_ISA", "avx2")
STORED = Path(__file__).with_suffix(".json")

BASE = (
    "data.name=synthetic data.num_train=1200 data.num_test=200 data.num_shards=60 fleet.num_devices=12 timeline.horizon=4 "
    "policy.limit=4 learning.model=softmax learning.batch_size=20 radio.num_symbols=30000"
)
EACH = {
    "codec.name": "sparse_quantized dead_zone top_k qsgd sign error_feedback ideal",
    "policy.scheduler": "proposed random best_channel age_based round_robin proportional_fair threshold soft_rate_label whittle_age "
    "drift_plus_penalty max_loss oort best_channel_best_norm best_of_random_subsets",
    "data.partition": "iid shards dirichlet slow_labels virtual_iid virtual_labels virtual_dirichlet",
    "fleet.duration": "shifted_exponential log_normal shifted_exponential_by_size",
    "fleet.availability": "markov battery daily",
    "radio.channel": "rician nakagami jakes rayleigh_by_device",
    "radio.coverage": "log_distance uma umi hex_grid",
    "radio.csi": "noisy pilots packet_error",
    "radio.allocation": "equal_symbols max_sum_rate alpha_fair latency_minimal resource_blocks",
}
AGGREGATORS = (
    "average_models average_deltas mix mix_hinge buffered_mean server_momentum server_adam server_yogi fadas ca2fl mifa fedat "
    "asyncfeded median trimmed_mean krum clipped_mean"
)
SINGLE: dict[str, str] = {
    "codec-ef21": "codec.name=ef21|policy.aggregator=ef21",
    "codec-ef-qsgd": "codec.name=error_feedback|codec.name={inner: qsgd}",
    "vote": "codec.name=sign|codec.name={scaled: false}|policy.aggregator=majority_vote",
    "scaffold": "learning.trainer=scaffold|policy.aggregator=scaffold|codec.name=dead_zone",
    "ota": "radio.access=over_the_air|codec.name=ideal",
    "momentum": "learning.trainer={momentum: 0.5}",
    "partition-speed_sizes": "data.partition=speed_sizes|data.size_spread=0.5",
    "duration-cycles": "fleet.duration=cycles|fleet.cycles_per_sample=1000000",
    "sizes": "data.partition=iid|data.size_spread=0.7",
    "downlink-broadcast": "radio.downlink=broadcast|radio.symbol_rate=1000000",
    "downlink-unicast": "radio.downlink=unicast|radio.symbol_rate=1000000",
    "energy": "fleet.joules_per_sample=0.001|radio.joules_per_symbol=0.0001|radio.symbol_rate=1000000",
    "cmos": "fleet.energy=cmos",
    "energy-measured": "fleet.energy={name: measured_5g, network: mmwave, unit_seconds: 60}|radio.symbol_rate=1000000",
    "channel-drive_twin": "radio.channel={name: drive_twin, unit_seconds: 60}",
    "channel-drive_twin-static": "radio.channel={name: drive_twin, unit_seconds: 60, state: static, outages: false}",
    "upload-time": "timeline.upload_time=0.05",
    "released": "profile=released-code",
    "small_cnn": "learning.model=small_cnn|timeline.horizon=1",
    "steps": "learning.local_steps=5|learning.local_epochs=null|learning.schedule=cosine",
    "training-loss": "learning.training_loss=true",
    "validation": "data.validation=0.2",
    "react-keep": "fleet.unpicked=keep",
    "react-wait": "fleet.unpicked=keep|timeline.uploads=wait|radio.symbol_rate=100000",
    "react-later": "timeline.uploads=later|radio.symbol_rate=100000",
    "react-concurrency": "fleet.concurrency=6|timeline.name=buffered|timeline.buffer_size=3",
    "react-deadline": "timeline.name=deadline|fleet.interrupt=true",
    "react-all": "timeline.name=all",
    "react-harq": "radio.csi=pilots|radio.retransmission=harq",
    "react-battery": "fleet.battery_joules=10|fleet.harvest_joules=4|fleet.joules_per_sample=0.01",
    "react-absent": "fleet.availability=markov|fleet.absent=fetch",
    "staleness": "timeline.name=sampled_staleness|policy.limit=1",
    "work": "learning.work=uniform_epochs|policy.aggregator=fednova",
    "edges": "policy.aggregator={name: hierarchical, edges: 3, every: 4}",
    "edges-cells": "radio.coverage={name: hex_grid, path_loss: {name: uma, speed: 100}}|timeline.uploads=later|"
    "radio.symbol_rate=100000|fleet.num_devices=30|policy.limit=10|"
    "policy.aggregator={name: hierarchical, every: 5, inner: server_momentum}",
    "gilbert": "radio.channel=gilbert_elliott",
    "waterfall": "radio.modem=waterfall",
    "cells": "radio.coverage={name: hex_grid, sectors: 3, rings: 0, p0_dbm: -80, alpha: 0.8, path_loss: {name: uma, speed: 30}}"
    "|radio.csi=noisy|radio.joules_per_symbol=0.0001",
    "react-cells": "radio.coverage={name: sites, sites: [[0, 0], [500, 0]], margin_db: 2}|timeline.uploads=later"
    "|radio.symbol_rate=100000",
    "gap": "radio.modem=gap",
    "gap-outage": "radio.modem={name: gap, min_snr_db: 5}|radio.snr_db=8",
    "nr": "radio.modem=nr|policy.scheduler=random|radio.snr_db=6",
    "nr-outer": "radio.modem={name: nr, table: 2, adaptation: outer, harq: chase}|radio.csi=noisy",
    "nr-unacknowledged": "radio.modem={name: nr, harq: none, num_prbs: 2, acknowledged: false}|radio.num_symbols=3000",
    "leo": "radio.coverage={name: leo, unit_seconds: 3600}|fleet.availability=in_sight|timeline.horizon=8",
    "leo-buffered": "radio.coverage={name: leo, unit_seconds: 3600, hold: true, random_start: true}|fleet.availability=in_sight"
    "|timeline.name=buffered|timeline.buffer_size=3|timeline.horizon=8",
    "react-leo-battery": "radio.coverage={name: leo, unit_seconds: 3600}|fleet.availability=in_sight|fleet.absent=fetch"
    "|fleet.battery_joules=10|fleet.harvest_joules=4|fleet.joules_per_sample=0.01|radio.downlink=unicast|timeline.horizon=8",
    "N100": "fleet.num_devices=100|policy.limit=30|data.num_train=2000|data.num_shards=200|timeline.horizon=1",
    "N3000": "fleet.num_devices=3000|policy.limit=30|data.partition=virtual_labels|timeline.horizon=1",
    "N20000": "fleet.num_devices=20000|policy.limit=30|data.partition=virtual_labels|timeline.horizon=1",
}
UPLOADS = "index time device age capacity symbols budget_bits sent_bits num_kept weight"
SCORES = "index time test_accuracy test_loss train_loss label_variance"
SPENT = "symbols bits samples_used samples_trained"


def cases() -> dict[str, list[str]]:
    """Return the arguments of every run by its name."""
    found = {name: [*BASE.split(), *text.split("|")] for name, text in SINGLE.items()}
    for framework in ("periodic", "fedavg", "fedasync", "fedbuff"):
        found[f"framework-{framework}"] = [*BASE.split(), f"framework={framework}"]
        found[f"framework-{framework}-cnn"] = [
            *found[f"framework-{framework}"], "learning.model=paper_cnn", "timeline.horizon=1",
        ]  # fmt: skip
    for key, names in EACH.items():
        kind = key.split(".")[0] if key == "codec.name" else key.split(".")[1]
        found |= {f"{kind}-{name}": [*BASE.split(), f"{key}={name}"] for name in names.split()}
    for name in AGGREGATORS.split():
        found[f"aggregator-{name}"] = [*BASE.split(), f"policy.aggregator={name}"]
        found[f"aggregator-{name}-dense"] = [
            *found[f"aggregator-{name}"],
            "codec.name=dead_zone",
            "policy.age_base=0.846",
        ]
    small = ["data.name=synthetic", "data.num_train=4000", "data.num_test=200", "learning.model=softmax"]
    for name in (
        "paper",
        "macro_cell",
        "walking",
        "iot_battery",
        "phones",
        "cross_silo",
        "leo",
        "drives",
        "seven_cells",
    ):
        found[f"scenario-{name}"] = [f"scenario={name}", *small]
    return found


def hashed(arguments: list[str], shorten: bool) -> dict[str, Any]:
    """Run an experiment; return hashes of its model, uploads, scores and spending."""
    import numpy as np

    import fedtide

    experiment = fedtide.experiment(*arguments)
    if shorten:
        experiment = fedtide.experiment(*arguments, f"timeline.horizon={experiment.timeline.horizon / 12}")
    result = fedtide.simulate(experiment)

    def hash_of(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()[:20]

    def columns(frame: Any, names: str) -> bytes:
        lists = [(name, np.asarray(frame[name], float).tolist()) for name in names.split()]
        return repr([(name, [None if each != each else each for each in values]) for name, values in lists]).encode()

    return {
        "model": hash_of(np.asarray(result.model).tobytes()),
        "uploads": hash_of(columns(result.uploads(), UPLOADS)),
        "scores": hash_of(columns(result.frame(), SCORES)),
        "spent": hash_of(columns(result.frame(), SPENT)),
        "n": len(result.rounds),
    }


def main(arguments: list[str]) -> int:
    """Run the cases; compare them with what is stored, or store them."""
    write, wanted = "--write" in arguments, [each for each in arguments if each != "--write"]
    found: dict[str, Any] = {}
    stored = {} if write else json.loads(STORED.read_text())
    for name, words in cases().items():
        if wanted and name not in wanted:
            continue
        try:
            found[name] = hashed(words, name.startswith("scenario"))
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        if not write and found[name] != stored.get(name):
            print(f"{name} differs: {found[name]} was {stored.get(name)}", flush=True)
    if write:
        STORED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return 0
    differ = [name for name in found if found[name] != stored.get(name)]
    print(f"{len(found)} runs, {len(differ)} differ")
    return bool(differ)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
