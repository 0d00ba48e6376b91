"""`fedtide parts` and `--keys`: every kind of part and every key, with choices, defaults and meaning."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedtide import config
from fedtide.cli.console import out, print_json, print_table
from fedtide.config import presets as config_presets
from fedtide.config.presets import scenario_names
from fedtide.errors import FedtideError, did_you_mean
from fedtide.parts import checks, registry
from fedtide.parts.arguments import NO_DEFAULT, Parameter
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.report.terminal import TableColumn

# Frameworks, profiles and scenarios: names for several keys at once, as the lists of the command line show them.


def presets() -> dict[str, dict[str, str]]:
    """Return what each framework, method and profile fills in, by name, and what world a scenario is."""
    methods = {name: method.keys for name, method in config.METHODS.items()}
    known = {"framework": config.FRAMEWORKS, "method": methods, "profile": config.PROFILES}
    filled = {key: {name: _flat(tree) or "the defaults" for name, tree in each.items()} for key, each in known.items()}
    return filled | {
        "scenario": {name: config_presets.scenario(name).about for name in config_presets.scenario_names()}
    }


def _flat(tree: Mapping[str, Any]) -> str:
    return ", ".join(f"{group}.{key}={value}" for group, keys in tree.items() for key, value in keys.items())


# `fedtide parts`: every kind of part, what there is of it, what each takes, and how to bring one's own.


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_RUN = "run."  # begins what a driver fills in, which no experiment can give


def list_parts(kind: str | None, as_json: bool) -> None:
    """Print all kinds, or one of them in detail."""
    if kind is not None and kind not in KINDS:
        hint = did_you_mean(kind.lower().rstrip("s"), KINDS)
        raise FedtideError(f"{kind!r} is no kind of part; {hint and f'{hint} '}There are {', '.join(KINDS)}")
    listed = {name: described(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        print_json(listed if kind else {**listed, **presets()})
        return
    if kind:
        out.print(_detail(kind, listed[kind]), highlight=False)
        return
    for name, each in listed.items():
        out.print(_overview(name, each), highlight=False)
    for name, offered in presets().items():
        out.print(_heading(name, "a preset: keys that you give yourself win"), highlight=False)
        out.print(Padding(_pairs({choice: escape(text) for choice, text in offered.items()}), (0, 0, 1, 2)))
    out.print(
        "[bold]fedtide parts KIND[/]: every parameter with unit, bounds and meaning, how a part is called, how to name yours.",
        highlight=False,
    )


# ---- what there is


def described(kind: str) -> dict[str, Any]:
    """Describe a kind as plain data: its keys, how it is called, every part of it."""
    known = KINDS[kind]
    return {
        "about": known.job,
        "key": known.key,
        "called": [*known.signatures],
        "with_memory": [*known.memory],
        "fills": {**known.fills},
        "parts": {name: _described(kind, name, origin) for name, origin in registry.named_parts(kind).items()},
    }


def _described(kind: str, name: str, origin: str) -> dict[str, Any]:
    """Describe one part; one that cannot be loaded here, or raises when it is looked at, says so itself."""
    try:
        with checks.reported(kind, name, None):
            found = registry.find_part(kind, name, builtin_parts(kind))
            about = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
            declared = [
                each for each in registry.own_parameters(kind, found) if not (each.about.key or "").startswith(_RUN)
            ]
    except FedtideError as error:
        return {"from": origin, "about": f"cannot be used here: {error}", "parameters": {}}
    return {"from": origin, "about": about, "parameters": {each.name: _parameter(each) for each in declared}}


def _parameter(found: Parameter) -> dict[str, Any]:
    key = found.about.key
    keys = config.all_keys()
    default, required = found.default, found.default is NO_DEFAULT and key is None
    if key in keys:  # what the key says comes before what the part says
        filled = keys[key].get_default(call_default_factory=True)
        default = filled if filled is not None or default is NO_DEFAULT else default
    return {
        "type": type_text(found.type),
        "required": required,
        "default": None if default is NO_DEFAULT else _plain(default),
        "unit": found.about.unit or None,
        "bounds": found.about.bounds,
        "meaning": found.about.meaning,
        "key": key,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, list, dict, type(None))) else str(value)


def type_text(wanted: Any) -> str:
    """Write a type as a user would say it."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any or wanted is inspect.Parameter.empty:
        return "anything"
    if wanted is type(None):
        return "null"
    if isinstance(wanted, type) and issubclass(wanted, Path):
        return "path"
    if origin is typing.Literal:
        return " | ".join(map(str, inner))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_text(each) for each in inner)
    name = getattr(origin or wanted, "__name__", str(wanted))
    if name == "ndarray":
        return "array"
    return f"{name}[{', '.join(type_text(each) for each in inner)}]" if inner else name


# ---- as people read it


def _heading(title: str, about: str, key: str = "") -> Text:
    where = f"  [dim]{escape(key)}[/]" if key else ""
    return Text.from_markup(f"[bold]{escape(title)}[/]: {escape(about)}{where}")


def _pairs(rows: Mapping[str, str]) -> Table:
    """Return names, each beside its text, which is wrapped and not cut off."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    made.add_column(style="cyan", no_wrap=True, min_width=max(map(len, rows), default=0))
    made.add_column(overflow="fold")
    for name, text in rows.items():
        made.add_row(escape(name), text)
    return made


def _overview(kind: str, listed: Mapping[str, Any]) -> RenderableType:
    """Return one kind in a few lines: every part with what it does and its parameters."""
    rows = {}
    for name, each in listed["parts"].items():
        given = ", ".join(_in_short(parameter, about) for parameter, about in each["parameters"].items())
        rows[name] = escape(each["about"]) + (f"\n[dim]{escape(given)}[/]" if given else "")
    return Group(_heading(kind, listed["about"], listed["key"]), Padding(_pairs(rows), (0, 0, 1, 2)))


def _in_short(name: str, about: Mapping[str, Any]) -> str:
    return name if about["required"] or about["default"] is None else f"{name}={shown_default(about)}"


def _detail(kind: str, listed: Mapping[str, Any]) -> RenderableType:
    """Return everything that is known of a kind."""
    return Group(_heading(kind, listed["about"]), Text(), *_parts(listed), *_how(listed), *_own(kind, listed))


def _parts(listed: Mapping[str, Any]) -> Iterator[RenderableType]:
    for name, each in listed["parts"].items():
        origin = "" if each["from"] == "fedtide" else f"  [dim]from {escape(each['from'])}[/]"
        yield Text.from_markup(f"[cyan]{escape(name)}[/]{origin}")
        yield Padding(Text(each["about"]), (0, 0, 0, 2))
        if each["parameters"]:
            yield Padding(_parameters(each["parameters"]), (0, 0, 0, 4))
        yield Text()


def _parameters(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    made.add_column("parameter", no_wrap=True, style="green")
    for heading in ("type", "default", "meaning"):
        made.add_column(heading, overflow="fold")
    for name, about in rows.items():
        made.add_row(escape(name), escape(about["type"]), escape(shown_default(about)), _meaning(about))
    return made


def shown_default(about: Mapping[str, Any]) -> str:
    """Write what a parameter is if it is not given."""
    if about["required"]:
        return "must be given"
    value = about["default"]
    if value is None:
        return "by the run" if about["key"] and about["key"] not in config.all_keys() else "null"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def meaning(about: Mapping[str, Any]) -> str:
    """Say what a parameter means, with its unit and bounds."""
    text = about["meaning"] + (f", in {about['unit']}" if about["unit"] else "")
    bounds = ", ".join(f"{_SIGNS[name]} {value:g}" for name, value in about["bounds"].items())
    return f"{text} ({bounds})" if bounds else text


def _meaning(about: Mapping[str, Any]) -> str:
    text = escape(meaning(about))
    return f"{text}\n[dim]from {about['key']}[/]" if about["key"] in config.all_keys() else text


def _how(listed: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text("how it is called", style="bold")
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in listed["called"])
    if listed["with_memory"]:
        yield Text("one with memory, which is named arrays", style="bold")
        yield from (Padding(Text(line), (0, 0, 0, 2)) for line in listed["with_memory"])
    if listed["fills"]:
        yield Text("what it may ask for with arg(key=...) besides the keys of `fedtide run --keys`", style="bold")
        yield Padding(_pairs({key: escape(about) for key, about in listed["fills"].items()}), (0, 0, 0, 2))
    yield Text()


def _own(kind: str, listed: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Say how one is named, with arguments, ours or one's own."""
    key = listed["key"]
    by_name = {name: each for name, each in listed["parts"].items() if not _lacks(each)}  # enough by its name
    given = list(_with_argument(by_name))[:1]
    if kind != "tracker":
        lines = [f"{key}={list(by_name or listed['parts'])[-1]}", *(f"'{key}={each}'" for each in given)]
        lines.append(f"{key}=mine.py:mine {key}.x=1")
    else:
        lines = [f"{key}=[{next(iter(listed['parts']))}]", *(f"'{key}=[{each}, mine.py:mine]'" for each in given)]
    taken = "It is made with its arguments"
    if "" in KINDS[kind].calls:
        taken = "A class is made with its arguments, a function gets them with every call"
    yield Text("how it is named", style="bold")
    yield from (Padding(Text(f"fedtide run {line}"), (0, 0, 0, 2)) for line in lines)
    yield Text(
        f"Your own: path/to/file.py:name, package.module:name, an entry point of the group fedtide.{kind}, or from Python "
        f"the function, class or dataclass object itself. {taken}; say what they mean with "
        "Annotated[float, fedtide.arg('...', unit=..., ge=..., key=...)]."
    )


def _with_argument(listed: Mapping[str, Any]) -> Iterator[str]:
    """Return how parts are written with one of their arguments, at its default; first those that no key fills."""
    for is_filled in (False, True):
        for name, each in listed.items():
            for parameter, about in each["parameters"].items():
                if isinstance(about["default"], (bool, int, float, str)) and (about["key"] is not None) == is_filled:
                    yield f"{{name: {name}, {parameter}: {shown_default(about)}}}"


def _lacks(part: Mapping[str, Any]) -> bool:
    """Say whether something must be given to a part."""
    return any(about["required"] for about in part["parameters"].values())


# ---- `--keys` of the commands that take keys


def list_keys(as_json: bool) -> None:
    """Print every key of an experiment: its default, its meaning, its choices."""
    print_keys(key_rows(), as_json)


def key_rows() -> dict[str, dict[str, Any]]:
    """Describe every key of an experiment."""
    defaults = config.dump(config.Experiment())
    known = {KINDS[kind].key: [*registry.named_parts(kind), "your own"] for kind in KINDS} | {
        "scenario": [*scenario_names(), None]
    }
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
            about += f"\n[dim]{escape(', '.join(map(_as_typed, row['choices'])))}[/]"
        told.append((key, escape(str(row["default"])), about))
    columns = (TableColumn("key", style="cyan"), TableColumn("default", wraps=True), TableColumn("meaning", wraps=True))
    print_table(columns, told)


def _as_typed(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
