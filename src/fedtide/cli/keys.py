"""Lists of what there is to choose by key: `fedtide policies`, and `--keys` of the commands that take keys."""

from __future__ import annotations

from collections.abc import Iterable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rich.markup import escape
from rich.table import Table

from fedtide import config
from fedtide.cli.command import choices, out, print_json
from fedtide.cli.parts import described
from fedtide.cli.presets import presets
from fedtide.config.scenarios import names
from fedtide.core import parts
from fedtide.core.kinds import KINDS
from fedtide.report.tables import Column, listed


def list_policies(as_json: bool) -> None:
    """Print everything that can be chosen by name, by key, with what it does: `fedtide parts` in one table."""
    kinds = {KINDS[kind].key: described(kind)["parts"] for kind in KINDS}
    listed = {key: {name: each["about"] for name, each in known.items()} for key, known in kinds.items()} | presets()
    if as_json:
        print_json(listed)
        return
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # every column counts in 80
    for heading in ("key", "value"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it does", overflow="fold")  # a value too long for the line is wrapped, not cut off
    for key, known in listed.items():
        for position, (name, text) in enumerate(known.items()):
            table.add_row(f"[bold]{key}[/]" if position == 0 else "", f"[cyan]{escape(name)}[/]", escape(text))
    out.print(table, highlight=False)
    out.print("\nMore, with parameters and how to bring your own: fedtide parts, fedtide parts KIND.", highlight=False)


def list_keys(as_json: bool) -> None:
    """Print every key of an experiment: its default, its meaning, its choices."""
    print_keys(key_rows(), as_json)


def key_rows() -> dict[str, dict[str, Any]]:
    """Describe every key of an experiment."""
    defaults = config.dump(config.Experiment())
    known = {KINDS[kind].key: [*parts.named_parts(kind), "your own"] for kind in KINDS} | {"scenario": [*names(), None]}
    rows = {}
    for key, field in config.all_keys().items():
        group, _, leaf = key.rpartition(".")
        rows[key] = key_row(defaults[group][leaf] if group else defaults[leaf], field, known.get(key, ()))
    return rows


def key_row(default: Any, field: Any, names: Iterable[str | None] = ()) -> dict[str, Any]:
    """Describe a key: its default, its meaning and, where it has some, its choices."""
    found = [*names] or _literals(field.annotation)
    return {"default": default, "about": field.description, **({"choices": found} if found else {})}


def _literals(annotation: Any) -> list[Any]:
    """Return the values that a type admits, if these can be counted."""
    if annotation is bool:
        return [True, False]
    if annotation is type(None):
        return [None]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    either = [_literals(each) for each in get_args(annotation)] if get_origin(annotation) in (Union, UnionType) else []
    return [value for each in either for value in each] if all(either) else []


def print_keys(rows: dict[str, dict[str, Any]], as_json: bool) -> None:
    """Print rows as key_row makes them, by key."""
    if as_json:
        print_json(rows)
        return
    told = []
    for key, row in rows.items():
        about = escape(row["about"] or "")
        if "choices" in row:
            about += f"\n[dim]{escape(choices(row['choices']))}[/]"
        told.append((key, escape(str(row["default"])), about))
    columns = (Column("key", style="cyan"), Column("default", wraps=True), Column("meaning", wraps=True))
    out.print(listed(columns, told, out.width), highlight=False)
