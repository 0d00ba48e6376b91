"""Lists of what there is to choose: `fedtide policies`, and `--keys` of the commands that take keys."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rich.markup import escape
from rich.table import Table

from fedtide import config
from fedtide.cli.command import choices, out, print_json


def list_policies(as_json: bool) -> None:
    """Print everything that can be chosen by name, with what it does."""
    listed = {
        key: {name: _first_sentence(each) for name, each in known.items()} for key, known in _registries().items()
    }
    listed["framework"] = {name: _flat(tree) or "the defaults" for name, tree in config.FRAMEWORKS.items()}
    listed["profile"] = {name: _flat(tree) or "the defaults" for name, tree in config.PROFILES.items()}
    if as_json:
        print_json(listed)
        return
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # every column counts in 80
    for heading in ("key", "value"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it does", overflow="fold")  # a value too long for the line is wrapped, not cut off
    for key, known in listed.items():
        for position, (name, text) in enumerate(known.items()):
            table.add_row(f"[bold]{key}[/]" if position == 0 else "", f"[cyan]{name}[/]", escape(text))
    out.print(table, highlight=False)
    out.print("\nYour own: path/to/file.py:name, package.module:name, or an entry point of the group fedtide.<kind>.")


def _registries() -> dict[str, dict[str, Any]]:
    """Return what can be chosen by name, by key."""
    from fedtide.codec.registry import CODECS
    from fedtide.learning.model import MODELS
    from fedtide.policy.combining import COMBINERS
    from fedtide.policy.scheduling import SCHEDULERS
    from fedtide.policy.weighting import WEIGHTINGS
    from fedtide.world.timeline import TIMELINES

    return {
        "timeline.name": TIMELINES,
        "policy.scheduler": SCHEDULERS,
        "policy.weighting": WEIGHTINGS,
        "policy.combiner": COMBINERS,
        "codec.name": CODECS,
        "learning.model": MODELS,
    }


def _first_sentence(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def _flat(tree: dict[str, Any]) -> str:
    return ", ".join(f"{group}.{key}={value}" for group, keys in tree.items() for key, value in keys.items())


def list_keys(as_json: bool) -> None:
    """Print every key of an experiment: its default, its meaning, its choices."""
    defaults, known = config.dump(config.Experiment()), _registries()
    rows = {}
    for key, field in config.all_keys().items():
        group, _, leaf = key.rpartition(".")
        rows[key] = key_row(defaults[group][leaf] if group else defaults[leaf], field, known.get(key, ()))
    print_keys(rows, as_json)


def key_row(default: Any, field: Any, names: Iterable[str] = ()) -> dict[str, Any]:
    """Describe a key: its default, its meaning and, where it has some, its choices."""
    found = [*names, *(["your own"] if names else _literals(field.annotation))]
    return {"default": default, "about": field.description, **({"choices": found} if found else {})}


def _literals(annotation: Any) -> list[Any]:
    """Return the values that a type admits, if these can be counted."""
    if annotation is bool:
        return [True, False]
    if annotation is type(None):
        return [None]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = [_literals(each) for each in get_args(annotation)] if get_origin(annotation) in (Union, UnionType) else []
    return [value for part in parts for value in part] if all(parts) else []


def print_keys(rows: dict[str, dict[str, Any]], as_json: bool) -> None:
    """Print rows as key_row makes them, by key."""
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, padding=(0, 2))
    table.add_column("key", style="cyan")
    table.add_column("default", overflow="fold")
    table.add_column("meaning")
    for key, row in rows.items():
        about = escape(row["about"] or "")
        if "choices" in row:
            about += f"\n[dim]{escape(choices(row['choices']))}[/]"
        table.add_row(key, escape(str(row["default"])), about)
    out.print(table, highlight=False)
