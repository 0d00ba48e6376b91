"""Reference pages that are made from the code: every command, every key, every part, the Python front door."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click

import fedtide
from fedtide.cli.main import app as root
from fedtide.cli.parts import described_kind, key_rows, parameter_meaning, shown_default
from fedtide.parts.kinds import KINDS

MADE = Path(__file__).parents[1] / "reference"
ENTRIES = (
    ("Experiments", ("experiment", "Experiment", "plan", "Plan", "plans", "Plans", "simulate", "load", "Result")),
    ("Studies", ("compare", "study", "StudyResult", "race", "RaceResult")),
    ("For parts of your own", ("arg", "stream", "FedtideError")),
)
VALUES = (
    "Candidates",
    "Clock",
    "Dataset",
    "Decision",
    "Grant",
    "Job",
    "Link",
    "Samples",
    "Selection",
    "Shares",
    "Signal",
    "Tick",
    "Trained",
    "Work",
)


def setup(app: Any) -> dict[str, Any]:
    """Make the pages whenever the site is built."""
    app.connect("builder-inited", lambda _: write())
    return {"parallel_read_safe": True}


def anchor(title: str) -> str:
    """Name a heading as code hosts do, so that links hold there and here."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def write() -> None:
    """Write the pages; one that has not changed is left alone."""
    MADE.mkdir(exist_ok=True)
    for name, text in {"cli.md": cli(), "keys.md": keys(), "parts.md": parts(), "python.md": python()}.items():
        path = MADE / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def cell(text: object) -> str:
    """Write something into a table of Markdown."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def code(text: object) -> str:
    """Write something as code into a table of Markdown."""
    return "`" + " ".join(str(text).split()).replace("|", "\\|") + "`" if str(text) else ""


def rows(heads: tuple[str, ...], found: list[tuple[str, ...]]) -> list[str]:
    """Write a table."""
    return [
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(f"| {' | '.join(row)} |" for row in found),
        "",
    ]


# ---- commands


def cli() -> str:
    """Return the page of all commands."""
    context = click.Context(root, info_name="fedtide")
    lines = ["# Commands", "", root.help or "", "", root.epilog or "", ""]
    for name in root.list_commands(context):
        found = root.get_command(context, name)
        assert found is not None
        lines += _command(found, click.Context(found, info_name=name, parent=context), 2)
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context, depth: int) -> list[str]:
    lines = [f"{'#' * depth} {context.command_path}", "", *_help(command.help), ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            lines += _command(found, click.Context(found, info_name=name, parent=context), depth + 1)
        return lines
    lines += ["```text", " ".join(command.get_usage(context).removeprefix("Usage: ").split()), "```", ""]
    table = []
    for each in command.get_params(context):
        if isinstance(each, click.Option) and "--help" not in each.opts:
            names = ", ".join([*each.opts, *each.secondary_opts])
            default = each.to_info_dict()["default"]
            table.append((code(names), cell(each.help or ""), code("" if default in (None, False, ()) else default)))
        elif isinstance(each, click.Argument):
            table.append((code(each.metavar or ""), cell(getattr(each, "about", "")), ""))
    return [*lines, *(rows(("", "meaning", "default"), table) if table else [])]


def _help(text: str | None) -> list[str]:
    """Return a help text, its examples as code."""
    lines: list[str] = []
    for block in (text or "").split("\n\n"):
        if block.startswith("\b"):
            examples = (re.sub(r" {3,}", "   # ", line.strip()) for line in block.splitlines()[1:])
            lines += ["```sh", *examples, "```", ""]
        else:
            lines += [cell(block), ""]
    return lines


# ---- keys and parts


def keys() -> str:
    """Return the page of all keys of an experiment."""
    lines = ["# Keys", "", "Every key of an experiment: in YAML files, as `key=value` arguments, and from Python.", ""]
    groups: dict[str, list[tuple[str, ...]]] = {}
    for key, row in key_rows().items():
        group = key.partition(".")[0] if "." in key else "experiment"
        choices = ", ".join(code(each) for each in row.get("choices", ()) if each is not None)
        groups.setdefault(group, []).append((code(key), code(row["default"]), cell(row["about"] or ""), choices))
    for group, found in groups.items():
        lines += [f"## {group}", "", *rows(("key", "default", "meaning", "choices"), found)]
    return "\n".join(lines)


def parts() -> str:
    """Return the page of all parts by kind."""
    lines = [
        "# Parts",
        "",
        "What there is of every kind, with every parameter. Your own: [extending](../extending.md).",
        "",
    ]
    for kind in KINDS:
        found = described_kind(kind)
        lines += [f"## {kind}", "", f"{cell(found['about'])}. Key: {code(found['key'])}.", ""]
        lines += ["```text", *found["called"], *found["with_memory"], "```", ""]
        for name, part in found["parts"].items():
            lines += [f"### {kind}: {name}", "", cell(part["about"]), ""]
            table = [
                (
                    code(each),
                    code(about["type"]),
                    code(shown_default(about)),
                    cell(parameter_meaning(about)),
                    code(about["key"] or ""),
                )
                for each, about in part["parameters"].items()
            ]
            lines += rows(("parameter", "type", "default", "meaning", "filled by"), table) if table else []
    return "\n".join(lines)


# ---- Python


def python() -> str:
    """Return the page of the Python front door, whose texts are the docstrings."""
    named = [*VALUES, "Memory", *(name for _, names in ENTRIES for name in names)]
    assert sorted(named) == sorted(fedtide.__all__), set(named) ^ set(fedtide.__all__)
    lines = ["# Python", "", "```python", "import fedtide", "```", ""]
    for title, names in ENTRIES:
        lines += [f"## {title}", ""]
        for name in names:
            kind = "class" if isinstance(getattr(fedtide, name), type) else "function"
            members = ["   :members:"] if kind == "class" and name not in ("Experiment", "FedtideError") else []
            lines += ["```{eval-rst}", f".. auto{kind}:: fedtide.{name}", *members, "```", ""]
    lines += ["## Values", "", "What parts are given and answer, with shapes and units, as the source has them.", ""]
    for name in VALUES:
        lines += [f"### {name}", "", "```python", inspect.getsource(getattr(fedtide, name)).rstrip(), "```", ""]
    lines += ["`fedtide.Memory` is `dict[str, numpy.ndarray]`: what a part remembers, as named arrays.", ""]
    return "\n".join(lines)
