"""Reference pages that are made from the code: every command, every key, every part, the Python front door."""

from __future__ import annotations

import ast
import html
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tokenize
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError

import fedtide
from fedtide.cli.main import app as root
from fedtide.cli.parts import described_kind, key_rows, parameter_meaning, shown_default
from fedtide.parts.kinds import KINDS

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs" / "reference"
ENTRIES = (
    ("Experiments", ("experiment", "Experiment", "plan", "Plan", "plans", "Plans", "simulate", "load", "Result")),
    ("Studies", ("compare", "study", "StudyResult", "race", "RaceResult", "advise", "Advice", "judge", "Judgement")),
    ("For parts of your own", ("arg", "stream", "FedtideError")),
)
FURTHER = (
    (
        "Random numbers by device",
        tuple(f"fedtide.columns.{name}" for name in ("uniform", "normal", "exponential", "complex_normal", "markov")),
    ),
    ("Checks and proposals", ("fedtide.testing.check", "fedtide.studies.propose_candidates")),
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
    """Make the pages whenever the site is built, and write docstrings as sections."""
    app.connect("builder-inited", lambda _: write())
    app.connect("build-finished", write_examples)
    app.connect("autodoc-process-docstring", _rewrite_docstring, priority=400)  # before napoleon, which reads sections
    app.connect("autodoc-process-signature", _rewrite_signature)
    app.connect("html-page-context", _add_notebook_links)
    app.connect("object-description-transform", _drop_any, priority=900)  # after autodoc has added the types
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math_block, None))
    return {"parallel_read_safe": True}


def _drop_any(app: Any, domain: str, kind: str, content: Any) -> None:
    """Leave out a return type that says nothing."""
    for field in content.findall(nodes.field):
        if [part.astext() for part in field] == ["Return type", "Any"]:
            field.parent.remove(field)


def _add_notebook_links(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Offer a notebook as a file and, if FEDTIDE_NOTEBOOKS is the address of their folder at a hosted service, there."""
    folder, _, name = page.rpartition("/")
    if folder == "notebooks":
        links = f'<a class="notebook-link" href="../_sources/{page}.ipynb" download>Download the notebook</a>'
        if hosted := os.environ.get("FEDTIDE_NOTEBOOKS"):
            address = html.escape(f"{hosted.rstrip('/')}/{name}.ipynb")
            links = f'<a class="notebook-link" href="{address}">Run in the browser</a> {links}'
        context["body"] = context["body"].replace("</h1>", f"</h1>\n<p>{links}</p>", 1)


def _visit_math(translator: Any, node: nodes.math) -> None:
    """Write a formula of a line as MathML, which browsers show by themselves."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _visit_math_block(translator: Any, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


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


def write_examples(app: Any, exception: Exception | None) -> None:
    """Run the commands of docs/examples.md, which write the example reports beside it: about a minute.

    Reports that are newer than the results, the package and the page are left alone.
    """
    if exception or app.builder.name != "html":
        return
    to, page = Path(app.outdir) / "examples", ROOT / "docs" / "examples.md"
    lines = re.findall(r"^fedtide .*", page.read_text(encoding="utf-8"), re.M)
    made = [to / name for name in re.findall(r"-o (\S+\.html)", "\n".join(lines))]
    sources = [page, *(path for name in ("results", "src") for path in (ROOT / name).rglob("*.*"))]
    newest = max(path.stat().st_mtime for path in sources)
    if all(path.is_file() and path.stat().st_mtime > newest for path in made):
        return
    to.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as runs:
        for line in lines:
            words = [re.sub(r"^runs/", f"{runs}/", word) for word in shlex.split(line)[1:]]
            words = [str(to / word) if word.endswith(".html") else word for word in words]
            done = subprocess.run([sys.executable, "-m", "fedtide", *words], cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise ExtensionError(f"docs/examples.md: {line}: {done.stderr.strip()[-500:]}")


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
        "All built-in parts by kind, with their parameters. To write your own, see [extending](../extending.md).",
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
            found = getattr(fedtide, name)
            kind = "class" if isinstance(found, type) else "function"
            members = ["   :members:"] if kind == "class" and name not in ("Experiment", "FedtideError") else []
            if members and (fields := getattr(found, "_fields", ())):
                members.append(f"   :exclude-members: {', '.join(fields)}")
            lines += ["```{eval-rst}", f".. auto{kind}:: fedtide.{name}", *members, "```", ""]
    lines += ["## Values", "", "What parts receive and return. Shapes are in brackets; all are named tuples.", ""]
    for name in VALUES:
        value = getattr(fedtide, name)
        text, _, _ = inspect.getdoc(value).partition("\n\nFields:")
        table = [
            (code(field), code(kind), code(default), cell(about)) for field, kind, default, about in fields_of(value)
        ]
        lines += [f"### {name}", "", cell(text), "", *rows(("field", "type", "default", "meaning"), table)]
    lines += ["`fedtide.Memory` is `dict[str, numpy.ndarray]`: the memory of a part, as named arrays.", ""]
    for title, names in FURTHER:
        lines += [f"## {title}", ""]
        lines += [line for name in names for line in ("```{eval-rst}", f".. autofunction:: {name}", "```", "")]
    return "\n".join(lines)


def fields_of(value: type) -> list[tuple[str, str, str, str]]:
    """Return name, type, default and meaning of every field: the comments of the source, above a field and behind it."""
    source = textwrap.dedent(inspect.getsource(value))
    comments: dict[int, tuple[bool, str]] = {}  # by line: does code precede it?
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = (bool(token.line[: token.start[1]].strip()), token.string.lstrip("# "))
    found = []
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign):
            above, line = [], node.lineno - 1
            while line in comments and not comments[line][0]:
                above.insert(0, comments[line][1])
                line -= 1
            behind = [comments[each][1] for each in range(node.lineno, (node.end_lineno or 0) + 1) if each in comments]
            default = "" if node.value is None else ast.unparse(node.value)
            found.append((ast.unparse(node.target), ast.unparse(node.annotation), default, " ".join([*above, *behind])))
    return found


def _rewrite_signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Leave out what a named tuple is made of: its fields are listed below it."""
    if what == "class" and (hasattr(obj, "_fields") or obj is fedtide.Experiment):
        return "", None
    return (re.sub(r"<function .*?>+", "...", signature), returns) if "<function " in (signature or "") else None


def _rewrite_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write fields and parameters as sections in NumPy's style."""
    text = re.sub(r"(?<![`:])`([^`\n]+)`(?!`)", r"``\1``", "\n".join(lines))
    if obj is fedtide.Experiment:
        lines[:] = [
            *inspect.cleandoc(text.partition("Keys with")[0]).splitlines(),
            "",
            ":doc:`keys` lists every key.",
            "",
        ]
    elif what == "class" and hasattr(obj, "_fields"):
        lines[:] = [*text.partition("Fields:")[0].splitlines(), "", "Attributes", "----------"]
        for field, kind, default, about in fields_of(obj):
            lines += [f"{field} : {kind}{default and f', default {default}'}", f"    {_rst(about) or field}"]
        lines.append("")
    elif what in ("function", "method"):
        lines[:] = _parameter_section(text, list(inspect.signature(obj).parameters))


def _parameter_section(text: str, parameters: list[str]) -> list[str]:
    """Turn sentences such as `folder: where to keep the run.` into a section, `Returns:` and `Raises:` into fields.

    A sentence ends at the next parameter or at the end of its paragraph. Examples come last.
    """
    some = "|".join(map(re.escape, parameters)) or "(?!)"
    named = re.compile(rf"(?:^|(?<=[.;] )|(?<=, ))((?:{some})(?: \([^)]*\))?(?:, (?:{some})(?: \([^)]*\))?)*): ")
    kept, told, outcome, examples = [], [], [], []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if ">>> " in paragraph:
            examples += [*([] if examples else [".. rubric:: Example", ""]), *paragraph.splitlines(), ""]
        elif found := re.match(r"\s*(Returns|Raises): ", paragraph):
            words = " ".join(paragraph[found.end() :].split())
            error, _, rest = words.partition(" ")
            outcome.append(f":returns: {words}" if found[1] == "Returns" else f":raises {error}: {rest}")
        elif re.match(r"\s*[-*.]", paragraph):
            kept += [paragraph, ""]
        else:
            pieces = named.split(" ".join(paragraph.split()))
            kept += [pieces[0].rstrip(" ,;"), ""] if pieces[0].strip() else []
            told += list(zip(pieces[1::2], pieces[2::2], strict=True))
    section = ["", "Parameters", "----------"] * bool(told)
    for name, about in told:
        sentence = about.strip().rstrip(".;,")
        for each in re.sub(r" \([^)]*\)", "", name).split(", "):
            section += [each, f"    {sentence[:1].upper()}{sentence[1:]}."]
    ended = ["", ""]  # napoleon ends a section at two empty lines
    return [*"\n".join(kept).splitlines(), *section, *ended, *outcome, "", *examples, ""]


def _rst(text: str) -> str:
    """Write a comment as text of a docstring."""
    sentence = text[:1].upper() + text[1:] if re.match(r"[a-z]{2,}[ ,]", text) else text
    return re.sub(r"([*|\\])", r"\\\1", sentence).replace("_ ", "\\_ ")
