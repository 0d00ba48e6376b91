"""Nested mappings of keys, laid on one another, and `key=value` words. A part is one entry: a name, or {name, parameters}."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fedtide.core.yaml12 import ConfigSyntaxError, parse_yaml, parse_yaml_word, shown
from fedtide.errors import FedtideError
from fedtide.parts.kinds import NAMED

PATH_KEYS: Final = ("data.folder",)  # a path may have commas in it
PART_KEYS: Final = {kind.key: name for name, kind in NAMED.items()}  # dotted key -> kind of part


def merge_nested(under: Mapping[str, Any], over: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Lay `over` on `under`, key by key.

    Another part drops the parameters of the one it replaces. Parameters without a name (`radio.channel.k_factor=8`) go on
    top of the part below. above: the group that both are in, with a dot.
    """
    laid = dict(under)
    for key, value in over.items():
        below, whole = laid.get(key), f"{above}{key}"
        if whole in PART_KEYS:
            laid[key] = _entry(below, value)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            laid[key] = merge_nested(below, value, f"{whole}.")
        else:
            laid[key] = value
    return laid


def _entry(below: Any, value: Any) -> Any:
    """Return the entry of a part, with `value` laid on what was there before."""
    if below is None:
        return value
    before = dict(below) if isinstance(below, Mapping) else {"name": below}
    if isinstance(value, Mapping) and "name" not in value:
        return {**before, **{each: _inside(before.get(each), new) for each, new in value.items()}}
    if isinstance(value, str) and before.get("name", value) == value:  # the same part again, or the name of parameters
        return {"name": value, **before} if len(before) > 1 or "name" not in before else value
    return value


def _inside(below: Any, value: Any) -> Any:
    """Return a parameter laid on what was there; parameters of a part that it names go on top of that part."""
    is_part = isinstance(below, str) or (isinstance(below, Mapping) and "name" in below)
    return _entry(below, value) if is_part and isinstance(value, Mapping) and "name" not in value else value


def without_replaced_nested(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` without the key whose place one of `over` takes: E is given in epochs or in steps."""
    learning = over.get("learning")
    for one, other in (("local_steps", "local_epochs"), ("local_epochs", "local_steps")):
        if isinstance(learning, Mapping) and learning.get(one) is not None and other not in learning:
            under = merge_nested(under, {"learning": {other: None}})
    return dict(under)


def nest(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with what has a dotted key (`policy.limit`, `radio.channel.k_factor`) inside its group."""
    nested: dict[str, Any] = {}
    for key, value in sorted(tree.items(), key=lambda item: item[0].count(".")):
        *groups, leaf = key.split(".")
        here = nested
        for depth, group in enumerate(groups, 1):
            inner = here.get(group, {})
            if isinstance(inner, str) and any(".".join(groups[:above]) in PART_KEYS for above in range(depth + 1)):
                inner = {"name": inner}
            if not isinstance(inner, Mapping):
                raise FedtideError(
                    f"{key} is inside {group}={shown(inner)}, which is not a group; give only one of the two"
                )
            here[group] = here = dict(inner)
        if leaf in here:
            raise FedtideError(f"{key} is given twice, with a dot and inside its group; keep one")
        here[leaf] = value
    return nested


def nested_to_dotted(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the leaves of nested keys by their dotted keys; a part's name stands under its key, its parameters below."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        whole = above[:-1] if key == "name" and above[:-1] in PART_KEYS else f"{above}{key}"
        flat |= nested_to_dotted(value, f"{whole}.") if isinstance(value, Mapping) and value else {whole: value}
    return flat


def split_axes(words: Iterable[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the words that give a key one value, and the keys that others give several, separated by commas.

    >>> split_axes(["seed=1", "policy.limit=2,4", "radio.channel={name: rician, k_factor: 8}"])
    (['seed=1', 'radio.channel={name: rician, k_factor: 8}'], {'policy.limit': [2, 4]})
    """
    rest, axes = [], dict[str, list[Any]]()
    for word in words:
        name, _, text = word.partition("=")
        axes.pop(name.strip(), None)  # of two words for one key the later counts
        if len(values := _listed(text)) > 1 and name.strip() not in PATH_KEYS:
            axes[name.strip()] = values
        else:
            rest.append(word)
    return rest, axes


def _listed(text: str) -> list[Any]:
    """Return the values of a text with commas outside brackets and quotes; none if that cannot be read."""
    try:
        values = parse_yaml(f"[{text}]") if "," in text else []
    except ConfigSyntaxError:  # whoever reads the word says why
        return []
    return values if isinstance(values, list) else []


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Turn `group.key=value` words into a nested mapping; of two words for one key the later counts."""
    tree: dict[str, Any] = {}
    for word in words:
        name, value = parse_yaml_word(word)
        tree = merge_nested(tree, nest({name: value}))
    return tree
