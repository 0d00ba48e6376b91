"""Whatever a user writes down is read as it was meant, or refused in one line."""

from __future__ import annotations

import contextlib
import datetime
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judge import SMALL, Wrong, refused, wrong

from fedtide import config
from fedtide.core import files, yaml12
from fedtide.errors import FedtideError
from fedtide.studies import spec
from fedtide_lab.theory import options


def plan(*words: str, says: str) -> Wrong:
    return wrong("plan", *SMALL, *words, says=says)


# ---- words on the command line

WORDS = [
    plan("policy.limit=yes", says=r"policy\.limit='yes'.*valid integer"),
    plan("policy.limit=true", says=r"policy\.limit=True.*no numbers"),
    plan("timeline.period=false", says=r"timeline\.period=False.*no numbers"),
    plan("radio.large_scale=true", says=r"radio\.large_scale=True.*no numbers"),
    plan("radio.large_scale=[1,1,1,1,1,true]", says=r"large_scale\.5=True"),
    plan("radio.large_scale=[1,1,1,1,1,x]", says=r"large_scale\.5='x'"),
    plan("radio.large_scale=[]", says="0 values"),
    plan("radio.large_scale={a: 1}", says="valid number"),
    plan("radio.large_scale=[" + "x," * 3000 + "]", says="and 2,997 more"),
    plan("radio.large_scale=1e300", says="less than or equal to"),
    plan("timeline.period=1:30", says=r"timeline\.period='1:30'.*valid number"),
    plan("timeline.horizon=2026-01-01", says="'2026-01-01'.*valid number"),
    plan("timeline.horizon=.inf", says="finite"),
    plan("timeline.horizon=-.INF", says="finite"),
    plan("radio.snr_db=.nan", says="finite"),
    plan("timeline.horizon=1e999", says="finite"),
    plan("timeline.period=1e-999", says="greater than 0"),
    plan("seed=1" + "0" * 5000, says="finite"),
    plan("seed=0x" + "f" * 5000, says="valid integer"),
    plan("seed=9223372036854775808", says="seed=9223372036854775808"),
    plan("seed=9007199254740993.0", says="without a point"),
    plan("seed=1e18", says="without a point"),
    plan("seed=1__0", says="valid integer"),
    plan("seed=0b101", says="valid integer"),
    plan("seed=08x", says="valid integer"),
    plan("seed=", says="seed=None"),
    plan("seed=|", says="seed=''"),
    plan("seed=- 1", says=r"seed=\[1\]"),
    plan("seed={}", says=r"seed=\{\}"),
    plan("seed=!!int 3", says="tag .* is not read"),
    plan("policy.scheduler=!!python/object/apply:os.system [ls]", says="tag .* is not read"),
    plan("seed=*a", says="undefined alias"),
    plan("policy.scheduler={a: &x [*x]}", says="recursive node|holds itself"),
    plan("seed=1: 2", says="key 1 is not a word"),
    plan("policy={limit: 1, limit: 2}", says="'limit' is there twice"),
    plan("policy={? [1] : 2}", says="unhashable key"),
    plan("policy={~: 2}", says="key None is not a word"),
    plan("policy.scheduler={a: {1: 2}}", says="key 1 is not a word"),
    plan("policy.scheduler={a-b: 1}", says="'a-b' is no name"),
    plan("policy.scheduler={'': 1}", says="'' is no name"),
    plan("policy.scheduler={class: 1}", says="does not accept"),
    plan("policy.scheduler={a: .nan}", says=r"scheduler\.a=nan.*finite"),
    plan("policy.scheduler=[1]", says="the name of a part"),
    plan("policy.scheduler=" + "[" * 2000, says="deep"),
    plan("policy.scheduler=" + "{a: " * 50, says="deep"),
    plan(
        "policy.scheduler=- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - 1",
        says="deep",
    ),
    plan("data.folder=#x", says="comment"),
    plan("data.folder=a #b", says="comment"),
    plan("data.folder=\x00", says="NUL"),
    plan('data.folder="a\\0b"', says=r"U\+0000"),
    plan("data.folder=\u202egpj", says=r"U\+202E"),
    plan("data.folder=" + "x" * 20_000, says="20,000 characters"),
    plan("policy.scheduler=" + "x" * 600, says="500 characters at most"),
    plan("policy.scheduler=" + "x/" * 150 + "y.py:f", says="not found in the working folder"),
    plan("policy.scheduler=" + "x" * 300 + ".py:f", says="not found in the working folder"),
    plan("policy=", says="it is a group of keys"),
    plan("policy=[1]", says="it is a group of keys"),
    plan("polcy.limit=3", says="did you mean policy"),
    plan("policy.limit.x=3", says="valid integer"),
    plan("=3", says="not key=value"),
    plan("policy..limit=3", says="not key=value"),
    plan(".limit=3", says="not key=value"),
    plan("poli\ncy.limit=3", says="not key=value"),
    plan("k" * 3000 + "=3", says="is not a key"),
    plan("policy.limit", says="not key=value"),
    plan("policy.limit={", says="cannot be read"),
    plan("policy.limit=@", says="cannot be read"),
    plan("policy.limit='", says="cannot be read"),
    plan("learning.dropout=2", says="valid boolean"),
    plan("learning.dropout=maybe", says="valid boolean"),
    plan("framework=true", says="framework=True"),
    plan("profile=", says="profile=None"),
    plan("data.name=[mnist]", says=r"data\.name=\['mnist'\]"),
    plan("codec.num_levels=32768", says="less than or equal to 32767"),
    plan("codec.element_bits=65", says="less than or equal to 64"),
    plan("data.size_spread=1e308", says="less than or equal to 100"),
    plan("data.partition=dirichlet", "data.concentration=5e-324", says="greater than or equal to"),
    plan("learning.evaluate_every=5e-324", says="raise it, or say 0"),
]

# ---- numbers that mean years of work, or more than any memory

YEARS = [
    plan("timeline.period=1e-9", says=r"2e\+09 aggregations.*raise timeline\.period"),
    plan("timeline.horizon=1e18", says="aggregations.*lower timeline.horizon"),
    plan("timeline.horizon=1e308", "timeline.period=1e-300", says="about inf aggregations"),
    plan("framework=fedavg", "fleet.max_duration=1e-9", says=r"aggregations.*fleet\.max_duration"),
    plan("framework=fedasync", "fleet.max_duration=1e-9", says="6 devices.*aggregations"),
    plan("framework=fedasync", "timeline.horizon=1e9", says="aggregations"),
    plan("framework=fedbuff", "timeline.buffer_size=2", "timeline.horizon=1e9", says="aggregations"),
    plan("fleet.num_devices=1000000000000", says="less than or equal to 10000000"),
    plan("data.num_train=1000000000000", says="less than or equal to 100000000"),
    plan("data.num_test=1000000000000", says="less than or equal to 100000000"),
    plan("learning.local_epochs=1000000000", says=r"learning\.local_epochs=1000000000.*GB"),
    plan("learning.local_epochs=null", "learning.local_steps=1000000000000", says=r"learning\.local_steps.*GB"),
    plan("learning.local_epochs=10000000", "timeline.horizon=1e5", says="years at 100,000 a second"),
    wrong("theory", "num_ticks=1000000000", says="num_ticks"),
    wrong("theory", "num_seeds=1000000000", says="days; lower"),
    wrong("theory", "sweep_ticks=10000000", "sweep_seeds=1000", says="days; lower"),
    wrong("theory", "num_devices=1000000000000", says="GB; lower"),
    wrong("theory", "num_samples=1000000000000", says="GB; lower"),
    wrong("theory", "num_samples=2000000", "num_features=1000000", says="GB; lower"),
    wrong("theory", "num_draws=1000000000000", says="num_draws"),
    wrong("theory", "num_labels=1000000000", "task=softmax", says="GB; lower"),
]  # fmt: skip

THEORY = [
    wrong("theory", "num_levels=true", says="no numbers"),
    wrong("theory", "num_levels=yes", says="valid integer"),
    wrong("theory", "period=1:30", says="valid number"),
    wrong("theory", "period=.inf", says="finite"),
    wrong("theory", "period=1e999", says="finite"),
    wrong("theory", "seed=010x", says="valid integer"),
    wrong("theory", "seed={a: 1, a: 2}", says="twice"),
    wrong("theory", "a.b=3", says="not a key of theory"),
    wrong("theory", "data=mnist", "task=softmax", "num_features=1000", says="784"),
]


@pytest.mark.parametrize("case", WORDS + YEARS + THEORY, ids=str)
def test_wrong_words(case: Wrong) -> None:
    refused(case)


# ---- files of experiments

NOT_WORDS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
FILES: list[tuple[bytes | str, str]] = [
    ("policy: {limit: 3}\nseed: 1\npolicy: {scheduler: random}\n", "line 3, column 1: .*'policy' is there twice, first in line 1"),
    ("policy:\n  limit: 3\n  limit: 3\n", "line 3, column .: the key 'limit' is there twice"),
    ("'seed': 1\nseed: 2\n", "line 2, column .: the key 'seed' is there twice"),
    ("policy: {limit: 3}\npolicy.limit: 4\n", "given twice"),
    ("policy: 3\npolicy.limit: 4\n", "not a group"),
    ("policy.limit: 4\npolicy.limit.x: 4\n", "is inside"),
    ("seed: 010x\n", "valid integer"),
    ("learning: {learning_rate: 1:30}", "'1:30'"),
    ("timeline: {horizon: 2026-11-16}", "'2026-11-16'"),
    ("timeline: {horizon: 2026-99-99}", "'2026-99-99'"),
    ("timeline: {horizon: 12:30:45.5}", "'12:30:45.5'"),
    ("policy: {limit: on}", "'on'"),
    ("a0: &a0 x\n" + NOT_WORDS, "more than 1,000,000 values"),
    ("policy: &a {scheduler: {x: *a}}", "recursive node"),
    ("seed: *nobody", "undefined alias"),
    ("*a : 3", "undefined alias"),
    ("seed: &a 3\n*a : 3", "key 3 is not a word"),
    ("policy: {<<: 3}", "expected a mapping"),
    ("policy: {<<: [1]}", "expected a mapping"),
    ("[" * 100_000, "deep"),
    ("{a: " * 100_000, "deep"),
    ("- " * 5000, "deep"),
    ("? " * 5000, "deep"),
    ("seed: !!python/name:os.system ''", "tag .* is not read"),
    ("seed: !!binary aGk=", "tag .* is not read"),
    ("!!set {a, b}", "tag .* is not read"),
    ("policy: !mine {limit: 3}", "tag .* is not read"),
    ("1: 2", "key 1 is not a word"),
    ("true: 2", "key True is not a word"),
    ("? [a, b]\n: 2", "unhashable key"),
    ("seed: 1\n---\nseed: 2\n", "another document"),
    ("--- 1\n--- 2\n", "another document"),
    ("seed: 1\n\tpolicy: 3\n", "line 2"),
    ("seed: \x07\n", r"line 1: the character U\+0007"),
    ("seed: 1\n# \x00\n", r"line 2: the character U\+0000"),
    ("data: {folder: \"\\x1b[31m\"}", r"U\+001B"),
    (b"\xff\xfes\x00e\x00e\x00d\x00", "save it as UTF-8"),
    (b"seed: 1\nname: \xe4\n", "0xe4.*save it as UTF-8"),
    (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "save it as UTF-8"),
    (b"x" * (17 * 2**20), "more than 16 MB"),
    ("x: " + "y" * 20_000, "20,000 characters"),
    ("just words", "holds a str"),
    ("3", "holds a int"),
    ("- 1", "holds a list"),
    ("%YAML 9.9\n---\nseed: 1", "cannot be read"),
    ("seed: 'open", "cannot be read"),
    ("version: 1\nname: x\nseeds: 3", "is a study file"),
    ("axes: {}", "is a study file"),
    ("policy:\n", "policy=None: it is a group of keys"),
    ("base: {policy: {limit: 3}}", "base is not a key"),
    ("experiment: {seed: 1}", "experiment is not a key"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), FILES, ids=lambda each: each[:30] if isinstance(each, str) else None)
def test_wrong_files(tmp_path: Path, text: bytes | str, says: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FedtideError, match=says) as caught:
        config.experiment(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.1)
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    for path, says in [
        ("pipe", "nobody wrote to this pipe"),
        ("/dev/zero", "device, not a file"),
        (str(tmp_path), "Is a directory"),
        ("loop", "cannot be read"),
        ("x" * 300, "cannot be read"),
        ("no\nwhere.yaml", r"experiment file not found: 'no\\nwhere.yaml'"),
        ("nowhere.yaml", "experiment file not found"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(FedtideError, match=says) as caught:
            config.experiment(path)
        assert "\n" not in str(caught.value)


# ---- what is given from Python

SELF: dict[str, Any] = {}
SELF["policy"] = SELF


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


TREES: list[tuple[Any, str]] = [
    (3, "3 is not an experiment"),
    (None, "None is not an experiment"),
    (["seed"], "is not an experiment"),
    (Rude(), "is not an experiment"),
    ({"policy": None}, "policy=None: it is a group of keys"),
    ({1: 2}, "the key 1 is not a word"),
    ({"policy": {None: 2}}, "policy: the key None is not a word"),
    ({"policy": {"limit": datetime.date(2026, 1, 1)}}, "policy.limit=.* is a date"),
    ({"policy": {"limit": {1, 2}}}, "is a set"),
    ({"policy": {"limit": b"8"}}, "is a bytes"),
    ({"policy": {"limit": Rude()}}, "is a Rude"),
    ({"policy": {"limit": 10**400}}, "digits"),
    ({"policy": {"limit": True}}, "no numbers"),
    ({"policy": {"limit": np.bool_(True)}}, "no numbers"),
    ({"policy": {"scheduler": {"a": np.nan}}}, "finite"),
    ({"policy": {"scheduler": {"a": object()}}}, "is a object"),
    ({"policy": {"scheduler": "a\0b"}}, r"U\+0000"),
    ({"policy": {"scheduler": "\ud800"}}, r"U\+D800"),
    (SELF, "deep"),
    ({"policy.limit": 3, "policy": {"limit": 3}}, "given twice"),
    ({"policy.": 3}, "policy. is not a key"),
    ({".": 3}, "is not a key"),
    ({"a\nb": 3}, "is not a word|is not a key"),
]


@pytest.mark.parametrize(("given", "says"), TREES, ids=lambda each: None)
def test_wrong_trees(given: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says) as caught:
        config.experiment(given)
    assert "\n" not in str(caught.value)


# ---- studies

TOP = "version: 1\nname: x\n"
STUDIES = [
    ("version: '1'\nname: x", "version='1'"),
    ("version: true\nname: x", "version=True"),
    ("version: [1]\nname: x", r"version=\[1\]"),
    ("version: 1", "name is missing"),
    ("version: 1\nname: 5", "name=5.*valid string"),
    ("version: 1\nname: ' '", "a name has 1 to 100"),
    ('version: 1\nname: "a\\nb"', "in one line"),
    (f"version: 1\nname: {'n' * 200}", "1 to 100"),
    (TOP + "studies: []", "not a key of a study"),
    (TOP + "base: 3", "base=3.*valid dictionary"),
    (TOP + "base:", "base=None"),
    (TOP + "base: {base: {}}", "base is not a key"),
    (TOP + "base: {axes: {policy.limit: [1]}}", "axes is not a key"),
    (TOP + "base: {seed: 3}", "seeds: "),
    (TOP + "base: {policy.limit: 3, policy: {limit: 3}}", "given twice"),
    (TOP + "variants: 3", "valid dictionary"),
    (TOP + "variants: [a, b]", "valid dictionary"),
    (TOP + "variants: {a: , b: {}}", "variants.a=None"),
    (TOP + "variants: {a: 3}", "variants.a=3"),
    (TOP + "variants: {a: {}, a: {seed: 1}}", "'a' is there twice"),
    (TOP + "variants: {1: {}}", "key 1 is not a word"),
    (TOP + "variants: {'': {}}", "a name has 1 to 100"),
    (TOP + 'variants: {"a\\nb": {}}', "in one line"),
    (TOP + 'variants: {"\\u202Eb": {}}', r"U\+202E"),
    (TOP + 'variants: {"\\u200Bb": {}}', "can be seen"),
    (TOP + f"variants: {{{'v' * 101}: {{}}}}", "1 to 100"),
    (TOP + "variants: {a: {policy: {limit: 3}}}\naxes: {policy.limit: [1, 2]}", "'a' gives policy.limit, which is an axis"),
    (TOP + "variants: {a: {policy.limit: 3}}\naxes: {policy.limit: [1, 2]}", "'a' gives policy.limit, which is an axis"),
    (TOP + "axes: {policy: [1]}", "group of keys"),
    (TOP + "axes: {policy.limit: 3}", "valid list"),
    (TOP + "axes: {policy.limit: {a: 1}}", "valid list"),
    (TOP + "axes: {policy.limit: '12'}", "valid list"),
    (TOP + "axes: {policy.limit: [1], policy.limit: [2]}", "'policy.limit' is there twice"),
    (TOP + "axes: {policy.limit: [2, 4, 2]}", "repeats the value 2"),
    (TOP + "axes: {policy.limit: [2, 2.0]}", "repeats the value 2"),
    (TOP + "axes: {policy.limit: [2, '2']}", "same experiment"),
    (TOP + "axes: {policy.scheduler: [{a: 1, b: 2}, {b: 2, a: 1}]}", "repeats the value"),
    (TOP + "axes: {policy.limit: [[1]]}", "limit=\\[1\\]"),
    (TOP + "axes: {policy.limit: [yes]}", "'yes'"),
    (TOP + "axes: {seed: [1, 2]}", "seeds: "),
    (TOP + "axes: {xyz: [1]}", "names no field"),
    (TOP + "axes: {'a\\nb': [1]}", "names no field"),
    (TOP + "seeds: '5'", "seeds='5'"),
    (TOP + "seeds: 1.5", "seeds=1.5"),
    (TOP + "seeds: true", "seeds=True"),
    (TOP + "seeds: -3", "seeds=-3"),
    (TOP + "seeds: 0", "seeds=0"),
    (TOP + "seeds:", "seeds=None"),
    (TOP + "seeds: {a: 1}", "seeds={"),
    (TOP + "seeds: [1, x]", "'x' in it"),
    (TOP + "seeds: [true]", "True in it"),
    (TOP + "seeds: [-1]", "-1 in it"),
    (TOP + "seeds: [1.5]", "1.5 in it"),
    (TOP + "seeds: [[1]]", r"\[1\] in it"),
    (TOP + "seeds: [3, 3]", "repeats a seed"),
    (TOP + "seeds: 1000000000", "1,000,000,000 runs .*years"),
    (TOP + f"axes: {{{', '.join(f'{key}: {[*range(39)]}' for key in [*config.all_keys()][3:9])}}}", "3,518,743,761 runs"),
    (TOP + "base: {timeline: {period: 1.0e-9}}", "aggregations"),
    (TOP + "base: {policy: {scheduler: here.py:f, limit: 99}}", "policy.limit=99"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), STUDIES, ids=lambda each: each[-40:])
def test_wrong_studies(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(FedtideError, match=says) as caught:
        spec.read_study(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "a\\b", "...", "ä" * 100, "[red]x", "$x$", "שלום", "-rf"])
def test_a_studys_files_stay_in_the_working_folder(name: str) -> None:
    stem = Path(spec.make_study(name, {"x": {}}, [0]).stem)
    assert len(stem.parts) == 1
    assert not stem.name.startswith(".")
    assert len(os.fsencode(stem)) <= 200


# ---- read as meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("010", 10), ("-007", -7), ("+3", 3), ("0o17", 15), ("0x1F", 31), ("1_000", 1000), ("1_000.5", 1000.5),
        ("1e3", 1000.0), ("1E-2", 0.01), (".5", 0.5), ("5.", 5.0), ("1.5e+3", 1500.0), ("0.0", 0.0), ("0e5", 0.0),
        ("true", True), ("FALSE", False), ("yes", "yes"), ("No", "No"), ("on", "on"), ("1:30", "1:30"), ("0b11", "0b11"),
        ("2026-01-01", "2026-01-01"), ("=", "="), ("~", None), ("", None), ("Null", None), ("'8'", "8"), ('"yes"', "yes"),
        ("[a, 1, {b: ~}]", ["a", 1, {"b": None}]), ("x: &a [1]\ny: *a", {"x": [1], "y": [1]}),
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}", {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}),
        ("{<<: [{x: 1}, {x: 2, y: 2}]}", {"x": 1, "y": 2}), ("'<<': 1", {"<<": 1}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}), ("# only a comment", None), ("ä: ö", {"ä": "ö"}), ("a\r\n", "a"),
    ],
)  # fmt: skip
def test_scalars_are_read_as_meant(text: str, meant: Any) -> None:
    found = yaml12.parse_yaml(text)
    assert found == meant
    assert type(found) is type(meant)


def test_numbers_are_read_as_meant(tmp_path: Path) -> None:
    e = config.experiment(
        "policy.limit='8'", {"fleet": {"num_devices": 1e3}}, {"learning": {"dropout": "off"}, "seed": 8.0}
    )
    assert (e.policy.limit, e.fleet.num_devices, e.learning.dropout, e.seed) == (8, 1000, False, 8)
    assert config.experiment({"policy.limit": np.int64(4), "radio.snr_db": np.float32(2)}).policy.limit == 4
    assert config.experiment({"radio": {"large_scale": np.ones(40)}}).radio.large_scale == (1.0,) * 40
    path = tmp_path / "e.yaml"
    path.write_bytes(b"\xef\xbb\xbfseed: 010\r\n")  # as Windows saves it
    assert config.experiment(path).seed == 10


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf")), max_size=8)
tricky = [
    "08",
    "0o10",
    "1e5",
    "yes",
    "1:30",
    "010",
    "~",
    "<<",
    "=",
    "1_000",
    ".5",
    "+1",
    ".inf",
    "2026-01-01",
    "#",
    "- a",
]
leaves = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
data = st.recursive(
    leaves | texts | st.sampled_from(tricky),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(data)
@example("08")
@example("1e5")
def test_what_is_written_is_read(tree: Any) -> None:
    assert yaml12.parse_yaml(yaml12.to_yaml(tree)) == tree
    assert "\n" not in yaml12.yaml_in_line(tree)


# ---- anything at all: an experiment, or one line

pieces = st.sampled_from([
    "policy", "seed", "limit", "scheduler", ":", ": ", "\n", "\n  ", "- ", "[", "]", "{", "}", ",", "&a ", "*a", "<<",
    "!!str ", "!x", "'", '"', "|", ">", "#", "---\n", "...", "%", "@", "\\", "1", "0", ".", "e", "_", "yes", "~", "\t", "\0",
    "ä", "\u2028", "? ",
])  # fmt: skip
yaml_text = st.lists(pieces | st.text(max_size=3), max_size=20).map("".join)


@settings(max_examples=400, deadline=None)
@given(yaml_text)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(yaml12.ConfigSyntaxError):
        found = yaml12.parse_yaml(text)
        assert yaml12.plain_yaml_tree(found, "x") == found or "nan" in text.lower() or "inf" in text.lower()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*config.all_keys(), "policy", "x.y", ""]), yaml_text), max_size=3))
def test_any_words_are_read_or_refused(words: list[tuple[str, str]]) -> None:
    with contextlib.suppress(FedtideError):
        e = config.experiment(config.parse_overrides(f"{key}={text}" for key, text in words))
        assert config.experiment(config.dump(e)) == e
    with contextlib.suppress(FedtideError):
        options.parse_options(f"{key.rpartition('.')[2]}={text}" for key, text in words)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["version", "name", "base", "axes", "variants", "seeds", "x"]), data, max_size=5)
)
def test_any_study_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "any-study.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "x", **tree}, allow_unicode=True), encoding="utf-8")
    with contextlib.suppress(FedtideError):
        spec.read_study(path)
