"""One name, one meaning: a public name is defined in one module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import fedtide
import fedtide_lab

MOST_SHARED = 10  # names that several modules define


def public_names(tree: ast.Module) -> Iterator[str]:
    """Return the functions, classes and variables that a module defines and does not begin with an underscore."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def shared_names(modules: dict[str, str]) -> dict[str, list[str]]:
    """Return the names that several modules define. modules: name -> source."""
    homes = defaultdict(list)
    for module, source in modules.items():
        for name in dict.fromkeys(public_names(ast.parse(source))):
            homes[name].append(module)
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_one_name_one_module() -> None:
    modules = {}
    for package in (fedtide, fedtide_lab):
        folder = Path(str(package.__file__)).parent
        modules |= {str(path.relative_to(folder.parent)): path.read_text() for path in folder.rglob("*.py")}
    shared = shared_names(modules)
    assert len(shared) <= MOST_SHARED, "\n".join(
        f"{name}: {', '.join(homes)}" for name, homes in sorted(shared.items())
    )


def test_the_count_can_fail() -> None:
    source = "def check(): ...\ndef _own(): ...\nLIMIT: int = 3\n"
    assert shared_names({"a": source, "b": source, "c": "LIMIT = 4"}) == {"check": ["a", "b"], "LIMIT": ["a", "b", "c"]}
