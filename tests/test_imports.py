"""Imports go one way: core -> config -> data -> world -> ... -> command line."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedtide

SOURCE = Path(fedtide.__file__).parent
ORDER = [
    ("lazy",),
    ("errors", "rng", "types"),
    ("extension",),
    ("columns",),
    ("core",),
    ("parts",),
    ("testing",),
    ("config",),
    ("data",),
    ("devices",),
    ("radio",),
    ("timeline",),
    ("schedule",),
    ("aggregate",),
    ("codec",),
    ("learning",),
    ("methods",),
    ("engine", "runs", "trackers", "report", "plot"),  # a run is recorded as it goes, and a result shows itself
    ("studies",),
    ("deploy",),
    ("pages",),
    ("cli", "__main__", "builtin"),  # builtin names every package, as text
]
LABORATORY = SOURCE.parent / "fedtide_lab"
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def _part(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(tree: ast.AST) -> set[str]:
    """Return the parts of fedtide that a module imports when it runs, at the top or inside its functions."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if _type_checking(node):
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            if node.module == "fedtide":
                # what is no module comes from __init__.py, which imports the simulator
                found |= {name.name if name.name in RANK else "engine" for name in node.names}
            elif node.module and node.module.startswith("fedtide."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("fedtide.")}
        found |= imported(node)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_one_way_only(path: Path) -> None:
    part = _part(path)
    assert part in RANK, f"give {part} a place in ORDER"
    for other in imported(ast.parse(path.read_text())) - {part, "_native"}:
        assert other in RANK, f"{path} imports fedtide.{other}: give it a place in ORDER"
        same_rank = RANK[other] == RANK[part] and RANK[part] >= RANK["engine"]
        assert RANK[other] < RANK[part] or same_rank, f"fedtide.{part} must not import fedtide.{other}"


def test_the_tool_does_not_know_its_laboratory() -> None:
    """What the laboratory adds comes by entry points."""
    assert [str(path) for path in FILES if re.search(r"^\s*(from|import) fedtide_lab", path.read_text(), re.M)] == []


@pytest.mark.parametrize(
    "path", sorted(LABORATORY.rglob("*.py")), ids=lambda path: path.relative_to(LABORATORY).as_posix()
)
def test_the_laboratory_uses_public_names_only(path: Path) -> None:
    """From `fedtide` and its first-level packages and modules, what `__all__` names; nothing with an underscore."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not any(name.name.startswith("fedtide.") for name in node.names), ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedtide":
            assert node.module is not None
            assert node.module.count(".") < 2, f"{path.name}: {node.module} is not public"
            module = importlib.import_module(node.module)
            names = {name.name for name in node.names}
            if node.module == "fedtide":
                names -= {part for part in RANK if (SOURCE / part / "__init__.py").is_file()}
            public = getattr(module, "__all__", None) if hasattr(module, "__path__") else dir(module)
            assert public is not None, f"{node.module} has no __all__"
            assert not {name for name in names if name.startswith("_")} | names - set(public), (
                f"{path.name}: {node.module}"
            )
            for name in names:
                getattr(module, name, None) or importlib.import_module(f"{node.module}.{name}")


def test_public_names_are_there() -> None:
    """What a package names in `__all__` can be imported from it."""
    for part in RANK:
        module = importlib.import_module(f"fedtide.{part}") if (SOURCE / part / "__init__.py").is_file() else fedtide
        for name in getattr(module, "__all__", ()):
            exec(f"from {module.__name__} import {name}", {})
    assert importlib.import_module("fedtide.cli").out is importlib.import_module("fedtide.cli.console").out
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        importlib.import_module("fedtide.studies").nothing  # noqa: B018


def test_the_check_can_fail() -> None:
    tree = ast.parse(
        "if TYPE_CHECKING:\n    import fedtide.cli\ndef f():\n    from fedtide.engine.simulate import x\nimport fedtide.rng"
    )
    assert imported(tree) == {"engine", "rng"}


PLAN = """
import sys
import fedtide
from fedtide import config
from fedtide.engine.ticks import planned
from fedtide.engine.system import build, parameter_count
e = config.experiment({"data": {"name": "synthetic"}, "timeline": {"horizon": 2.0}})
system = build(e)
assert parameter_count(system) == 21840
assert len(list(planned(system))) == 8
heavy = {"torch", "flwr", "dask", "distributed", "torchvision"} & set(sys.modules)
print(",".join(sorted(heavy)))
"""


def test_importing_and_planning_needs_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", PLAN], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


BLOCKED = (
    """
import sys
sys.modules["torch"] = None
"""
    + PLAN
    + """
from fedtide.errors import FedtideError
try:
    fedtide.simulate(config.experiment({"data": {"name": "synthetic"}, "learning": {"trainer": "torch"}}))
except FedtideError as error:
    assert "pip install 'fedtide[torch]'" in str(error)
else:
    raise SystemExit("trained without torch")
"""
)


def test_without_torch_installed_it_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


COMMAND = """
import sys
from fedtide.__main__ import main
sys.argv = ["fedtide", *{words!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(",".join(sorted({{name.partition(".")[0] for name in sys.modules}} | {{*sys.modules}})), file=sys.stderr)
"""
EXTRAS = {"torch", "flwr", "dask", "distributed", "scipy", "matplotlib", "pandas", "pyarrow", "fedtide.learning.native"}


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {*EXTRAS, "numpy", "pydantic", "yaml", "fedtide.config", "fedtide.types", "fedtide.engine"}),
        (["plan", "--help"], {*EXTRAS, "numpy", "pydantic", "yaml", "fedtide.types", "fedtide.engine"}),
        (
            ["plan", "data.name=synthetic", "timeline.horizon=2"],
            {*EXTRAS, "fedtide.studies", "fedtide.runs.folder", "numpy.ma"},
        ),
    ],
    ids=["help", "help of a command", "plan"],
)
def test_a_command_imports_what_it_needs(words: list[str], absent: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.format(words=words)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()
    assert absent & {*done.stderr.strip().splitlines()[-1].split(",")} == set()


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = {*sys.modules}; import fedtide; print(*({*sys.modules} - before - sys.stdlib_module_names))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = [name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert sorted(ours) == ["fedtide", "fedtide.lazy"]


def test_the_collector_rests_while_a_command_starts_and_not_while_it_works(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import gc\n\ndef first(candidates, limit, rng):\n    assert gc.isenabled()\n    return list(range(limit))\n"
    )
    for command in ("plan", "run"):
        words = [command, "data.name=synthetic", "timeline.horizon=1", "policy.scheduler=mine.py:first"]
        subprocess.run([sys.executable, "-m", "fedtide", *words], check=True, cwd=tmp_path, capture_output=True)
