"""A certificate, verified: everything in it that follows from something else is derived anew, and some of its runs are repeated."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedtide import config
from fedtide.config.presets import scenario_names
from fedtide.core.files import is_own_file, read_bytes
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError
from fedtide.learning.trainer import trainer_backend
from fedtide.parts.user_code import own_names, search_user_folder
from fedtide.studies.certificate import (
    FORMAT,
    SIDES,
    CertifiedRun,
    certificate_digest,
    certified_runs,
    measured_or_none,
    tuned_settings,
    world_verdict,
)
from fedtide.studies.instruction_paths import PathPlan, offered_instruction_paths
from fedtide.studies.judge_checks import check_judged_parts
from fedtide.studies.judge_input import (
    TUNING_SEEDS,
    JudgedPart,
    JudgedWorld,
    check_settings,
    derived_seeds,
    judged_part,
    judged_world,
    reference_part,
    tuning_fidelity,
    tuning_grids,
)
from fedtide.studies.run import Outcome, run_study, study_backend
from fedtide.studies.spec import Run, Study, spec_run_name
from fedtide.studies.store import kept_results
from fedtide.types import documented

_TOLERANCE: Final = 0.02  # of a run's number on another instruction path, relative to numbers above 1


class CertificateError(FedtideError):
    """A certificate does not hold."""

    exit_code = 1


@documented
class Verification(NamedTuple):
    """What was verified of a certificate that holds."""

    digest: str
    num_runs: int  # that it tells of
    repeated: int  # of these
    exact: bool  # they gave the same bits; else the instruction path is another one, and they are close
    verdicts: dict[str, str]  # by world
    settings: dict[str, Any]  # part, against, metric, margin, level, salt, allowed
    note: str  # what the repeated runs do not confirm


def verify_certificate(
    path: Path | str,
    *,
    runs: int | None = 3,
    allow: Sequence[str] = (),
    workers: int = 1,
    on_done: Callable[[Outcome], None] | None = None,
) -> Verification:
    """Verify a certificate; raise CertificateError, which says in one line what does not hold.

    The digest and the SHA-256 of the files are compared, the seeds, grids, chosen settings and verdicts derived anew, and
    `runs` of the runs repeated (None: all), chosen so that nobody can know which. The judged files are looked for in the
    working folder, and beside the certificate. allow: parts of installed packages, as `package.module:name`, that worlds may
    use; what a certificate names is run here, and anybody can write one.
    """
    path = Path(path)
    if runs is not None and (isinstance(runs, bool) or not isinstance(runs, int) or runs < 0):
        raise FedtideError(f"runs={shown(runs)} must be a whole number of at least 0, or None for all")
    tree = _read(path)
    folder = path.parent.absolute()
    try:
        with search_user_folder(folder):
            sides = _same_files(tree)
            for record in tree["worlds"]:
                _refuse_installed_parts(record, allow)
                _check_world(tree, sides["part"], record)
            told = list(certified_runs(tree))
            some = told if runs is None or runs >= len(told) else secrets.SystemRandom().sample(told, runs)
            how = {**study_backend(workers), "on_done": on_done or (lambda _: None)}
            exact, values = _repeat(some, tree, folder, how)
            note = "" if exact else f"within {_TOLERANCE}, which cannot confirm smaller differences"
            if len(some) == len(told) and not exact:
                note = _same_verdicts(tree, iter(values))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CertificateError(f"{path} is damaged: {type(error).__name__} {error}; ask for another copy") from error
    verdicts = {record["world"]: record["verdict"]["verdict"] for record in tree["worlds"]}
    settings = {name: tree[name] for name in ("metric", "margin", "level", "salt", "allowed")}
    labels = {side: found.label for side, found in sides.items()}
    return Verification(tree["digest"], len(told), len(some), exact, verdicts, {**labels, **settings}, note)


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(read_bytes(path))
    except ValueError as error:
        raise CertificateError(
            f"{path} is not a certificate ({error}): name the file that `fedtide judge` wrote"
        ) from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise CertificateError(
            f"{path} is not a certificate of format {FORMAT}: name the file that `fedtide judge` wrote"
        )
    if certificate_digest(tree) != tree.get("digest"):
        raise CertificateError(f"{path} was changed: its digest is not that of its content; ask for another copy")
    try:
        check_settings(tree.get("level"), tree.get("seeds"), tree.get("salt"))
    except FedtideError as error:
        raise CertificateError(f"{path}: no judge writes {error}") from None
    return tree


def _same_files(tree: Mapping[str, Any]) -> dict[str, JudgedPart]:
    """Return both sides with the files that are here; raise if these are not those that were judged."""
    part = judged_part(tree["part"]["keys"], allow=tree["allowed"])
    sides = {"part": part, "against": reference_part(part, tree["against"]["keys"])}
    for side, found in sides.items():
        _refuse_other_files(tree[side]["files"], found.files)
    return sides


def _refuse_other_files(said: Mapping[str, str], here: Mapping[str, str]) -> None:
    for name in sorted({*said, *here}):
        if here.get(name) != said.get(name):
            raise CertificateError(
                f"{name} is not the file of the certificate: its SHA-256 is {str(here.get(name))[:12]}..., not "
                f"{str(said.get(name))[:12]}...; get that version, or judge this one"
            )


def _refuse_installed_parts(record: Mapping[str, Any], allow: Sequence[str]) -> None:
    for name in own_names(record["experiment"]):
        if not is_own_file(name) and name not in allow:
            raise CertificateError(
                f"{record['world']} would run {name}, which need not be a part: if you trust it, say --allow {name}"
            )


def _check_world(tree: Mapping[str, Any], part: JudgedPart, record: Mapping[str, Any]) -> None:
    """Raise if something in what is told of a world does not follow from the rest."""
    name = record["world"]
    world = JudgedWorld(name, config.experiment(record["experiment"]), record["changed"])
    _refuse_other_files(record["files"], world.files)
    known = [judged_world(name, whole) for whole in (False, True)] if name in scenario_names() else [world]
    if world.digest != record["digest"] or (world.digest, world.changed) not in [(w.digest, w.changed) for w in known]:
        raise CertificateError(
            f"{name}: the world is another one than the certificate names, or than this fedtide has by that name "
            f"(made by fedtide {tree['made_by']['fedtide']}, {tree['made_by']['commit'] or 'no commit'})"
        )
    check_judged_parts(part, world.experiment)
    tuning, judging, tune = record["tuning"], record["judging"], tree["tune"]
    for use, seeds, count in (("tuning", tuning["seeds"], TUNING_SEEDS), ("judging", judging["seeds"], tree["seeds"])):
        derived = derived_seeds(part, world.digest, tune, tree["salt"], use, count)
        if seeds != (derived if use == "tuning" else derived[: len(seeds)]):
            raise CertificateError(f"{name}: the {use} seeds do not follow from the file and the world; judge it again")
    for side, grid in zip(SIDES, tuning_grids(part, world, tune), strict=True):
        if [each["settings"] for each in tuning[side]] != grid or tuning["changed"] != tuning_fidelity(
            world.experiment
        ):
            raise CertificateError(f"{name}: {side} was not tuned as the rule says; judge it again")
        if any(len(tried["values"]) != TUNING_SEEDS for tried in tuning[side]):
            raise CertificateError(
                f"{name}: {side} does not have {TUNING_SEEDS} tuning runs per setting; judge it again"
            )
        if record["chosen"][side] != tuned_settings(tuning[side], tree["metric"]):
            raise CertificateError(
                f"{name}: the settings chosen for {side} do not follow from the tuning runs; judge it again"
            )
        if len(judging[side]) != len(judging["seeds"]):
            raise CertificateError(f"{name}: {side} does not have one number per judging seed; judge it again")
    found, said = world_verdict(record, tree["metric"], tree["level"], tree["margin"]), record["verdict"]
    if not all(_close(said[key], value, 1e-9) for key, value in found.items()):
        raise CertificateError(
            f"{name}: the verdict {said['verdict']!r} ({said['difference']}, {said['num_seeds']} seeds) does not follow from the "
            f"numbers, which say {found['verdict']!r} ({found['difference']}, {found['num_seeds']} seeds)"
        )


def _close(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    return bool(one == other)


def _repeat(
    some: Sequence[CertifiedRun], tree: Mapping[str, Any], folder: Path, how: Mapping[str, Any]
) -> tuple[bool, list[float | None]]:
    """Run some of the runs again; say whether on the same path, and so to the bit, with the numbers. Raise if one differs."""
    if not some:
        return True, []
    values = []
    runs = [Run(each.label, each.experiment, spec_run_name(each.experiment), folder) for each in some]
    offered = offered_instruction_paths(trainer_backend(some[0].experiment.learning.trainer))
    same = [path for path in tree["instruction_paths"] if path in offered]
    exact = len(tree["instruction_paths"]) == 1 and bool(same)
    plan = PathPlan(runs, {run.name: same[0] for run in runs} if exact else {}, [])
    with kept_results(None) as kept:
        for failed in run_study(Study("verify", tuple(runs)), kept, plan=plan, **how):
            raise CertificateError(f"{failed.run.label}: the run cannot be repeated: {failed.reason}")
        for run, said in zip(runs, some, strict=True):
            value = measured_or_none(kept.load(run.name), tree["metric"], said.label)
            if not (value == said.value if exact else _close(value, said.value, _TOLERANCE)):
                here = "the same instruction path" if exact else f"another instruction path, {offered[0]}"
                raise CertificateError(
                    f"{said.label}: the certificate says {said.value}, and a run gives {value} on {here}"
                )
            values.append(value)
    return exact, values


def _same_verdicts(tree: Mapping[str, Any], values: Iterator[float | None]) -> str:
    """Raise unless the numbers of all runs, as repeated, give the same verdicts; say where they choose other settings."""
    other = []
    for record in tree["worlds"]:
        judging = {}
        for side in SIDES:
            tuning = [{**tried, "values": list(islice(values, TUNING_SEEDS))} for tried in record["tuning"][side]]
            if tuned_settings(tuning, tree["metric"]) != record["chosen"][side]:
                other.append(f"{record['world']}, {side}")
            judging[side] = list(islice(values, len(record["judging"][side])))
        found = world_verdict({"judging": judging}, tree["metric"], tree["level"], tree["margin"])["verdict"]
        if found != record["verdict"]["verdict"]:
            raise CertificateError(
                f"{record['world']}: the repeated runs, on another instruction path, say {found!r}, not "
                f"{record['verdict']['verdict']!r}; judge it again here"
            )
    return f"tuning chooses other settings on this instruction path: {'; '.join(other)}" if other else ""
