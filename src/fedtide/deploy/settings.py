"""What a deployment adds to an experiment: how long to wait, whom to believe, where the data is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedtide import __version__, config
from fedtide.config import Experiment
from fedtide.config.values import Count, Name, Positive, Share, explain_validation
from fedtide.config.workload import timeline_reacts
from fedtide.core.files import is_own_file
from fedtide.core.yaml12 import plain_yaml_tree, yaml_in_line
from fedtide.engine.making import refuse_wrong_arguments
from fedtide.errors import FedtideError
from fedtide.learning.trainer import trainer_backend
from fedtide.parts import registry
from fedtide.parts.kinds import builtin_parts

_TREE = TypeAdapter(dict[str, Any])
OWN_TRAINING = "app"  # the loader of a Flower app that trains with its own code (strategy.py)
_SHORTEST_PERIOD = 10.0  # seconds: stock Flower takes two to five for a reply, and a period has two


class Deployment(BaseModel):
    """Everything about a federation that is not part of the experiment. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    capacity: Literal["simulated", "measured", "reported"] = Field(
        "simulated", description="seeded fading, the rate seen on recent uploads, or what the node says of itself"
    )
    max_capacity: Positive = Field(40.0, description="bit/symbol; a node that reports more is not believed")
    deadline: Share = Field(0.6, description="share of a period that uploads may take")
    longest_wait: Positive | None = Field(
        None,
        description="after which a server that waits for devices acts with those that are ready; none: the horizon",
    )
    poll: Positive = Field(1.0, description="between two looks at the mailbox")
    loader: Name = Field("partition", description="partition (the experiment's data), or your own file.py:name")
    min_nodes: Count = Field(1, description="wait for so many nodes before the first period")
    start_timeout: Positive = Field(300.0, description="how long to wait for them")
    train_timeout: Positive = Field(3600.0, description="after which a training order is given up")
    retry_limit: Count = Field(8, description="the longest pause, in periods, before a failing node is tried again")
    max_samples: Count = Field(1_000_000, description="a node that claims more is not believed")
    max_samples_ratio: Positive | None = Field(
        3.0, description="a node's sample count is cut to so many times the median of all; none: as it says"
    )
    max_update_norm: Positive = Field(1000.0, description="2-norm beyond which an update is refused")
    ban_after: Count | None = Field(10, description="refused replies in a row after which a node is ignored")
    epsilon: Positive | None = Field(None, description="privacy of the label histograms; none: exact counts")
    label_clip: Count = Field(100_000, description="largest count of one label that a private histogram shows")

    @model_validator(mode="after")
    def _patient(self) -> Deployment:
        if self.poll > self.start_timeout:
            raise ValueError(f"poll={self.poll} exceeds start_timeout={self.start_timeout}; look more often")
        return self


class Terms(NamedTuple):
    """What server and nodes agree on before the first message."""

    experiment: Experiment
    deployment: Deployment


def deployment(tree: Mapping[str, Any]) -> Deployment:
    """Make a Deployment from plain data; one clear line if it cannot be."""
    try:
        return Deployment.model_validate(plain_yaml_tree(tree))
    except ValidationError as error:
        raise FedtideError(
            "deployment settings: " + explain_validation(error, Deployment.model_fields, "setting")
        ) from None


def deployment_doubts(terms: Terms) -> list[str]:
    """Say what makes a federation unlikely to work on real devices."""
    found, period, loader = [], terms.experiment.timeline.period, terms.deployment.loader
    if period < _SHORTEST_PERIOD:
        found.append(
            f"timeline.period={period:g} is in seconds on devices, and below {_SHORTEST_PERIOD:g} uploads will miss their "
            "deadline: Flower takes two to five seconds for a reply. Lengthen timeline.period, and with it timeline.horizon "
            "and fleet.max_duration"
        )
    files = config.own_file_keys(terms.experiment) | config.experiment_argument_files(terms.experiment)
    files |= {"loader": loader} if is_own_file(loader) else {}
    for key, name in files.items():
        if not os.path.isabs(name.rpartition(":")[0] if is_own_file(name) else name):
            found.append(
                f"{key}={name}: server and nodes look for the file in the folder in which Flower was started there; "
                "give its path in full, the same on every host"
            )
    return found + _exact_reports(terms)


def _exact_reports(terms: Terms) -> list[str]:
    """Say what a node reports exactly although its updates are private."""
    if terms.experiment.part("codec").name != "private":
        return []
    scheduler = terms.experiment.part("scheduler")
    needs = getattr(registry.find_part("scheduler", scheduler.name, builtin_parts("scheduler")), "needs", ())
    asked = [name for key, name in (("loss", "losses"), ("update_sq_norm", "norms of updates")) if key in needs]
    found = (
        []
        if not asked
        else [f"policy.scheduler={scheduler} asks nodes for exact {' and '.join(asked)}: choose another"]
    )
    if terms.deployment.epsilon is None:
        found.append("nodes tell their exact label counts: say `-s epsilon=1` or less")
    found.append("a node draws new noise in every run unless its `--node-config` has a privacy-key: give each its own")
    return [f"codec.name=private covers updates only, and {each}" for each in found]


RECOMMENDED_AGGREGATOR = "reputation"  # docs/deploy.md, nodes that lie
_ROBUST = (RECOMMENDED_AGGREGATOR, "krum", "median", "trimmed_mean", "basgd", "kardam")
_DENSE_ONLY, _SPARSE_CODECS = ("median", "trimmed_mean"), ("sparse_quantized", "top_k")


def trust_doubts(experiment: Experiment) -> list[str]:
    """Say how nodes that lie could spoil the model; nothing is said of a user's own aggregator."""
    part = experiment.part("aggregator")
    name, args = part.name, part.args
    while args.get("inner"):  # whose step counts
        inner = args["inner"]
        name, args = (inner, args.get("inner_args") or {}) if isinstance(inner, str) else (inner["name"], inner)
    if name not in builtin_parts("aggregator"):
        return []
    codec = experiment.part("codec").name
    remedy = f"say policy.aggregator={RECOMMENDED_AGGREGATOR} (docs/deploy.md, nodes that lie)"
    if name not in _ROBUST:
        return [
            f"policy.aggregator={name} is not robust: a single node that lies can spoil the model. Unless you trust every node, "
            f"{remedy}"
        ]
    if name in _DENSE_ONLY and codec in _SPARSE_CODECS:
        return [
            f"policy.aggregator={name} with codec.name={codec}: most elements of an update arrive as 0, and so does their middle, so "
            f"that the model hardly learns. Say codec.name=ideal, or {remedy}"
        ]
    if name == "krum" and args.get("kept", 1) == 1:
        return [
            "policy.aggregator=krum goes along a single update, with the noise of its codec and the labels of one device: say "
            f"policy.aggregator.kept=null, which averages all but `attackers`, or {remedy}"
        ]
    return []


# What simulated devices may do and nodes cannot be told to: the key, its value on nodes, and why no other.
_ONLY_SIMULATED: tuple[tuple[str, Any, str], ...] = (
    ("timeline.upload_time", 0.0, "real uploads take the time they take"),
    ("timeline.uploads", "fixed", "real uploads take the time they take, and the server waits for them until its deadline"),
    ("radio.retransmission", "drop", "packets travel over TCP, which sends again what it loses"),
    ("fleet.interrupt", False, "a node that trains reads no message before it is done"),
    ("fleet.absent", "compute", "what a node does while it is away is its own affair"),
    ("fleet.battery_joules", None, "the server does not know what a node's battery holds"),
    ("learning.work", "equal", "nodes are told a model and a learning rate, and work as learning.local_epochs, local_steps and "
     "batch_size say"),
    ("learning.seed_by", "version", "nodes are told a model version and not how many trainings they have done"),
)  # fmt: skip


def acts_as_it_sees_fit(experiment: Experiment) -> bool:
    """Say whether the server's times follow what devices do. Else it acts at every period, and all who are ready go on."""
    return experiment.part("timeline").name != "periodic" or timeline_reacts(experiment)


def check_deployment_timeline(experiment: Experiment) -> None:
    """Raise unless nodes can do what the experiment says, at times that a server can keep."""
    for key, only, why in _ONLY_SIMULATED:
        value = config.key_value(experiment, key)
        if getattr(value, "name", value) != only:
            given = yaml_in_line(getattr(value, "entry", value))
            remedy = f"say {key}={yaml_in_line(only)}, or simulate it with `fedtide run`"
            raise FedtideError(f"{key}={given}: {why}; {remedy}")
    if experiment.policy.aggregator.name == "hierarchical":
        raise FedtideError(
            "policy.aggregator=hierarchical has edge servers, and nodes know one server: name its inner aggregator in its place, or "
            "simulate it with `fedtide run`"
        )
    aggregator = experiment.policy.aggregator.name
    if "server_update" in getattr(
        registry.find_part("aggregator", aggregator, builtin_parts("aggregator")), "needs", ()
    ):
        raise FedtideError(
            f"policy.aggregator={experiment.policy.aggregator} trains on samples of the server's own, and a coordinator does not "
            "train: choose another aggregator, or simulate it with `fedtide run`"
        )
    scheduler = experiment.part("scheduler")
    if "outcome" in getattr(registry.find_part("scheduler", scheduler.name, builtin_parts("scheduler")), "needs", ()):
        raise FedtideError(
            f"policy.scheduler={scheduler} asks what its choices would lead to, which no server knows before the uploads are in; "
            "choose another scheduler, or simulate it with `fedtide run`"
        )
    part = experiment.part("timeline")
    name = f"timeline.name={yaml_in_line(part.entry)}" + (
        f" of framework={experiment.framework}" if experiment.framework else ""
    )
    found = registry.find_part("timeline", part.name, builtin_parts("timeline"))
    if not callable(getattr(found, "when", None)):
        raise FedtideError(
            f"{name} plans who is ready when, and nodes are ready when they are: choose timeline.name periodic, buffered, "
            "per_arrival, all or deadline, give your own a method when(situation), or simulate it with `fedtide run`"
        )
    if "period" in part.args or part.args.get("upload_time") or not part.args.get("waits", True):
        raise FedtideError(
            f"{name}: a deployment goes by timeline.period, uploads take the time they take, and whoever has finished waits for "
            "the new model; leave period and upload_time out and say timeline.name.waits=true, or simulate it with `fedtide run`"
        )


def check_terms(terms: Terms) -> None:
    """Raise if this federation can never run, before anything is written or started."""
    experiment, settings = terms
    check_deployment_timeline(experiment)
    refuse_wrong_arguments(experiment, ("scheduler", "weighting", "aggregator", "codec"))
    if experiment.learning.trainer.name == "dask":
        raise FedtideError(
            "learning.trainer=dask shares out simulated devices over a cluster, and nodes train themselves; say "
            f"learning.trainer={trainer_backend(experiment.learning.trainer)}, which gives the same bits"
        )
    if experiment.learning.trainer.name == "attacked":
        raise FedtideError(
            "learning.trainer=attacked makes simulated devices lie, and real ones should not; say "
            f"learning.trainer={trainer_backend(experiment.learning.trainer)}, or simulate it with `fedtide run`"
        )
    if experiment.radio.access.name != "orthogonal" and settings.capacity != "simulated":
        raise FedtideError(
            f"radio.access={experiment.radio.access} with capacity={settings.capacity}: nodes send packets, which do not add "
            "up on the air; the server adds them over a simulated radio. Say capacity=simulated, or radio.access=orthogonal"
        )
    coverage = experiment.radio.coverage.name
    if hasattr(registry.find_part("coverage", coverage, builtin_parts("coverage")), "num_cells"):
        raise FedtideError(
            f"radio.coverage={coverage} has cells that hear each other's devices, and nodes know one server; choose a coverage of "
            "one cell, or simulate it with `fedtide run`"
        )
    if (experiment.fleet.concurrency or 0) > experiment.fleet.num_devices:
        raise FedtideError(
            f"fleet.concurrency={experiment.fleet.concurrency} is more than the {experiment.fleet.num_devices} devices; lower it"
        )
    if settings.min_nodes > experiment.fleet.num_devices:
        raise FedtideError(
            f"min_nodes={settings.min_nodes} exceeds fleet.num_devices={experiment.fleet.num_devices}, and only so many nodes "
            "get a seat; lower it or add devices"
        )


def to_run_config(terms: Terms) -> dict[str, str]:
    """Return the terms as Flower's run configuration: two JSON texts."""
    tree = config.dump(terms.experiment)
    tree["data"]["folder"] = None  # every host has its own; see the node's `data-folder`
    return {"experiment": json.dumps(tree), "deployment": terms.deployment.model_dump_json(), "fedtide": __version__}


def check_release(other: str | None, what: str) -> None:
    """Raise if `what` is of another release than this fedtide: a patch changes no number, a minor version may."""
    if other is not None and other.split(".")[:2] != (here := __version__.split("."))[:2]:
        raise FedtideError(
            f"{what} fedtide {other}, and this is {__version__}, which may give other numbers: install fedtide "
            f"{'.'.join(other.split('.')[:2])} here, or {'.'.join(here[:2])} everywhere and begin in a new run folder"
        )


def from_run_config(run_config: Mapping[str, Any], data_folder: str | None = None) -> Terms:
    """Read the terms from Flower's run configuration. data_folder: where this host keeps the data set."""
    if (version := run_config.get("fedtide")) is not None:
        check_release(str(version), "the app was made with")
    try:
        tree, settings = (_TREE.validate_json(str(run_config[key])) for key in ("experiment", "deployment"))
    except (KeyError, ValueError) as error:
        raise FedtideError(
            "the run configuration lacks experiment and deployment as JSON; make the app with `fedtide deploy app`"
        ) from error
    experiment = config.experiment(tree)
    if data_folder is not None:
        data = experiment.data.model_copy(update={"folder": Path(data_folder)})
        experiment = experiment.model_copy(update={"data": data})
    return Terms(experiment, deployment(settings))


# -- the Flower app of a federation: a folder that `flwr run` sends to server and nodes -----------------------------

_PACKAGE = "fedtide_app"
_PROJECT = """\
[project]
name = "fedtide-app"
version = "{version}"
description = "A federation of fedtide"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedtide"

[tool.flwr.app.components]
serverapp = "{package}.server:app"
clientapp = "{package}.client:app"

[tool.flwr.app.config]
{settings}
"""


def write_app(folder: Path, terms: Terms, run_folder: Path) -> Path:
    """Write the app and return its folder. run_folder is where the server keeps the run, on the server's host.

    It holds the terms and two lines of code; fedtide itself must be installed wherever it runs.
    """
    package = folder / _PACKAGE
    if folder.exists() and any(folder.iterdir()) and not package.is_dir():
        raise FedtideError(f"{folder} holds something else; choose an empty or new folder for the app")
    run_config = {**to_run_config(terms), "run-folder": str(run_folder)}
    # JSON's escapes are those of a TOML basic string
    settings = "\n".join(f"{key} = {json.dumps(text)}" for key, text in run_config.items()).replace("\x7f", "\\u007f")
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('"""A federation of fedtide."""\n')
    for side in ("client", "server"):
        # Flower looks for an assignment in the file's text
        text = f'"""The {side}\'s app."""\n\nfrom fedtide.deploy import apps\n\napp = apps.{side}_app\n'
        (package / f"{side}.py").write_text(text)
    (folder / "pyproject.toml").write_text(_PROJECT.format(version=__version__, package=_PACKAGE, settings=settings))
    return folder
