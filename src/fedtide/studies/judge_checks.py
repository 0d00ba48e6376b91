"""What a judge asks of a part before any run: does it depend on its arguments alone, and do its packets carry what they cost?"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from typing import Any, Final

import numpy as np

from fedtide import config, testing
from fedtide.codec.base import Packet
from fedtide.config import PART_KEYS, Experiment
from fedtide.engine.devices import encode_update
from fedtide.engine.making import experiment_part, make_policy
from fedtide.engine.system import build, make_trainer, parameter_count
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts import registry
from fedtide.parts.arguments import part_parameters
from fedtide.parts.checks import part_errors_reported, part_label
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.parts.user_code import own_names
from fedtide.studies.judge_input import JudgedPart

_FEWEST_BITS: Final = 1000  # that a codec is granted
_PACKETS: Final = 4  # of updates as large as the world's model
_UNKNOWN: Final = {
    "seed": "which decides all draws of a run",
    "outcome": "which no server knows before the uploads are in",
}
_ELSEWHERE: Final = (
    "import sys; from fedtide.studies.judge_checks import decoded_digest; print(decoded_digest(sys.stdin.read()))"
)


def check_judged_parts(part: JudgedPart, e: Experiment) -> None:
    """Raise if a part has hidden state or randomness of its own, or a codec sends more than its packets say."""
    e = config.experiment(e, config.nest(part.keys))
    _check_requests(part, e)
    for key in part.keys if part.files else ():
        kind = PART_KEYS[key]
        name = e.part(kind).name
        declared = registry.own_parameters(kind, registry.find_part(kind, name, builtin_parts(kind)))
        if any(each.about.key in KINDS[kind].fills for each in declared):
            continue  # it is made when a run begins, which checks it
        made = experiment_part(e, kind)
        problems = [each for each in testing.check(made, kind) if not each.startswith("raises")]  # a run tells why
        if not problems and kind == "codec":
            problems = _packet_problems(made, e)
        for problem in problems:
            raise TrainingError(
                f"{part_label(kind, made)} {problem}: a judged part draws from the rng it is given, and keeps state in its memory"
            )


def _check_requests(part: JudgedPart, e: Experiment) -> None:
    """Raise if a part asks for what nobody knows when it decides, unless it is allowed to."""
    own = [registry.find_part("part", name, {}) for name in own_names(part.keys)]
    asked = {declared.about.key for found in own for declared in part_parameters(found)}
    if KINDS["scheduler"].key in part.keys:
        with contextlib.suppress(FedtideError):  # a run tells why
            asked |= {*make_policy(e).needs}
    for what, why in _UNKNOWN.items():
        if what in asked and what not in part.allowed:
            raise FedtideError(
                f"{part.label} asks for {what}, {why}: do without it, or say --allow {what}, which the certificate will name"
            )


def _packet_problems(codec: Any, e: Experiment) -> list[str]:
    """Return what is wrong with a codec's packets: updates that only this process can decode. Raise on too many bits.

    Budgets, updates and seeds are drawn, so that nobody knows them beforehand.
    """
    system = build(e)
    count, rng = parameter_count(system, make_trainer(system)), np.random.default_rng()
    packets = []
    for budget in np.exp(rng.uniform(np.log(_FEWEST_BITS), np.log(32.0 * count), _PACKETS)):
        update = rng.standard_normal(count, np.float32) * np.float32(0.01)
        packet, _ = encode_update(codec, update, float(budget), int(rng.integers(2**31)), int(rng.integers(10)), 1)
        packets.append({**packet._asdict(), "data": packet.data.hex()})
    given = json.dumps({"experiment": config.dump(e), "packets": packets})
    here = decoded_digest(given)
    done = subprocess.run([sys.executable, "-c", _ELSEWHERE], input=given, capture_output=True, text=True, check=False)
    if done.stdout.split()[-1:] == [here]:
        return []
    why = f" ({done.stderr.splitlines()[-1]})" if done.returncode and done.stderr else ""
    return [f"decodes a packet otherwise in another process than the one that encoded it{why}"]


def decoded_digest(given: str) -> str:
    """Return the SHA-256 of what the codec of an experiment decodes packets to. given: both as JSON."""
    tree, found = json.loads(given), hashlib.sha256()
    e = config.experiment(tree["experiment"])
    codec = experiment_part(e, "codec")
    with part_errors_reported("codec", e.part("codec").name, codec):
        for fields in tree["packets"]:
            packet = Packet(**{**fields, "data": bytes.fromhex(fields["data"])})
            found.update(np.asarray(codec.decode(packet), np.float32).tobytes())
    return found.hexdigest()
