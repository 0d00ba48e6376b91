"""Every part that is registered says what it does and what its parameters mean; `fedtide parts` tells it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from click.testing import CliRunner
from rich.console import Console

import fedtide
from fedtide import config
from fedtide.cli.main import app
from fedtide.cli.parts import _type_text, described_kind
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import KINDS, builtin_parts

OURS = [(kind, name) for kind in KINDS for name in builtin_parts(kind)]
# What the driver of a run fills in, besides the keys of the experiment.
BY_THE_RUN = {"fleet.durations", "fleet.num_samples", "fleet.samples_per_job", "run.say", "run.images", "run.coverage"}


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def found(kind: str, name: str) -> Any:
    try:
        return registry.find_part(kind, name, builtin_parts(kind))
    except FedtideError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("kind", "name"), OURS)
def test_every_parameter_of_ours_has_a_meaning_and_a_type(kind: str, name: str) -> None:
    part = found(kind, name)
    assert (part.__doc__ or "").strip()
    for each in registry.own_parameters(kind, part):
        assert each.about.meaning, f"{name}: {each.name} needs arg('...')"
        assert each.type is not Any, f"{name}: {each.name} needs a type"
        assert each.about.key is None or each.about.key in {*config.all_keys(), *BY_THE_RUN}, each.about.key


@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [
        ("partition", "shards", ["num_shards", "size_spread"]),  # a function is called with the first three
        ("timeline", "per_arrival", ["upload_time"]),
        ("trainer", "native", ["momentum", "fast"]),
        ("trainer", "torch", ["device", "optimizer", "momentum", "weight_decay", "beta1", "beta2"]),  # without the task
        ("model", "softmax", []),
        ("data", "synthetic", ["seed", "num_train", "num_test"]),
    ],
)
def test_own_parameters_are_those_that_an_experiment_may_give(kind: str, name: str, own: list[str]) -> None:
    assert [each.name for each in registry.own_parameters(kind, found(kind, name))] == own


def module(width: int = 3) -> None:
    """A maker of a PyTorch module."""


def watcher(record: Any, path: str = "x") -> None:
    """A tracker that is a function."""


def clocked(clock: Any, late: float = 0.0) -> None:
    """A timeline."""


def remembering(memory: Any, num_samples: Any, age: Any, device: Any, rate: float = 0.5) -> None:
    """A weighting with memory."""


remembering.init = lambda num_devices: {}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "part", "own"),
    [
        ("model", module, ["width"]),
        ("tracker", watcher, ["path"]),
        ("timeline", clocked, ["late"]),
        ("weighting", remembering, ["rate"]),
    ],
)
def test_own_parameters_of_a_users_function(kind: str, part: Any, own: list[str]) -> None:
    assert [each.name for each in registry.own_parameters(kind, part)] == own


# ---- the command


def test_all_kinds_as_json_and_as_text() -> None:
    listed = json.loads(invoke("parts", "--json").stdout)
    assert list(listed) == [*KINDS, "framework", "method", "profile", "scenario"]
    for kind in KINDS:
        assert set(builtin_parts(kind)) <= set(listed[kind]["parts"])
        assert listed[kind]["called"]
        assert listed[kind]["key"] == KINDS[kind].key
        assert all(each["about"] for each in listed[kind]["parts"].values())
    assert listed["framework"].keys() == config.FRAMEWORKS.keys()
    snr = listed["channel"]["parts"]["rayleigh"]["parameters"]["snr_db"]
    assert snr == {
        "type": "float", "required": False, "default": 13.0, "unit": "dB", "bounds": {}, "meaning": "average received SNR",
        "key": "radio.snr_db",
    }  # fmt: skip
    assert listed["timeline"]["parts"]["periodic"]["parameters"]["period"]["default"] == 0.25  # of the key
    assert "say" not in listed["data"]["parts"]["mnist"]["parameters"]
    text = invoke("parts").stdout
    for kind in KINDS:
        assert re.search(rf"^{kind}: ", text, re.MULTILINE)
        assert all(name in text for name in listed[kind]["parts"])


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("kind", [None, *KINDS])
def test_nothing_is_cut_off_or_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, kind: str | None
) -> None:
    monkeypatch.setattr("fedtide.cli.console.out", Console(width=width))
    text = invoke("parts", *([kind] if kind else [])).stdout
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    together = re.sub(r"\s", "", text)
    for each in [kind] if kind else KINDS:
        told = described_kind(each)
        for name, part in told["parts"].items():
            assert name in text
            assert re.sub(r"\s", "", part["about"].split(". ")[0])[:20] in together
            assert all(parameter in text for parameter in part["parameters"])


def test_one_kind_in_detail() -> None:
    text = " ".join(invoke("parts", "scheduler").stdout.split())
    assert "tries int 30 number of subsets drawn (>= 1, <= 100000)" in text
    assert "(candidates, limit, rng) -> positions" in text
    assert "init(num_devices) -> memory (memory, candidates, limit, rng) -> (positions" in text
    assert "fedtide run 'policy.scheduler={name: proposed, pool_share: 0.5}'" in text
    assert "mine.py:mine" in text
    assert "fedtide.scheduler" in text
    assert "random" not in json.loads(invoke("parts", "codec", "--json").stdout)["codec"]["parts"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_says_about_naming_one_is_understood(kind: str) -> None:
    text = invoke("parts", kind).stdout
    for word in re.findall(r"fedtide run '([^'\n]+)'", text):
        if "mine.py" not in word:
            config.experiment(word)
    for name in re.findall(rf"fedtide run {re.escape(KINDS[kind].key)}=(\w+)\s*\n", text):
        listed = json.loads(invoke("parts", kind, "--json").stdout)[kind]["parts"][name]["parameters"]
        assert not any(about["required"] for about in listed.values())  # it needs nothing but its name


@pytest.mark.parametrize(
    ("kind", "near"), [("schedulr", "scheduler"), ("schedulers", "scheduler"), ("Codec", "codec"), ("xyz", None)]
)
def test_an_unknown_kind_names_the_nearest(kind: str, near: str | None) -> None:
    answer = invoke("parts", kind)
    assert answer.exit_code == 2
    assert (f"did you mean {near}?" if near else "is not a kind of part") in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


def theirs(
    share: Annotated[float, fedtide.arg("how many", unit="%", ge=0, lt=100)], how: Literal["a", "b"] = "a"
) -> None:
    """Theirs. It makes a data set.

    More.
    """


def test_parts_of_installed_packages_are_listed_also_those_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise SystemExit("not\nhere")

    points = [
        SimpleNamespace(name="theirs", load=lambda: theirs, value="pack.age:theirs"),
        SimpleNamespace(name="[/red]broken", load=broken, value="bad:x"),
        SimpleNamespace(name="mnist", load=broken, value="bad:hides ours"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "fedtide.data" else [])
    listed = described_kind("data")["parts"]
    assert listed["theirs"]["from"] == "pack.age:theirs"
    assert listed["theirs"]["about"] == "Theirs. It makes a data set."
    assert listed["theirs"]["parameters"]["share"] == {
        "type": "float", "required": True, "default": None, "unit": "%", "bounds": {"ge": 0, "lt": 100},
        "meaning": "how many", "key": None,
    }  # fmt: skip
    assert listed["mnist"]["from"] == "fedtide"
    assert listed["[/red]broken"]["about"].startswith(
        "cannot be used here: data='[/red]broken': loading it raised SystemExit"
    )
    for words in (["parts"], ["parts", "data"], ["run", "--keys"]):
        answer = invoke(*words)
        assert answer.exit_code == 0, answer.output
        assert "[/red]broken" in re.sub(r"\s", "", answer.stdout)
    text = " ".join(invoke("parts", "data").stdout.split())
    assert "theirs from pack.age:theirs" in text
    assert "share float must be given how many (%, >= 0, < 100)" in text


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (float, "float"), (int | None, "int | null"), (Path | None, "path | null"), (Literal["a", "b"], "a | b"),
        (float | list[float], "float | list[float]"), (Any, "anything"), (dict[str, int], "dict[str, int]"),
    ],
)  # fmt: skip
def test_types_as_a_user_says_them(wanted: Any, said: str) -> None:
    assert _type_text(wanted) == said


def test_keys_tell_the_names_of_parts() -> None:
    rows = json.loads(invoke("run", "--keys", "--json").stdout)
    for kind, known in KINDS.items():
        assert rows[known.key]["choices"] == [*registry.named_parts(kind), "your own"]
        assert rows[known.key]["about"]
    text = " ".join(invoke("run", "--keys").stdout.split())
    assert "jakes, gilbert_elliott, trace, drive_test, drive_twin, mahimahi, your own" in text
    assert "tensorboard, mlflow, wandb, your own" in text


def test_a_part_of_another_kind_is_told_from_one_that_nobody_knows() -> None:
    with pytest.raises(FedtideError, match=r"policy\.scheduler='shards' is not known: it is one of data\.partition\."):
        config.experiment({"policy.scheduler": "shards"})
