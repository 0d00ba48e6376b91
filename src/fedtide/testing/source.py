"""A look at the source of a user's part before it is judged: what it imports and calls besides computing.

This is a seat belt, not a sandbox: it finds what an honest author forgot and what a search agent tries first.
"""

from __future__ import annotations

import ast
import symtable
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from fedtide.errors import FedtideError
from fedtide.parts.user_code import user_source_files

# What a part may import: everything here computes, and reaches no clock, file, process, network or frame of another function.
_MODULES: Final = {
    *("__future__", "abc", "array", "bisect", "bz2", "cmath", "collections", "copy", "dataclasses", "decimal", "enum"),
    *(
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "lzma",
        "math",
        "numbers",
        "operator",
        "struct",
        "typing",
        "zlib",
    ),
    *("numpy", "scipy", "fedtide"),
}
_OF_FEDTIDE: Final = {"types", "columns", "rng", "errors", "codec", "aggregate", "schedule", "methods", "arg", "stream"}
_TYPES_OF_NUMPY: Final = {"numpy.random.Generator", "numpy.random.BitGenerator"}  # annotations name them

_LIBRARIES: Final = {"np", "numpy", "scipy"}
_OTHER_MODULES: Final = (
    {*sys.stdlib_module_names} - _MODULES
) | _LIBRARIES  # which a module that is allowed may have imported
_NAMESAKES: Final = {
    "numpy.select",
    "numpy.trace",
    "numpy.random",
    "scipy.signal",
    "scipy.io",
    "fedtide.types",
}  # of such ones

_RANDOM: Final = "draws numbers that the seed of a run does not decide"
_FILES: Final = "reads or writes files"
_TEXT: Final = "runs code that cannot be read beforehand"
_INSIDE: Final = "looks into the simulator instead of at its arguments"
_FILES_OF_NUMPY: Final = (
    *(
        "load",
        "loadtxt",
        "genfromtxt",
        "fromregex",
        "fromfile",
        "memmap",
        "save",
        "savez",
        "savez_compressed",
        "savetxt",
    ),
    *("rec", "lib", "ctypeslib", "f2py", "testing", "core", "_core", "DataSource"),
)
_REFUSED: Final = {
    "numpy.random": _RANDOM,
    **dict.fromkeys((f"numpy.{name}" for name in _FILES_OF_NUMPY), _FILES),
    **dict.fromkeys(
        ("scipy.io", "scipy.datasets", "scipy._lib", "scipy.sparse.save_npz", "scipy.sparse.load_npz"), _FILES
    ),
    **dict.fromkeys(("typing.get_type_hints", "typing.ForwardRef", "typing.evaluate_forward_ref"), _TEXT),
    **dict.fromkeys((f"{module}.open" for module in ("bz2", "lzma")), _FILES),
    **dict.fromkeys(("bz2.BZ2File", "lzma.LZMAFile"), _FILES),
    **dict.fromkeys(("operator.attrgetter", "operator.methodcaller"), _INSIDE),
}
_BUILTINS: Final = {
    **dict.fromkeys(("open", "input"), _FILES),
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), _TEXT),
    **dict.fromkeys(("globals", "locals", "vars", "breakpoint", "__builtins__", "__loader__", "__spec__"), _INSIDE),
    **dict.fromkeys(("id", "hash"), "differs from process to process"),
}
_ATTRIBUTES: Final = {
    *("bit_generator", "seed_seq", "_seed_seq"),  # the seed of a run is inside the generator that a part is given
    *("__globals__", "__builtins__", "__subclasses__", "__bases__", "__mro__", "__code__", "__closure__", "__dict__"),
    *(
        "__class__",
        "__self__",
        "__func__",
        "__wrapped__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__setstate__",
    ),
    *("__getattribute__", "__traceback__", "__loader__", "gi_frame", "cr_frame", "tb_frame", "f_back", "f_globals"),
    *("f_locals", "tofile", "dump", "__import__"),
}
_PLAIN_WORDS: Final = {"tofile", "dump"}  # which texts may contain
_BY_NAME: Final = ("getattr", "setattr", "delattr")


def refuse_source(name: str, allow: Collection[str] = ()) -> None:
    """Raise if a user's file, or one that it imports from beside it, uses what a judged part has no use for.

    allow: dotted names that are accepted all the same, with everything below them.
    """
    files = user_source_files(name)
    folder = files[0].resolve().parent if files else Path()
    beside = {file.relative_to(folder).with_suffix("").parts[0] for file in files[1:]} - sys.stdlib_module_names
    for file in files:
        source = file.read_bytes()
        try:
            tree, table = ast.parse(source), symtable.symtable(source.decode("utf-8-sig"), file.name, "exec")
        except (SyntaxError, ValueError, RecursionError) as error:
            raise FedtideError(f"{file.name} cannot be read as Python ({error}); correct it") from None
        for line, used, reason in (*_uses(tree, beside), *_builtins_used(table, tree)):
            if not any(used == each or used.startswith(f"{each}.") for each in allow):
                raise FedtideError(
                    f"{file.name}:{line}: {used} {reason}, and a judged part computes from its arguments alone: do without it, "
                    f"or say --allow {used}, which the certificate will name"
                )


def _uses(tree: ast.Module, beside: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """Go through what a module uses and should not: line, name, reason."""
    known: dict[str, str] = {}  # what a name in the file stands for, dotted
    nodes = sorted((node for node in ast.walk(tree) if hasattr(node, "lineno")), key=lambda node: node.lineno)
    for node in nodes:
        for name, dotted in _imported_names(node):
            known[name] = dotted if name != dotted.partition(".")[0] else name
            if reason := _why_not(dotted, beside):
                yield node.lineno, dotted, reason
    modules = {name for node in nodes if isinstance(node, ast.Import) for name, _ in _imported_names(node)}
    owner = {node.value: node.attr for node in nodes if isinstance(node, ast.Attribute)}  # what is asked of a node
    named = {node.func for node in nodes if isinstance(node, ast.Call) and _names_plain_attribute(node)}
    comments = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        hidden: set[str] = set()
        if isinstance(node, ast.Attribute):
            dotted = "" if node in owner else _dotted(node, known)
            if reason := dotted and _why_not(dotted, beside):
                yield node.lineno, dotted, reason
            hidden = {node.attr} & _ATTRIBUTES if owner.get(node) != "__name__" else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in modules and node not in owner:
                yield node.lineno, known[node.id], "is a module under another name, whose uses cannot be read"
            hidden = {node.id} & {*_BY_NAME} if node not in named else set()
        elif isinstance(node, ast.MatchClass):
            hidden = {*node.kwd_attrs} & _ATTRIBUTES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in comments:
            hidden = {name for name in _ATTRIBUTES - _PLAIN_WORDS if name in node.value}
        for name in sorted(hidden):
            yield node.lineno, name, _INSIDE


def _names_plain_attribute(node: ast.Call) -> bool:
    """Say whether a call such as getattr(x, "name") names an attribute that a part may read."""
    text = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
    return isinstance(text, str) and text not in _ATTRIBUTES and not text.startswith("__")


def _builtins_used(table: symtable.SymbolTable, tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Go through the refused builtins that a scope uses; a local variable of that name is none."""
    for name in sorted({*table.get_identifiers()} & {*_BUILTINS}):
        symbol = table.lookup(name)
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() != "function"):
            lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
            yield min(line for line in lines if line >= table.get_lineno()), name, _BUILTINS[name]
    for inner in table.get_children():
        yield from _builtins_used(inner, tree)


def _imported_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Return the names that a statement imports, each with what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """Return the dotted name of an attribute of something imported; empty for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    inner = _dotted(node.value, known) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def _why_not(dotted: str, beside: Collection[str]) -> str:
    """Say why a judged part should not use a module, or a name of one; empty: it may."""
    top, _, rest = dotted.partition(".")
    if dotted in _TYPES_OF_NUMPY:
        return ""
    if "*" in rest:
        return "imports names that cannot be read beforehand"
    reached = {name for name in rest.removesuffix(".__name__").split(".") if f"{top}.{name}" not in _NAMESAKES}
    if reached & (_LIBRARIES if top in beside else _OTHER_MODULES):
        return _INSIDE
    if top in beside:
        return ""
    if any(name.startswith("_") for name in reached):
        return _INSIDE
    if top not in _MODULES:
        return "is not among the modules that only compute"
    if top == "fedtide" and rest and not (rest.partition(".")[0] in _OF_FEDTIDE or rest[0].isupper()):
        return _INSIDE
    return next((why for name, why in _REFUSED.items() if dotted == name or dotted.startswith(f"{name}.")), "")
