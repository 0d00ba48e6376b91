from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedtide import config
from fedtide.config import (
    FRAMEWORKS,
    PROFILES,
    digest,
    dump,
    experiment,
    merge_nested,
    parse_overrides,
    read_yaml_file,
    workload,
)
from fedtide.core import yaml12
from fedtide.errors import FedtideError


def test_defaults_are_the_papers() -> None:
    e = experiment()
    assert (e.fleet.num_devices, e.policy.limit, e.radio.num_symbols, e.radio.snr_db) == (40, 8, 300_000, 13)
    assert (e.part("timeline").name, e.timeline.period, e.timeline.horizon) == ("periodic", 0.25, 35)
    assert (e.data.partition.name, e.data.num_shards) == ("shards", 200)
    assert (e.policy.scheduler.name, e.policy.age_base, e.policy.aggregator.name) == ("proposed", 1, "average_models")
    assert (e.part("codec").name, e.codec.num_levels) == ("sparse_quantized", 4)
    work = e.learning
    assert (work.model.name, work.local_epochs, work.batch_size, work.learning_rate) == ("paper_cnn", 3, 50, 0.01)
    assert (work.schedule.entry, work.proximal, work.dropout) == ("halved", 0.02, True)


@pytest.mark.parametrize("framework", [None, *FRAMEWORKS])
@pytest.mark.parametrize("profile", [*PROFILES])
def test_round_trip_through_plain_data_and_yaml(framework: str | None, profile: str) -> None:
    e = experiment(
        {"framework": framework, "profile": profile, "learning": {"local_steps": 7}, "data": {"folder": "x"}}
    )
    assert experiment(dump(e)) == e
    assert experiment(yaml.safe_load(yaml.safe_dump(dump(e)))) == e
    assert digest(experiment(dump(e))) == digest(e)


def test_an_experiment_cannot_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        experiment().policy.limit = 3


# ---- digest


def test_digest_tells_results_apart() -> None:
    base = digest(experiment())
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"data": {"partition": "iid"}},
        {"fleet": {"num_devices": 41}},
        {"timeline": {"period": 0.5}},
        {"radio": {"snr_db": 12.9}},
        {"policy": {"age_base": 0.9}},
        {"codec": {"num_levels": 5}},
        {"learning": {"dropout": False}},
        {"policy": {"aggregator": {"server_rate": 1.0}}},
    ]
    assert len({base, *(digest(experiment(change)) for change in changes)}) == len(changes) + 1


def test_digest_forgets_where_the_files_lie_and_which_preset_filled_the_values() -> None:
    assert digest(experiment({"data": {"folder": "elsewhere"}})) == digest(experiment())
    assert digest(experiment({"framework": "periodic"})) == digest(experiment())
    by_hand = {"timeline": {"name": "synchronous"}, "learning": {"proximal": 0.0}}
    assert digest(experiment({"framework": "fedavg"})) == digest(experiment(by_hand))


# ---- presets


def test_keys_of_the_user_win_over_presets() -> None:
    e = experiment({"framework": "fedasync", "policy": {"aggregator": {"mixing": 0.8}}, "learning": {"proximal": 0.5}})
    assert (e.part("timeline").name, e.policy.limit, e.policy.aggregator.name) == ("per_arrival", 1, "mix")
    assert (e.policy.aggregator.args, e.learning.proximal) == ({"mixing": 0.8}, 0.5)


def test_framework_wins_over_profile() -> None:
    e = experiment({"framework": "fedbuff", "profile": "released-code"})
    assert e.policy.scheduler.name == "random"
    assert e.codec.element_bits == 3
    assert e.radio.snr_db == pytest.approx(10 * math.log10(20))


METHOD_PARTS = {
    "scaffold": {"learning.trainer": "scaffold", "policy.aggregator": "scaffold"},
    "ef21": {"codec.name": "ef21", "policy.aggregator": "ef21"},
    "over_the_air": {"radio.access": "over_the_air", "codec.name": "ideal"},
}


@pytest.mark.parametrize("method", METHOD_PARTS)
def test_a_method_is_all_of_its_parts_under_the_name_of_the_same_run(method: str) -> None:
    one, several = experiment({"method": method}), experiment(METHOD_PARTS[method])
    assert {key: config.key_value(one, key).name for key in METHOD_PARTS[method]} == METHOD_PARTS[method]
    assert digest(one) == digest(several) != digest(experiment())
    assert experiment(dump(one)) == one
    for framework in ("fedavg", "fedbuff"):
        both = experiment({"framework": framework, "method": method})
        assert digest(both) == digest(experiment({"framework": framework}, METHOD_PARTS[method]))


@pytest.mark.parametrize("method", METHOD_PARTS)
def test_a_method_is_not_taken_apart(method: str) -> None:
    others = {
        "learning.trainer": "native",
        "policy.aggregator": "mix",
        "codec.name": "top_k",
        "radio.access": "orthogonal",
    }
    for key in METHOD_PARTS[method]:
        with pytest.raises(
            FedtideError, match=f"method={method} does not work with {key}={others[key]}: .*: leave {key} out"
        ):
            experiment({"method": method, key: others[key]})
    with pytest.raises(FedtideError, match=f"method={method} does not work"):
        experiment({"method": method, **{key: others[key] for key in METHOD_PARTS[method]}})
    assert experiment(
        experiment({"method": method}), {"method": None, **{key: others[key] for key in METHOD_PARTS[method]}}
    )


def test_parameters_of_a_methods_parts_are_the_users() -> None:
    given = experiment({"method": "scaffold", "learning.trainer.damping": 0.3, "policy.aggregator": {"inner": "mix"}})
    assert given.learning.trainer.entry == {"name": "scaffold", "damping": 0.3}
    assert given.policy.aggregator.entry == {"name": "scaffold", "inner": "mix"}


def test_steps_take_the_place_of_epochs() -> None:
    e = experiment({"learning": {"local_steps": 5}})
    assert (e.learning.local_steps, e.learning.local_epochs) == (5, None)


def test_later_trees_lie_on_top() -> None:
    e = experiment({"policy": {"limit": 3, "age_base": 2.0}}, {"policy": {"limit": 4}})
    assert (e.policy.limit, e.policy.age_base) == (4, 2.0)


MIX = {"name": "mix", "a": 1}


@pytest.mark.parametrize(
    ("under", "over", "entry"),
    [
        (MIX, "median", "median"),  # another part drops the parameters of the one it replaces
        (MIX, {"name": "mix", "b": 2}, {"name": "mix", "b": 2}),
        (MIX, "mix", MIX),
        (MIX, {"b": 2}, {"name": "mix", "a": 1, "b": 2}),  # parameters alone go on top
        ("mix", {"a": 1}, MIX),
        ({"a": 1}, "mix", MIX),
        (None, {"a": 1}, {"a": 1}),
    ],
)
def test_a_part_is_laid_on_another(under: Any, over: Any, entry: Any) -> None:
    assert merge_nested({"policy": {"aggregator": under}}, {"policy": {"aggregator": over}}) == {
        "policy": {"aggregator": entry}
    }


def test_an_experiment_can_be_hashed() -> None:
    keys: dict[str, Any] = {"radio.channel": {"name": "rician", "k_factor": 8}, "tracker": ["tensorboard"]}
    one, same = experiment(keys), experiment(dump(experiment(keys)))
    assert (one, hash(one)) == (same, hash(same))
    assert len({one, same, experiment(keys, "radio.channel.k_factor=9")}) == 2
    one.radio.channel.args["k_factor"] = 9  # a copy
    assert one == same
    assert experiment("radio.channel.k_factor=8", "radio.channel=rician").radio.channel == one.radio.channel


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("radio.channel_args={k_factor: 8}", r"radio\.channel_args is not a key: did you mean radio\.channel"),
        ("codec.args.scaled=false", r"codec\.args is not a key"),
        (
            "timeline.name.period=2",
            r"^timeline='periodic': period=2 cannot .*: it has a key of its own, timeline\.period$",
        ),
    ],
)
def test_one_way_to_give_a_parameter(word: str, says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        experiment(word)


# ---- bad input: one line each, with the value and the remedy


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"policy": {"limt": 3}}, ["policy.limt is not a key", "did you mean policy.limit?"]),
        ({"polcy": {"limit": 3}}, ["polcy is not a key", "did you mean policy"]),
        ({"num_devices": 3}, ["did you mean fleet.num_devices?"]),
        ({"xyzzy": 3}, ["xyzzy is not a key", "--keys"]),
        ({"policy": {"limit": 41}}, ["policy.limit=41", "exceeds fleet.num_devices=40", "lower it"]),
        ({"fleet": {"num_devices": 0}}, ["fleet.num_devices=0", "greater than or equal to 1"]),
        ({"fleet": {"num_devices": -3}}, ["fleet.num_devices=-3"]),
        ({"policy": {"limit": 0}}, ["policy.limit=0"]),
        ({"radio": {"snr_db": "loud"}}, ["radio.snr_db='loud'", "valid number"]),
        ({"radio": {"snr_db": math.nan}}, ["radio.snr_db=nan", "finite"]),
        ({"radio": {"snr_db": math.inf}}, ["radio.snr_db=inf", "finite"]),
        ({"radio": {"snr_db": 1e5}}, ["radio.snr_db=100000.0", "less than or equal to 300"]),
        ({"radio": {"num_symbols": -1}}, ["radio.num_symbols=-1"]),
        ({"radio": {"large_scale": [1.0, 2.0]}}, ["2 values", "fleet.num_devices=40"]),
        ({"radio": {"large_scale": -1}}, ["radio.large_scale=-1", "greater than 0"]),
        ({"timeline": {"period": 36}}, ["timeline.horizon=35.0", "36.0", "lengthen the horizon"]),
        ({"framework": "fedavg", "timeline": {"horizon": 0.5}}, ["timeline.horizon=0.5", "1.0"]),
        ({"timeline": {"period": 0}}, ["timeline.period=0"]),
        ({"timeline": {"name": "buffered", "buffer_size": 50}}, ["timeline.buffer_size=50", "never fill"]),
        ({"fleet": {"min_duration": 2.0}}, ["fleet.min_duration=2 ", "fleet.max_duration=1;"]),
        ({"policy": {"age_base": 0}}, ["policy.age_base=0", "gamma"]),
        ({"learning": {"local_steps": 3, "local_epochs": 3}}, ["exactly one"]),
        ({"learning": {"local_epochs": None}}, ["exactly one"]),
        ({"learning": {"trainer": "jax"}}, ["learning.trainer='jax'", "Known: native, torch"]),
        ({"framework": "fedavgg"}, ["framework='fedavgg'", "'fedavg'"]),
        ({"seed": -1}, ["seed=-1"]),
        ({"seed": 1.5}, ["seed=1.5"]),
        ({"policy": 3}, ["policy=3: it is a group of keys", "name one of policy.scheduler,", "policy.limit"]),
        ({"data": "mnist"}, ["data='mnist': it is a group of keys", "data.name"]),
        ({"codec": {"num_levels": 0}}, ["codec.num_levels=0"]),
    ],
)
def test_bad_input_is_one_clear_line(tree: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(FedtideError) as caught:
        experiment(tree)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    assert caught.value.exit_code == 2


def test_the_nearest_key_of_a_group_is_inside_it() -> None:
    assert config.nearest_key("policy").startswith(": it is a group of keys; name one of policy.scheduler, ")
    assert "did you mean policy?" not in config.nearest_key("policy")
    assert config.nearest_key("polic.limit") == ": did you mean policy.limit?"


values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=9), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*config.Experiment.model_fields, "x"]), values))
def test_nothing_but_our_own_error_comes_out(tree: dict[str, Any]) -> None:
    with contextlib.suppress(FedtideError):
        e = experiment(tree)
        assert experiment(dump(e)) == e


# ---- words and files


def test_overrides() -> None:
    tree = parse_overrides(["policy.limit=4", "seed=7", "policy.aggregator={mixing: 0.4}", "data.folder=a=b"])
    assert tree == {"policy": {"limit": 4, "aggregator": {"mixing": 0.4}}, "seed": 7, "data": {"folder": "a=b"}}
    assert parse_overrides(["policy.aggregator.mixing=0.4"]) == {"policy": {"aggregator": {"mixing": 0.4}}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy.limit"], "not key=value"),
        (["policy.limit={"], "cannot be read"),
    ],
)
def test_bad_overrides(words: list[str], message: str) -> None:
    with pytest.raises(FedtideError, match=message) as caught:
        parse_overrides(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "experiment file not found"),
        (b"- 1\n- 2", "holds a list"),
        (b"a: [", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"1: 2", "key 1 is not a word"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "e.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FedtideError, match=message) as caught:
        read_yaml_file(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("policy:\n  limit: 3\nseed: 9\n")
    e = experiment(read_yaml_file(path), parse_overrides(["policy.limit=5"]))
    assert (e.seed, e.policy.limit) == (9, 5)
    path.write_text("")
    assert read_yaml_file(path) == {}


def test_words(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("policy: {limit: 3, age_base: 0.5}\nseed: 9\n")
    assert config.read_words([]) == {}
    assert config.read_words(["policy.limit=5"]) == {"policy": {"limit": 5}}
    merged = config.read_words([str(path), "policy.limit=5"])
    assert merged == {"policy": {"limit": 5, "age_base": 0.5}, "seed": 9}
    path.write_text("seeds: 9\n")
    with pytest.raises(FedtideError, match=r"did you mean seed\?"):
        experiment(config.read_words([str(path)]))


@pytest.mark.parametrize("text", ["version: 1\nname: x\nseeds: 3", "axes: {seed: [1]}", "variants: {}\nversion: 2"])
def test_a_study_is_no_experiment(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(FedtideError, match=r"s\.yaml is a study file .*: use `fedtide study run .*s\.yaml`") as caught:
        config.read_words([str(path), "seed=3"])
    assert "\n" not in str(caught.value)
    assert "not a key" not in str(caught.value)


def test_every_key_is_described() -> None:
    keys = config.all_keys()
    assert {"seed", "policy.limit", "radio.snr_db"} <= set(keys)
    assert all(field.description for field in keys.values())


def test_fedbuff_uses_its_whole_buffer():
    tree = {"framework": "fedbuff", "timeline": {"buffer_size": 12}}
    assert config.experiment(tree).policy.limit == 12
    assert config.experiment({**tree, "policy": {"limit": 5}}).policy.limit == 5
    assert config.experiment({"framework": "fedbuff"}).policy.limit == 8


def test_a_preset_does_not_give_its_arguments_to_another_policy() -> None:
    assert config.experiment({"framework": "fedasync"}).policy.aggregator.args == {"mixing": 0.4}
    mine = config.experiment({"framework": "fedasync", "policy": {"aggregator": "average_deltas"}})
    assert mine.policy.aggregator.args == {}
    same = config.experiment({"framework": "fedasync", "policy": {"aggregator": "mix"}})
    assert same.policy.aggregator.args == {"mixing": 0.4}


@pytest.mark.parametrize("timeline", [None, 5])
def test_a_group_that_is_no_mapping_is_one_line(timeline: Any) -> None:
    with pytest.raises(FedtideError, match="timeline"):
        config.experiment({"framework": "fedbuff", "timeline": timeline})


def test_a_dotted_key_stands_for_its_place() -> None:
    e = config.experiment({"policy.scheduler": "random", "policy": {"limit": 3}, "policy.aggregator.mixing": 0.5})
    assert (e.policy.scheduler.name, e.policy.limit, e.policy.aggregator.args) == ("random", 3, {"mixing": 0.5})


def test_numbers_with_exponents_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("learning: {learning_rate: 1e-2}\npolicy: {aggregator: {name: mix, mixing: 4e-1}}\n")
    tree = config.read_yaml_file(path)
    assert tree["learning"]["learning_rate"] == 0.01
    assert tree["policy"]["aggregator"] == {"name": "mix", "mixing": 0.4}
    assert config.parse_overrides(["a.b={c: 1e-1, d: -2E3, e: 1e3x, f: 1.5, g: 12}"]) == {
        "a": {"b": {"c": 0.1, "d": -2000.0, "e": "1e3x", "f": 1.5, "g": 12}}
    }


# ---- experiments out of files, experiments and words


def test_an_experiment_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("policy: {limit: 3}\nseed: 9\n")
    for named in (path, str(path)):
        e = experiment(named, {"policy.age_base": 0.5}, "seed=4")
        assert (e.policy.limit, e.policy.age_base, e.seed) == (3, 0.5, 4)


def test_keys_on_an_experiment_change_it_and_nothing_else() -> None:
    e = experiment({"framework": "fedasync", "profile": "released-code", "seed": 3, "learning": {"local_steps": 7}})
    changed = experiment(e, {"policy": {"age_base": 0.5}})
    assert dump(changed) == merge_nested(dump(e), {"policy": {"age_base": 0.5}})
    assert experiment(e) == e
    assert experiment(experiment(), e) == e
    assert experiment(e, {"framework": "fedasync"}) == e


def test_what_takes_anothers_place_on_an_experiment() -> None:
    e = experiment({"framework": "fedasync", "codec": {"name": {"name": "mine.py:x", "a": 1}}})
    assert experiment(e, {"policy": {"aggregator": "average_deltas"}}).policy.aggregator.args == {}
    assert experiment(e, {"codec": {"name": "ideal"}}).part("codec").args == {}
    steps = experiment(e, {"learning": {"local_steps": 5}})
    assert (steps.learning.local_steps, steps.learning.local_epochs) == (5, None)
    epochs = experiment(steps, {"learning": {"local_epochs": 2}})
    assert (epochs.learning.local_steps, epochs.learning.local_epochs) == (None, 2)
    with pytest.raises(FedtideError, match=r"framework='fedavg' fills in what is left out.*give the keys themselves"):
        experiment(e, {"framework": "fedavg"})


def test_a_preset_on_a_runs_own_file_is_refused(tmp_path: Path) -> None:
    """Every key is given there, and keys win over presets: the word would be ignored without a sound."""
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(dump(experiment())))
    with pytest.raises(FedtideError, match="framework='fedavg' fills in what is left out"):
        config.read_words([str(path), "framework=fedavg"])
    with pytest.raises(FedtideError, match="method='ef21' fills in what is left out"):
        config.read_words([str(path), "method=ef21"])
    assert experiment(config.read_words([str(path), "learning.local_steps=5"])).learning.local_epochs is None


def test_words_of_one_group_add_up() -> None:
    assert parse_overrides(["policy.limit=4", "policy={scheduler: random}"]) == {
        "policy": {"limit": 4, "scheduler": "random"}
    }
    assert parse_overrides(["seed=1", "seed=2"]) == {"seed": 2}


def test_policies_beside_an_experiment_file_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    mine, path = tmp_path / "sub" / "mine.py", tmp_path / "sub" / "e.yaml"
    mine.write_text("def f(candidates, limit, rng):\n    return list(range(limit))\n")
    path.write_text("policy: {scheduler: 'mine.py:f'}\n")
    monkeypatch.chdir(tmp_path / "sub")
    assert experiment("e.yaml").policy.scheduler.name == "mine.py:f"  # as it was always read
    monkeypatch.chdir(tmp_path)
    assert experiment("sub/e.yaml").policy.scheduler.name == f"{mine}:f"
    (tmp_path / "mine.py").write_bytes(mine.read_bytes())
    assert (
        experiment("sub/e.yaml").policy.scheduler.name == "mine.py:f"
    )  # what is in the working folder goes on working
    (tmp_path / "mine.py").write_text("# another\n")
    with pytest.raises(FedtideError, match="is there twice with different contents"):
        experiment("sub/e.yaml")


def test_a_long_run_is_told_of() -> None:
    assert workload.long_workload(experiment()) is None
    assert "days" in (workload.long_workload(experiment({"timeline": {"horizon": 350_000}})) or "")


@pytest.mark.parametrize(
    ("keys", "train", "test"),
    [
        ({"data.name": "cifar10"}, 50_000, 10_000),
        ({"data.name": "fashion_mnist", "data.num_train": 500}, 500, 10_000),
        ({"data.name": "svhn", "data.num_train": 10**6}, 73_257, 26_032),
        ({"data.name": "shakespeare"}, None, None),
        ({"scenario": "cross_silo"}, 50_000, 10_000),
    ],
)
def test_sizes_of_sets_that_are_imported_when_they_are_used(keys: dict[str, Any], train: int, test: int) -> None:
    e = experiment(keys)
    assert (workload.expected_dataset_size(e, "num_train"), workload.expected_dataset_size(e, "num_test")) == (
        train,
        test,
    )


@pytest.mark.parametrize("text", ["a: [1, {b: 2}]\nc: &x ~\nd: *x\n", "a: 1\na: 2", "a: [", "? x", "!!str 3", "x: 010"])
def test_without_libyaml_all_is_the_same(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def read() -> Any:
        try:
            return yaml12.parse_yaml(text)
        except yaml12.ConfigSyntaxError:
            return "refused"

    quick = read()
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert read() == quick
