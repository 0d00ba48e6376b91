"""The form of a trace: which fields a line has, of which type, in which range and of which length.

A trace is read by people's tools, copied between machines and edited by hand: nothing in it is taken for granted. Everything
here raises ValueError with the field, the value and what it must be.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fedtide.core import strict_json

LARGEST_NODE: Final = 2**64 - 1  # Flower's node numbers
LARGEST_COUNT: Final = 2**53  # whole numbers stay exact in the scheduler's float64
LARGEST: Final = sys.float_info.max
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Range(NamedTuple):
    """A number from low to high; whole, or any finite one."""

    low: float
    high: float
    whole: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise unless value is such a number. True is none, nor is a number in quotes, NaN or infinity."""
        right = type(value) is int or (type(value) is float and not self.whole)
        if not right or not self.low <= value <= self.high:
            kind = "a whole number" if self.whole else "a number"
            top = "" if self.high in (LARGEST, LARGEST_COUNT, LARGEST_NODE) else f" to {self.high:g}"
            raise ValueError(f"{name} is {_shown(value)}; it must be {kind} from {self.low:g}{top}")


SECONDS: Final = Range(0.0, LARGEST)
AMOUNT: Final = Range(0.0, LARGEST)
NODE: Final = Range(0, LARGEST_NODE, whole=True)


def parsed(line: bytes) -> dict[str, Any]:
    """Return the mapping that a line of JSON holds: no NaN, no field twice, not nested beyond reason."""
    tree = strict_json.parse(line)
    if not isinstance(tree, dict):
        raise ValueError(f"it is {_shown(tree)}, not a mapping")
    return tree


def check_header(tree: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Check the first line, whose fields must be these."""
    _check_fields(tree, fields)
    Range(1, LARGEST_COUNT, whole=True).check("num_devices", tree["num_devices"])
    Range(sys.float_info.min, LARGEST).check("num_symbols", tree["num_symbols"])
    _check_word("isa", tree["isa"])
    _check_mapping("deployment", tree["deployment"])
    if tree.get("experiment") is not None:
        _check_word("experiment", tree["experiment"])


def check_period(tree: Mapping[str, Any], fields: Sequence[str], tick: int, num_devices: int) -> None:
    """Check the line of period `tick` in a federation of N devices, whose fields must be these."""
    _check_fields(tree, fields)
    device = Range(0, num_devices - 1, whole=True)
    if type(tree["tick"]) is not int or tree["tick"] != tick:
        raise ValueError(f"tick is {_shown(tree['tick'])}; the periods must count 1, 2, ... and this is the {tick}th")
    SECONDS.check("wall", tree["wall"])
    ready = _check_devices("ready", tree["ready"], device)
    count = len(ready)
    _check_column("start", tree["start"], count, Range(1, tick, whole=True))
    _check_column("node", tree["node"], count, NODE)
    _check_column("data", tree["data"], count, Range(-1, num_devices - 1, whole=True))
    for place, word in enumerate(_check_list("isa", tree["isa"], count)):
        _check_word(f"isa[{place}]", word)
    _check_column("ready_at", tree["ready_at"], count, SECONDS)
    _check_column("learning_rate", tree["learning_rate"], count, Range(sys.float_info.min, LARGEST))
    _check_column("num_samples", tree["num_samples"], count, Range(1, LARGEST_COUNT, whole=True))
    _check_counts(tree["label_counts"], tree["num_samples"])
    _check_column("capacity", tree["capacity"], count, AMOUNT)
    if tree["update_sq_norm"] is not None:
        _check_column("update_sq_norm", tree["update_sq_norm"], count, AMOUNT)
    if tree.get("loss") is not None:
        _check_column("loss", tree["loss"], count, AMOUNT)
    if tree.get("forgot") is not None:
        for kind, devices in _check_mapping("forgot", tree["forgot"]).items():
            _check_word("forgot", kind)
            _check_subset(f"forgot.{kind}", devices, device, ready, "ready")
    picked = _check_subset("picked", tree["picked"], device, ready, "ready")
    _check_column("symbols", tree["symbols"], len(picked), AMOUNT)
    _check_column("bits", tree["bits"], len(picked), AMOUNT)
    arrived = _check_subset("arrived", tree["arrived"], device, picked, "picked")
    _check_column("arrived_at", tree["arrived_at"], len(arrived), SECONDS)
    if tree.get("lost") is not None:
        missing = [each for each in picked if each not in arrived]
        _check_subset("lost", tree["lost"], device, missing, "picked without having arrived")
    for place, refusal in enumerate(_check_list("refused", tree["refused"], None)):
        _check_refusal(f"refused[{place}]", refusal, device)
    _check_digest("model", tree["model"])
    for name, values in (("nodes", NODE), ("rate", AMOUNT)):
        for key, value in _check_mapping(name, tree[name]).items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,15}", key) or int(key) >= num_devices:
                raise ValueError(f"{name} has the key {_shown(key)}; it must be a device from 0 to {num_devices - 1}")
            values.check(f"{name}[{key}]", value)


def _check_fields(tree: Mapping[str, Any], fields: Sequence[str]) -> None:
    lacking, foreign = [each for each in fields if each not in tree], [each for each in tree if each not in fields]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking[:5])}")
    if foreign:
        raise ValueError(f"it has {', '.join(_shown(each) for each in foreign[:5])}, which is no field of it")


def _check_list(name: str, values: Any, count: int | None) -> list[Any]:
    """Return a list of so many entries."""
    if not isinstance(values, list):
        raise ValueError(f"{name} is {_shown(values)}; it must be a list")
    if count is not None and len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries; it must have {count}")
    return values


def _check_column(name: str, values: Any, count: int, allowed: Range) -> None:
    for place, value in enumerate(_check_list(name, values, count)):
        allowed.check(f"{name}[{place}]", value)


def _check_devices(name: str, values: Any, device: Range) -> list[int]:
    """Return device numbers, ascending."""
    found: list[int] = _check_list(name, values, None)
    for place, value in enumerate(found):
        device.check(f"{name}[{place}]", value)
        if place and value <= found[place - 1]:
            raise ValueError(f"{name}[{place}] is {value} after {found[place - 1]}; devices must ascend")
    return found


def _check_subset(name: str, values: Any, device: Range, whole: list[int], of: str) -> list[int]:
    found = _check_devices(name, values, device)
    if strangers := set(found) - set(whole):
        raise ValueError(f"{name} has device {min(strangers)}, which is not in {of}")
    return found


def _check_counts(rows: Any, num_samples: list[int]) -> None:
    """Check label counts [m c]: as many per row, and as many samples as the device has."""
    for place, row in enumerate(_check_list("label_counts", rows, len(num_samples))):
        name = f"label_counts[{place}]"
        _check_list(name, row, len(rows[0]) if isinstance(rows[0], list) else None)
        _check_column(name, row, len(row), Range(0, LARGEST_COUNT, whole=True))
        if sum(row) != num_samples[place]:
            raise ValueError(f"{name} adds up to {sum(row)}; num_samples[{place}] is {num_samples[place]}")


def _check_refusal(name: str, value: Any, device: Range) -> None:
    _check_fields(_check_mapping(name, value), ("device", "node", "why"))
    device.check(f"{name}.device", value["device"])
    NODE.check(f"{name}.node", value["node"])
    if not isinstance(value["why"], str):
        raise ValueError(f"{name}.why is {_shown(value['why'])}; it must be text")


def _check_mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_shown(value)}; it must be a mapping")
    return value


def _check_word(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > 32 or not value.isprintable():
        raise ValueError(f"{name} is {_shown(value)}; it must be a short word")


def _check_digest(name: str, value: Any) -> None:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"{name} is {_shown(value)}; it must be a SHA-256 in 64 hexadecimal digits")


def _shown(value: Any) -> str:
    """Show a value in a few characters, whatever it is."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 44 else f"{text[:40]}..."
