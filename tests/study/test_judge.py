"""fedtide.judge: planted parts get the right verdict, cheats are refused, certificates hold until somebody changes something."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtide
from fedtide.errors import FedtideError
from fedtide.studies.certificate import certificate_digest, decide, tuned_settings, world_verdict
from fedtide.studies.judge_checks import check_judged_parts
from fedtide.studies.judge_input import derived_seeds, judged_part, judged_world, part_kind, tuning_grids
from fedtide.studies.verify import CertificateError, verify_certificate

WORLD = """
data: {name: synthetic, num_train: 300, num_test: 100, partition: iid}
fleet: {num_devices: 4}
timeline: {horizon: 2.0}
policy: {limit: 2, weighting: uniform}
learning: {model: softmax, local_epochs: 1, learning_rate: 0.1}
"""
PARTS = '''
import numpy as np


def again(model, starts, updates, weights, age):
    """The paper's aggregator, written again."""
    return (weights @ (starts.astype(float) + updates)).astype(np.float32)


def timid(model, starts, updates, weights, age):
    """Take a hundredth of every update."""
    return (model + 0.01 * (weights @ updates)).astype(np.float32)


class Scaled:
    """Take a share of every update."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def __call__(self, model, starts, updates, weights, age):
        return (weights @ starts + self.share * (weights @ updates)).astype(np.float32)


def wild(model, starts, updates, weights, age):
    """Leave what numbers can be."""
    return np.full_like(model, 3e38)


def broken(model, starts, updates, weights, age):
    raise RuntimeError("no")


def unclear(a, b, c):
    return a
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a world and parts; what was run once is kept there."""
    made = tmp_path_factory.mktemp("judge")
    (made / "tiny.yaml").write_text(WORLD)
    (made / "mine.py").write_text(PARTS)
    return made


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def judge(part: Any, **more: Any) -> fedtide.Judgement:
    return fedtide.judge(part, **{"worlds": ["tiny.yaml"], "budget": None, "store": "runs", **more})


def verdict(part: Any, **more: Any) -> str:
    (row,) = judge(part, **more).worlds
    return row.verdict


# The four answers.


def test_a_better_part(here: Path) -> None:
    found = judge("mine.py:again", against="mine.py:timid")
    (row,) = found.worlds
    assert (row.verdict, row.num_seeds < 20) == ("better", True)
    assert row.low is not None
    assert row.low > 0
    assert "mine.py:again against mine.py:timid" in repr(found)
    assert "tiny.yaml: better" in repr(found)
    assert json.loads(json.dumps(found.as_json()))["worlds"][0]["verdict"] == "better"
    assert list(found.table()["verdict"]) == ["better"]


def test_the_same_algorithm_written_again_makes_no_difference(here: Path) -> None:
    assert verdict("mine.py:again", margin=0.02) == "no difference above 0.02"


def test_what_is_not_resolved_is_said_to_be_so(here: Path) -> None:
    assert verdict("mine.py:again", seeds=2) == "not resolved"


def test_one_that_diverges_with_every_setting_is_worse(here: Path) -> None:
    (row,) = judge("mine.py:wild").worlds
    assert (row.verdict, row.num_seeds) == ("worse", 6)
    assert row.note == "diverged, or did not reach the target: the part on 6 seeds, the other on 0"


def test_one_that_raises_is_told_with_its_line(here: Path) -> None:
    with pytest.raises(FedtideError, match=r"broken.*RuntimeError: no.*mine\.py") as error:
        judge("mine.py:broken")
    assert error.value.exit_code == 5


def test_settings_that_diverge_leave_the_others_all_their_runs(here: Path) -> None:
    """One setting of three reaches the target, and has both tuning seeds."""
    Path("steep.yaml").write_text(WORLD.replace("learning_rate: 0.1", "learning_rate: 30"))
    (record,) = judge("mine.py:again", worlds=["steep.yaml"], seeds=2, metric="time_to_0.35").certificate["worlds"]
    first, *others = [tried["values"] for tried in record["tuning"]["part"]]
    assert others == [[None, None], [None, None]]
    assert (len(first), None in first) == (2, False)
    assert record["chosen"]["part"] == record["tuning"]["part"][0]["settings"]


def test_a_budget_of_runs_is_kept_whatever_the_workers(here: Path) -> None:
    found = [judge("mine.py:again", budget=12 + 5, margin=0, workers=workers) for workers in (1, 6)]
    assert [each.num_runs for each in found] == [16, 16]
    assert found[0].certificate == found[1].certificate
    assert verdict("mine.py:timid", workers=6) == "worse"  # decided within the second step of three seeds
    assert judge("mine.py:timid", workers=6).certificate == judge("mine.py:timid").certificate
    worlds = ["tiny.yaml", "paper"]
    with pytest.raises(FedtideError, match="need 40"):
        judge("mine.py:again", budget=39, worlds=worlds)


def test_seeds_without_a_number_decide_by_their_signs() -> None:
    """Two equally good parts that miss a target on other seeds get no verdict."""

    def word(part: list[float | None], other: list[float | None]) -> tuple[str, int]:
        found = decide(part, other, "time_to_0.9", 0.05, None)
        return found["verdict"], found["num_seeds"]

    assert word([5.0, None, 5.0], [5.0, 5.0, None]) == ("not resolved", 3)
    assert word([None] * 5, [5.0] * 5) == ("not resolved", 5)
    assert word([None] * 7, [5.0] * 7) == ("worse", 6)
    assert word([5.0] * 7, [None] * 7) == ("better", 6)
    assert word([None, *[5.0] * 9], [5.0, *[None] * 9]) == ("not resolved", 10)
    assert word([None, 5.0, 5.1, 5.2, 5.1], [None, 9.0, 9.2, 9.1, 9.3])[0] == "better"


def test_the_first_look_that_decides_counts() -> None:
    part = [0.9, 0.91, 0.92, 0.9, 0.91, 0.92]
    other = [0.5, 0.52, 0.51, 0.5, 0.52, 0.51]
    first = decide(part, other, "mean_accuracy", 0.05, 0.01)
    assert first["verdict"] == "better"
    assert decide([*part, 0.0, 0.0], [*other, 1.0, 1.0], "mean_accuracy", 0.05, 0.01) == first
    assert decide(other, part, "mean_accuracy", 0.05, 0.01)["verdict"] == "worse"
    assert decide(part, other, "time_to_0.9", 0.05, None)["verdict"] == "worse"


# What is compared, and on which seeds.


def test_both_sides_have_as_many_settings(here: Path) -> None:
    part, world = judged_part("policy.aggregator=mine.py:Scaled"), judged_world("tiny.yaml")
    mine, other = tuning_grids(part, world, {"policy.aggregator.share": [0.5, 1.0]})
    assert len(mine) == len(other) == 6
    assert {each["policy.aggregator.share"] for each in mine} == {0.5, 1.0}
    for times in (1, 2, 3, 4):
        _, other = tuning_grids(part, world, {"policy.aggregator.share": list(range(times))})
        rates = [each["learning.learning_rate"] for each in other]
        assert len({*rates}) == 3 * times
        assert 0.1 in rates
        assert 0.1 / 3 <= min(rates) < max(rates) <= 0.1 * 3
    with pytest.raises(FedtideError, match="names no parameter of what is judged"):
        judge("mine.py:Scaled", tune={"learning.learning_rate": [1.0]})


def test_the_best_mean_is_chosen_among_those_that_never_diverge() -> None:
    values = {"a": [0.5, 0.6], "b": [0.9, None], "c": [0.6, 0.6], "d": [None, None]}
    tried = [{"settings": {"x": name}, "values": numbers} for name, numbers in values.items()]
    assert tuned_settings(tried, "mean_accuracy") == {"x": "c"}
    assert tuned_settings(tried, "time_to_0.9") == {"x": "a"}
    assert tuned_settings(tried[::2], "mean_accuracy") == {"x": "c"}
    assert tuned_settings(tried[3:0:-2], "time_to_0.9") == {"x": "b"}


def test_gamma_is_tuned_where_it_is_read() -> None:
    part, world = judged_part("policy.scheduler=random"), judged_world("paper")
    assert len(tuning_grids(part, world, {})[0]) == 6
    assert len(tuning_grids(judged_part("policy.weighting=uniform"), world, {})[0]) == 3


def test_a_changed_file_gets_other_seeds(here: Path) -> None:
    def seeds(given: str = "mine.py:again", salt: str = "", use: str = "judging") -> list[int]:
        return derived_seeds(judged_part(given), judged_world("tiny.yaml").digest, {}, salt, use, 3)

    first = seeds()
    assert first == seeds() == seeds(str(here / "mine.py:again"))  # wherever it lies
    others = [seeds(use="tuning"), seeds(salt="referee"), seeds("mine.py:timid")]
    Path("other.py").write_text(PARTS + "# changed\n")
    others += [seeds("other.py:again")]
    assert not {*first} & {seed for each in others for seed in each}


def test_worlds_are_shortened_by_a_fixed_rule() -> None:
    world = judged_world("macro_cell")
    e, whole = world.experiment, judged_world("macro_cell", whole=True).experiment
    assert (e.data.num_train, e.data.num_test, e.timeline.horizon) == (6000, 1000, 300.0)
    assert e.fleet.cycles_per_sample == 10 * whole.fleet.cycles_per_sample  # trainings take as long
    assert set(world.changed) >= {"data.num_train", "timeline.horizon", "learning.learning_rate"}
    assert judged_world("macro_cell", whole=True).changed == {}


REMEMBERS = """class part:
    def init(self, model): ...
    def __call__(self, memory, model, starts, updates, weights, age, device): ..."""
ENCODES = """class part:
    def encode(self, update, budget_bits, rng): ...
    def decode(self, packet): ...
    def num_kept(self, num_parameters, budget_bits): ..."""


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def part(candidates, limit, rng): ...", "scheduler"),
        ("class part:\n    def __call__(self, num_samples, age): ...", "weighting"),
        ("def part(capacity, num_symbols, share=0.5): ...", "allocation"),
        (REMEMBERS, "aggregator"),
        (ENCODES, "codec"),
    ],
)
def test_the_kind_follows_from_the_arguments(here: Path, source: str, kind: str) -> None:
    Path("kinds.py").write_text(source)
    assert part_kind("kinds.py:part") == kind


# What is refused.

CHEATS = {
    "clock": ("import time\n", "time.time()", "cheat.py:1: time is not among the modules that only compute"),
    "numpy's own draws": (
        "import numpy as np\n",
        "np.random.default_rng()",
        "cheat.py:3: numpy.random.default_rng draws",
    ),
    "draws by name": ("from numpy import random as r\n", "r.rand()", "cheat.py:1: numpy.random draws"),
    "files": ("", "open('seeds')", "cheat.py:2: open reads or writes files"),
    "arrays in files": ("import numpy as np\n", "np.load('x.npy')", "numpy.load reads or writes files"),
    "the test set": ("from fedtide.data import mnist\n", "0", "fedtide.data.mnist looks into the simulator"),
    "runs": ("import fedtide\n", "fedtide.simulate", "fedtide.simulate looks into the simulator"),
    "the seed": ("", "rng.bit_generator.seed_seq.entropy", "looks into the simulator"),
    "the seed by name": ("", "getattr(rng, 'bit_' + 'generator')", "getattr looks into the simulator"),
    "frames": ("import sys\n", "sys._getframe()", "sys is not among the modules"),
    "code from text": ("", "eval('1')", "eval runs code that cannot be read"),
    "compressed files": ("import bz2\n", "bz2.open('x')", "bz2.open reads or writes files"),
    "other compressed files": ("from lzma import LZMAFile\n", "LZMAFile('x')", "lzma.LZMAFile reads or writes files"),
    "arrays to files": ("import numpy as np\n", "np.savez_compressed('x')", "numpy.savez_compressed reads or writes"),
    "arrays by pattern": ("import numpy as np\n", "np.fromregex('x', 'y', 'z')", "numpy.fromregex reads or writes"),
    "records": ("import numpy as np\n", "np.rec.fromfile('x')", "numpy.rec.fromfile reads or writes"),
    "all names": ("from numpy import *\n", "random.rand()", "numpy.* imports names that cannot be read"),
    "another name": (
        "import numpy as np\nxp = np\n",
        "xp.random.rand()",
        "cheat.py:2: numpy is a module under another",
    ),
    "attributes later": ("import operator\n", "operator.attrgetter('x')", "operator.attrgetter looks into"),
    "methods later": ("from operator import methodcaller\n", "methodcaller('x')", "operator.methodcaller looks into"),
    "getattr later": ("", "list(map(getattr, [rng], ['x']))", "getattr looks into"),
    "patterns": ("", "match rng:\n        case object(bit_generator=b): pass", "cheat.py:3: bit_generator looks into"),
    "texts": ("", "'{0.bit_generator}'.format(rng)", "bit_generator looks into"),
    "modules in modules": ("import dataclasses\n", "dataclasses.sys.modules", "dataclasses.sys.modules looks into"),
    "files in modules": ("import bz2\n", "bz2.io.open('x')", "bz2.io.open looks into"),
    "NumPy from us": ("from fedtide.types import np\n", "np.random.rand()", "fedtide.types.np looks into"),
    "a local name that is none": ("", "[0 for vars in ()], vars(rng)", "cheat.py:2: vars looks into"),
    "text as code": ("import typing\n", "typing.get_type_hints(part)", "cheat.py:3: typing.get_type_hints runs code"),
    "code in a text": ("", "x = '__import__(0)'", "cheat.py:2: __import__ looks into"),
    "files of scipy": ("from scipy import sparse\n", "sparse.load_npz('x')", "cheat.py:3: scipy.sparse.load_npz reads"),
    "a default": ("", "(lambda vars=vars: vars(rng))()", "cheat.py:2: vars looks into"),
}

HONEST = '''
"""It leaves rng.bit_generator alone."""
from __future__ import annotations

import collections.abc
from typing import Annotated

import numpy as np
import scipy.signal
from fedtide import arg
from fedtide.types import Candidates, Ints
from scipy import special


class part:
    def __init__(self, share: Annotated[float, arg("how many")] = 1.0) -> None:
        self.share = share

    def __call__(self, candidates: Candidates, limit: int, rng: np.random.Generator) -> Ints:
        id, input, hash = candidates.device, special.expit(candidates.capacity), [vars for vars in range(3)]
        name = self.__class__.__name__ + type(rng).__name__
        best = np.argsort(input, kind="stable")[:limit] if isinstance(id, np.ndarray) else hash
        return np.asarray(getattr(self, "picked", best), np.int64) if name else np.copy(best)
'''


def test_an_honest_source_is_not_refused(here: Path) -> None:
    Path("honest.py").write_text(HONEST)
    assert judged_part("honest.py:part").keys == {"policy.scheduler": "honest.py:part"}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_refused_before_it_is_imported(here: Path, cheat: str) -> None:
    imports, call, line = CHEATS[cheat]
    Path("cheat.py").write_text(f"{imports}def part(candidates, limit, rng):\n    {call}\n    return range(limit)\n")
    with pytest.raises(FedtideError) as error:
        judge("cheat.py:part")
    assert line in str(error.value)
    assert "--allow" in str(error.value)
    assert "\n" not in str(error.value)
    assert "fedtide_user_" not in "".join(name for name in sys.modules if "cheat" in name)


def test_helpers_are_read_too_and_exceptions_can_be_made(here: Path) -> None:
    Path("judged_helper.py").write_text("import time\n\ndef most(limit):\n    return range(limit)\n")
    Path("cheat.py").write_text(
        "from judged_helper import most\n\ndef part(candidates, limit, rng):\n    return most(limit)\n"
    )
    with pytest.raises(FedtideError, match=r"judged_helper\.py:1: time"):
        judge("cheat.py:part")
    assert judged_part("cheat.py:part", allow=["time"]).allowed == ("time",)


def test_hidden_state_is_found(here: Path) -> None:
    Path("state.py").write_text("""
calls = []

def part(candidates, limit, rng):
    calls.append(1)
    return [(len(calls) + i) % len(candidates.device) for i in range(limit)]
""")
    with pytest.raises(FedtideError, match="another answer"):
        judge("state.py:part")


CODEC = """
import numpy as np
from fedtide.codec.base import packet

KEPT = {{}}

class Codec:
    def encode(self, update, budget_bits, rng):
        made = packet(200, len(update), 1, {payload}, {bits})
        KEPT[made.data] = update.copy()
        return made

    def decode(self, packet):
        return KEPT.get(packet.data, np.zeros(packet.num_parameters, np.float32))

    def num_kept(self, num_parameters, budget_bits):
        return 1
"""


def test_a_codec_that_sends_past_the_channel_is_refused(here: Path) -> None:
    Path("codec.py").write_text(CODEC.format(payload="update[:1].tobytes()", bits=32))
    with pytest.raises(FedtideError, match="decodes a packet otherwise in another process"):
        judge("codec.py:Codec")
    Path("codec.py").write_text(CODEC.format(payload="bytes(500_000)", bits=4_000_000))
    with pytest.raises(FedtideError, match=r"encoded to 4000000 bits, and [\d.]+ were granted"):
        judge("codec.py:Codec")


def test_a_codec_that_is_honest_with_small_updates_is_refused(here: Path) -> None:
    honest = "        if len(update) == 2000:\n            return packet(200, 2000, 1, update[:1].tobytes(), 32)\n"
    source = CODEC.format(payload="update[:1].tobytes()", bits=32)
    Path("codec.py").write_text(source.replace("        made =", f"{honest}        made =", 1))
    with pytest.raises(FedtideError, match="decodes a packet otherwise in another process"):
        judge("codec.py:Codec")


def test_a_codec_that_raises_or_returns_no_packet_is_told(here: Path) -> None:
    Path("codec.py").write_text(CODEC.format(payload="1 / 0", bits=32))
    with pytest.raises(FedtideError, match=r"ZeroDivisionError.*codec\.py"):
        judge("codec.py:Codec")
    Path("codec.py").write_text(CODEC.format(payload="b''", bits=0).replace("return made", "return 3"))
    with pytest.raises(FedtideError, match="encoded to a int: return"):
        judge("codec.py:Codec")
    Path("codec.py").write_text(
        CODEC.format(payload="bytes(4)", bits=32).replace("KEPT.get(packet.data, ", "(KEPT[packet.data], ")
    )
    with pytest.raises(FedtideError, match=r"decodes a packet otherwise in another process.*KeyError"):
        judge("codec.py:Codec")


ASKS = {
    "seed": """
from typing import Annotated
from fedtide import arg

class part:
    def __init__(self, own: Annotated[int, arg(key="seed")]) -> None:
        self.own = own

    def __call__(self, candidates, limit, rng):
        return range(limit)
""",
    "outcome": """
def part(candidates, limit, rng):
    return range(limit)

part.needs = ("outcome",)
""",
}


@pytest.mark.parametrize("what", ASKS)
def test_a_part_that_asks_for_what_nobody_knows_is_refused(here: Path, what: str) -> None:
    Path("asks.py").write_text(ASKS[what])
    with pytest.raises(FedtideError, match=f"asks.py:part asks for {what}, which .* --allow {what}"):
        judge("asks.py:part")
    check_judged_parts(judged_part("asks.py:part", allow=[what]), judged_world("tiny.yaml").experiment)


@pytest.mark.parametrize(
    ("given", "more", "line"),
    [
        ("none.py:x", {}, "file none.py not found"),
        ("random", {"kind": "scheduler", "tune": {"policy.scheduler.alpha": [1, 2]}}, "alpha"),
        ("mine.py:nothing", {}, "mine.py has no 'nothing'"),
        ("mine.py:unclear", {}, "cannot be told from the names of its arguments: add --kind"),
        ("mine.py:again", {"kind": "channel"}, "kind='channel' cannot be judged"),
        ("radio.channel=mine.py:again", {}, "radio.channel='mine.py:again' is not a part of a method"),
        ("os.path:join", {}, "is not a part"),
        ("mine.py:again", {"worlds": ["papr"]}, "neither a scenario nor an experiment file; did you mean paper?"),
        ("mine.py:again", {"worlds": []}, "give at least one"),
        ("mine.py:again", {"budget": 3}, "tuning both sides and one pair in each world need"),
        ("mine.py:again", {"budget": "1s", "worlds": ["tiny.yaml", "paper"]}, "raise --budget"),
        ("mine.py:again", {"budget": "soon"}, "budget='soon' must be"),
        ("mine.py:again", {"metric": "nothing"}, "nothing"),
        ("mine.py:again", {"against": "nothing"}, "'nothing' is not known"),
        ("mine.py:again", {"seeds": 1}, "seeds=1 must be"),
        ("mine.py:again", {"level": 0.7}, "level=0.7 must be"),
        ("mine.py:again", {"metric": "mean_train_loss"}, "metric mean_train_loss is not known of tiny.yaml, part"),
        (["mine.py:again", "mine.py:timid"], {}, "several parts need their keys"),
        ("mine.py:again", {"allow": "time"}, "allow='time' must be a list"),
        ("mine.py:again", {"against": "policy.scheduler=random"}, "against names policy.scheduler, which the judged part"),
        ("mine.py:Scaled", {"tune": {"policy.aggregator.share": np.ones((2, 2))}}, "cannot be written to a certificate"),
        ("average_models", {}, "is compared with itself"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(here: Path, given: Any, more: dict[str, Any], line: str) -> None:
    with pytest.raises(FedtideError) as error:
        judge(given, **more)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


# Certificates.


@pytest.fixture(scope="module")
def certified(folder: Path) -> Path:
    """The same folder with a certificate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (row,) = judge("mine.py:timid", out="certificate.json").worlds
    assert row.verdict == "worse"
    return folder


@pytest.fixture
def copied(certified: Path, tmp_path: Path) -> Path:
    """The certificate and the file, elsewhere."""
    for name in ("certificate.json", "mine.py"):
        (tmp_path / name).write_bytes((certified / name).read_bytes())
    return tmp_path / "certificate.json"


def test_a_worse_part_has_a_certificate_that_holds_wherever_it_lies(copied: Path) -> None:
    found = verify_certificate(copied, runs=None)
    assert (found.exact, found.verdicts) == (True, {"tiny.yaml": "worse"})
    assert found.repeated == found.num_runs > 2 * 2 * 3


def test_judged_again_with_the_same_store_nothing_runs(certified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(certified)
    done: list[Any] = []
    again = judge("mine.py:timid", on_done=done.append)
    assert done == []
    assert again.certificate == json.loads(Path("certificate.json").read_text())


def test_a_world_with_parts_of_its_own_is_verified_wherever_it_lies(here: Path, tmp_path: Path) -> None:
    world = here / "worlds" / "own"
    world.mkdir(parents=True)
    (world / "fading.py").write_text("def fading(seed, tick, time, device):\n    return 10.0 + device\n")
    (world / "world.yaml").write_text(WORLD + "radio: {channel: fading.py:fading}\n")
    judge("mine.py:timid", worlds=["worlds/own/world.yaml"], seeds=2, out=tmp_path / "made" / "certificate.json")
    made = tmp_path / "made"
    text = (made / "certificate.json").read_text()
    assert str(here) not in text
    (record,) = json.loads(text)["worlds"]
    assert [*record["files"]] == ["fading.py:fading"]
    for file in (here / "mine.py", world / "fading.py"):
        (made / file.name).write_bytes(file.read_bytes())
    assert verify_certificate(made / "certificate.json", runs=2).exact
    (made / "fading.py").write_text("def fading(seed, tick, time, device):\n    return 11.0 + device\n")
    with pytest.raises(CertificateError, match=r"fading\.py:fading is not the file of the certificate"):
        verify_certificate(made / "certificate.json", runs=0)


def _number(tree: dict[str, Any]) -> None:
    record = tree["worlds"][0]
    record["judging"]["part"][0] += 0.001
    record["verdict"] = world_verdict(record, "mean_accuracy", 0.05, 0.01)


def _tuning_number(tree: dict[str, Any]) -> None:
    tree["worlds"][0]["tuning"]["part"][0]["values"][0] += 0.9


def _verdict(tree: dict[str, Any]) -> None:
    tree["worlds"][0]["verdict"]["verdict"] = "better"


def _seed(tree: dict[str, Any]) -> None:
    tree["worlds"][0]["judging"]["seeds"][0] += 1


def _world(tree: dict[str, Any]) -> None:
    tree["worlds"][0]["experiment"]["policy"]["limit"] = 1


def _grid(tree: dict[str, Any]) -> None:
    del tree["worlds"][0]["tuning"]["against"][1:]


def _missing(tree: dict[str, Any]) -> None:
    tree["worlds"][0]["tuning"]["against"][2]["values"].pop()


def _padding(tree: dict[str, Any]) -> None:
    for tried in tree["worlds"][0]["tuning"]["against"]:
        tried["values"].append(0.0)


def _unpaired(tree: dict[str, Any]) -> None:
    tree["worlds"][0]["judging"]["against"].pop()


def _file(tree: dict[str, Any]) -> None:
    tree["part"]["files"]["mine.py"] = "0" * 64


def _extra_file(tree: dict[str, Any]) -> None:
    tree["part"]["files"] = {}


def _level(tree: dict[str, Any]) -> None:
    tree["level"] = 0.9


def _damage(tree: dict[str, Any]) -> None:
    del tree["worlds"][0]["judging"]


FORGERIES = [
    (_number, "the certificate says"),
    (_tuning_number, "the settings chosen for part do not follow"),
    (_verdict, "does not follow from the numbers, which say 'worse'"),
    (_seed, "the judging seeds do not follow from the file"),
    (_world, "the world is another one"),
    (_grid, "against was not tuned as the rule says"),
    (_missing, "against does not have 2 tuning runs per setting"),
    (_padding, "against does not have 2 tuning runs per setting"),
    (_unpaired, "against does not have one number per judging seed"),
    (_file, "mine.py is not the file of the certificate"),
    (_extra_file, "mine.py is not the file of the certificate"),
    (_level, "no judge writes level=0.9"),
    (_damage, "is damaged: KeyError 'judging'"),
]


@pytest.mark.parametrize(("forge", "line"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_a_forged_certificate_does_not_hold(copied: Path, forge: Callable[[Any], None], line: str) -> None:
    tree = json.loads(copied.read_text())
    forge(tree)
    copied.write_text(json.dumps(tree))
    with pytest.raises(CertificateError, match="its digest is not that of its content"):
        verify_certificate(copied)
    copied.write_text(json.dumps({**tree, "digest": certificate_digest(tree)}))
    with pytest.raises(CertificateError) as error:
        verify_certificate(copied, runs=None if forge is _number else 0)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_certificate_runs_nothing_that_is_no_part(copied: Path, tmp_path: Path) -> None:
    tree = json.loads(copied.read_text())
    tree["worlds"][0]["experiment"]["data"]["name"] = {"name": "os:system", "command": f"touch {tmp_path / 'seen'}"}
    tree["digest"] = certificate_digest(tree)
    copied.write_text(json.dumps(tree))
    with pytest.raises(CertificateError, match=r"would run os:system, which need not be a part.*--allow os:system"):
        verify_certificate(copied)
    assert not (tmp_path / "seen").exists()


def test_a_changed_file_does_not_hold(copied: Path) -> None:
    copied.with_name("mine.py").write_text(PARTS + "# changed\n")
    with pytest.raises(CertificateError, match=r"mine\.py is not the file of the certificate"):
        verify_certificate(copied, runs=0)


def test_on_another_instruction_path_numbers_need_only_be_close(copied: Path) -> None:
    tree = json.loads(copied.read_text())
    tree["instruction_paths"] = ["elsewhere"]
    for each in tree["worlds"][0]["tuning"]["against"]:
        each["values"] = [value + 1e-6 for value in each["values"]]
    copied.write_text(json.dumps({**tree, "digest": certificate_digest(tree)}))
    some = verify_certificate(copied, runs=2)
    assert (some.exact, some.note) == (False, "within 0.02, which cannot confirm smaller differences")
    assert (some.settings["part"], some.settings["level"]) == ("mine.py:timid", 0.05)


def test_an_invented_instruction_path_does_not_buy_a_verdict(here: Path, tmp_path: Path) -> None:
    """Every number of one side is raised by less than the tolerance."""
    tree = judge("mine.py:again", margin=0, seeds=8).certificate
    (record,) = tree["worlds"]
    assert record["verdict"]["verdict"] == "not resolved"
    record["judging"]["part"] = [value + 0.015 for value in record["judging"]["part"]]
    record["verdict"] = world_verdict(record, "mean_accuracy", 0.05, None)
    tree["instruction_paths"] = ["elsewhere"]
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps({**tree, "digest": certificate_digest(tree)}))
    assert record["verdict"]["verdict"] == "better"
    with pytest.raises(CertificateError, match="the repeated runs, on another instruction path, say 'not resolved'"):
        verify_certificate(forged, runs=None)


def test_the_command_line_tells_and_verifies(certified: Path) -> None:
    def fedtide_judge(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fedtide", "judge", *words]
        return subprocess.run(command, cwd=certified, capture_output=True, text=True, check=False)

    told = fedtide_judge("mine.py:timid", "--in", "tiny.yaml", "--store", "runs", "--json", "-j", "1")
    assert json.loads(told.stdout)["worlds"][0]["verdict"] == "worse", told.stderr
    holds = fedtide_judge("--verify", "certificate.json", "--runs", "1")
    assert (holds.returncode, holds.stdout.startswith("the certificate holds: tiny.yaml worse")) == (0, True)
    assert "part: mine.py:timid\nagainst: average_models\nmetric: mean_accuracy\n" in holds.stdout
    assert holds.stdout.endswith("salt: none\nallowed: none\n")
    (certified / "wrong.json").write_text("{}")
    wrong = fedtide_judge("--verify", "wrong.json")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    nothing = fedtide_judge()
    assert (nothing.returncode, "nothing to judge" in nothing.stderr) == (2, True)
