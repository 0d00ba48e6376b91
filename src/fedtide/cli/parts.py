"""`fedtide parts` and `--keys`: every kind of part and every key, with choices, defaults and meaning."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from fedtide import config
from fedtide.cli.console import out, print_json, print_table
from fedtide.config.presets import load_scenario, scenario_names
from fedtide.errors import FedtideError, did_you_mean
from fedtide.parts import checks, registry
from fedtide.parts.arguments import NO_DEFAULT, Parameter
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.report.terminal import TableColumn, terminal_pairs

_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_RUN = "run."  # begins what a driver fills in, which no experiment can give
_TYPES = {"NoneType": "null", "ndarray": "array", "Path": "path", "Any": "anything", "_empty": "anything"}

# ---- what there is, as plain data


def _presets() -> dict[str, dict[str, str]]:
    """Return what each framework, method and profile fills in, by name, and what world a scenario is."""
    methods = {name: method.keys for name, method in config.METHODS.items()}
    known = {"framework": config.FRAMEWORKS, "method": methods, "profile": config.PROFILES}
    filled = {
        preset: {name: _flat(tree) or "the defaults" for name, tree in named.items()} for preset, named in known.items()
    }
    return filled | {"scenario": {name: load_scenario(name).about for name in scenario_names()}}


def _flat(tree: Mapping[str, Any]) -> str:
    return ", ".join(f"{group}.{key}={value}" for group, keys in tree.items() for key, value in keys.items())


def described_kind(kind: str) -> dict[str, Any]:
    """Describe a kind: its keys, how it is called, every part of it."""
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
        with checks.part_errors_reported(kind, name, None):
            part = registry.find_part(kind, name, builtin_parts(kind))
            about = " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())
            parameters = registry.own_parameters(kind, part)
    except FedtideError as error:
        return {"from": origin, "about": f"cannot be used here: {error}", "parameters": {}}
    given = {found.name: _parameter(found) for found in parameters if not (found.about.key or "").startswith(_RUN)}
    return {"from": origin, "about": about, "parameters": given}


def _parameter(found: Parameter) -> dict[str, Any]:
    key, default = found.about.key, None if found.default is NO_DEFAULT else found.default
    if key in config.all_keys():  # what the key says comes before what the part says
        filled = config.all_keys()[key].get_default(call_default_factory=True)
        default = default if filled is None else filled
    is_plain = isinstance(default, (bool, int, float, str, list, dict, type(None)))
    return {
        "type": _type_text(found.type),
        "required": found.default is NO_DEFAULT and key is None,
        "default": default if is_plain else str(default),
        "unit": found.about.unit or None,
        "bounds": found.about.bounds,
        "meaning": found.about.meaning,
        "key": key,
    }


def _type_text(wanted: Any) -> str:
    """Write a type as a user would say it."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (Union, UnionType):
        return " | ".join(map(_type_text, inner))
    name = getattr(origin or wanted, "__name__", str(wanted))
    return _TYPES.get(name) or (f"{name}[{', '.join(map(_type_text, inner))}]" if inner else name)


def shown_default(about: Mapping[str, Any]) -> str:
    """Write what a parameter is if it is not given."""
    if about["required"]:
        return "must be given"
    is_by_run = about["default"] is None and about["key"] and about["key"] not in config.all_keys()
    return "by the run" if is_by_run else _typed(about["default"])


def _typed(value: Any) -> str:
    """Write a value as a user would type it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def parameter_meaning(about: Mapping[str, Any]) -> str:
    """Say what a parameter means, with its unit and bounds."""
    bounds = (f"{_SIGNS[name]} {value:g}" for name, value in about["bounds"].items())
    known = ", ".join([*[about["unit"]] * bool(about["unit"]), *bounds])
    return f"{about['meaning']} ({known})" if known else about["meaning"]


# ---- `fedtide parts`, as people read it


def list_parts(kind: str | None, as_json: bool) -> None:
    """Print all kinds, or one of them in detail."""
    if kind is not None and kind not in KINDS:
        hint = did_you_mean(kind.lower().rstrip("s"), KINDS)
        raise FedtideError(f"{kind!r} is not a kind of part; {hint and f'{hint} '}There are {', '.join(KINDS)}")
    listed = {name: described_kind(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        print_json(listed if kind else {**listed, **_presets()})
    elif kind:
        _print_kind(kind, listed[kind])
    else:
        _print_kinds(listed)


def _print_kinds(listed: Mapping[str, Mapping[str, Any]]) -> None:
    """Print every kind in a few lines: its parts, with what each does and its parameters; then the presets."""
    for kind, known in listed.items():
        rows = {}
        for name, part in known["parts"].items():
            given = ", ".join(
                parameter if about["required"] or about["default"] is None else f"{parameter}={shown_default(about)}"
                for parameter, about in part["parameters"].items()
            )
            rows[name] = part_cell(part["about"], given)
        print_part_pairs(rows, f"[bold]{kind}[/]: {escape(known['about'])}  [dim]{known['key']}[/]")
        out.print()
    for preset, offered in _presets().items():
        wins = "parts that do not work apart" if preset == "method" else "keys that you give yourself win"
        print_part_pairs(offered, f"[bold]{preset}[/]: a preset: {wins}")
        out.print()
    _print(
        "[bold]fedtide parts KIND[/]: every parameter with unit, bounds and meaning, how a part is called, how to name yours."
    )


def _print_kind(kind: str, known: Mapping[str, Any]) -> None:
    """Print everything that is known of a kind."""
    _print(f"[bold]{kind}[/]: {escape(known['about'])}")
    for name, part in known["parts"].items():
        origin = "" if part["from"] == "fedtide" else f"  [dim]from {escape(part['from'])}[/]"
        _print(f"\n[cyan]{escape(name)}[/]{origin}", part["about"])
        if part["parameters"]:
            _print_parameters(part["parameters"])
    _print("\n[bold]how it is called[/]", *known["called"])
    if known["with_memory"]:
        _print("[bold]one with memory, which is named arrays[/]", *known["with_memory"])
    if known["fills"]:
        print_part_pairs(
            known["fills"], "[bold]what it may ask for with arg(key=...) besides the keys of `fedtide run --keys`[/]"
        )
    _print("\n[bold]how it is named[/]", *(f"fedtide run {line}" for line in _examples(kind, known)))
    taken = "A class is made with its arguments, a function gets them with every call"
    _print(
        f"Your own: path/to/file.py:name, package.module:name, an entry point of the group fedtide.{kind}, or from Python "
        f"the function, class or dataclass object itself. {taken if '' in KINDS[kind].calls else 'It is made with its arguments'}; "
        r"say what they mean with Annotated\[float, fedtide.arg('...', unit=..., ge=..., key=...)]."
    )


def _print(markup: str, *indented: str) -> None:
    """Print a line of markup, and plain ones below it."""
    out.print(markup, *(Padding(Text(line), (0, 0, 0, 2)) for line in indented), sep="\n", highlight=False)


def _print_parameters(rows: Mapping[str, Mapping[str, Any]]) -> None:
    cells = []
    for name, about in rows.items():
        key = f"\n[dim]from {about['key']}[/]" if about["key"] in config.all_keys() else ""
        cells.append(
            (name, escape(about["type"]), escape(shown_default(about)), escape(parameter_meaning(about)) + key)
        )
    wrapped = (TableColumn(heading, wraps=True) for heading in ("type", "default", "meaning"))
    print_table((TableColumn("parameter", style="green"), *wrapped), cells, indent=4)


def _examples(kind: str, known: Mapping[str, Any]) -> list[str]:
    """Return how a part is named: ours by its name alone, one with an argument that no key fills, and one's own."""
    key, parts = known["key"], known["parts"]
    enough = [name for name, part in parts.items() if not any(each["required"] for each in part["parameters"].values())]
    given = [
        f"{{name: {name}, {parameter}: {shown_default(about)}}}"
        for name in enough
        for parameter, about in parts[name]["parameters"].items()
        if isinstance(about["default"], (bool, int, float, str)) and about["key"] is None
    ][:1]
    if kind in ("metric", "tracker"):
        return [f"{key}=[{next(iter(parts))}]", *(f"'{key}=[{entry}, mine.py:mine]'" for entry in given)]
    named = f"{key}={[*(enough or parts)][-1]}"
    return [named, *(f"'{key}={entry}'" for entry in given), f"{key}=mine.py:mine {key}.x=1"]


def print_part_pairs(rows: Mapping[str, str | Text], title: str) -> None:
    """Print names, each beside its text, which is wrapped and not cut off. title: markup."""
    out.print(terminal_pairs(rows, out.width, Text.from_markup(title, emoji=False), style="cyan"), highlight=False)


def part_cell(text: str, more: str) -> Text:
    """Return a text, and more on a line of its own, dim."""
    return Text.assemble(text, (f"\n{more}" if more else "", "dim"))


# ---- `--keys` of the commands that take keys


def key_rows() -> dict[str, dict[str, Any]]:
    """Describe every key of an experiment: its default, its meaning, its choices."""
    known: dict[str, list[str | None]] = {
        kind.key: [*registry.named_parts(name), "your own"] for name, kind in KINDS.items()
    }
    known["scenario"] = [*scenario_names(), None]
    defaults = config.dump(config.Experiment())
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
    if annotation in (bool, type(None)):
        return [True, False] if annotation is bool else [None]
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
        choices = f"\n[dim]{escape(', '.join(map(_typed, row['choices'])))}[/]" if "choices" in row else ""
        told.append((key, escape(str(row["default"])), escape(row["about"] or "") + choices))
    columns = (TableColumn("key", style="cyan"), TableColumn("default", wraps=True), TableColumn("meaning", wraps=True))
    print_table(columns, told)


def list_keys(as_json: bool) -> None:
    """Print every key of an experiment."""
    print_keys(key_rows(), as_json)
