"""A user's words are text on every page: by construction, and tried with every string that a folder or a store holds."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide import config
from fedtide.core import yaml12
from fedtide.errors import FedtideError, RunFolderError
from fedtide.pages import live
from fedtide.pages.html import Markup, html_page, join_markup, markup, payload_json
from fedtide.pages.run import run_page, run_page_data
from fedtide.pages.study import _results_page, _study_page
from fedtide.pages.study_curves import study_curves_in_store
from fedtide.studies.run import run_study
from fedtide.studies.spec import read_study
from fedtide.studies.store import Store
from helpers import ROOT

PAGES = ROOT / "src" / "fedtide" / "pages"
HOSTILE = "\"'></script></noscript></title></style></svg><!--<img src=x onerror=alert(1)>&lt;b&gt;${1}{x}{0}"
OWN = f"{HOSTILE}.py:f"  # as the name of a part in a file of the user's own


class _Tags(HTMLParser):
    def __init__(self, content: str) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, *(name for name, _ in attrs)))

    handle_startendtag = handle_starttag

    def handle_comment(self, data: str) -> None:
        self.found.add(("comment", data))


def _check(made: str, usual: str) -> None:
    """A page has no element or attribute that it would not have with other words in it."""
    assert _Tags(made).found <= _Tags(usual).found | {("p", "class"), ("bdi",), ("table",), ("tbody",), ("tr",)}
    assert "<img" not in made
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    assert data
    assert not set("<>&\u2028\u2029") & set(data[1])


def _leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree[:1]) if isinstance(tree, list) else ()
    yield from ([path] if not isinstance(tree, dict | list) else [])
    for key, each in inner:
        yield from _leaves(each, (*path, key))


def _with(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(tree)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def _seal(folder: Path) -> None:
    """Let the manifest fit what was changed, as an attacker would."""
    with np.load(folder / "checkpoint.npz") as saved:
        arrays = {name: saved[name] for name in saved.files}
    manifest = json.loads(str(arrays["manifest"]))
    manifest["versions"] = json.loads((folder / "versions.json").read_text())
    manifest["experiment"] = config.digest(config.experiment(config.read_yaml_file(folder / "experiment.yaml")))
    arrays["manifest"] = np.array(json.dumps(manifest))
    np.savez(folder / "checkpoint.npz", **arrays)


def test_a_page_is_made_of_markup_alone() -> None:
    with pytest.raises(TypeError, match="made of Markup"):
        html_page("title", {}, (), "<main></main>", markup("<svg></svg>"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made of Markup"):
        html_page("title", {}, (), markup("<main></main>"), "<svg></svg>")  # type: ignore[arg-type]
    made = markup('<p title="{words}">{words}{kept}{number:.1f}</p>', words=HOSTILE, kept=Markup("<b></b>"), number=2)
    assert _Tags(made).found == {("p", "title"), ("b",)}
    assert made.endswith("<b></b>2.0</p>")
    assert "<img" not in join_markup([HOSTILE, markup("<br>")], " ")


def test_no_other_code_of_the_pages_puts_markup_together() -> None:
    """Elements are born of templates without values in them; `markup` fills these in. Markup(...) takes literals only."""
    for path in sorted(PAGES.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) and path.name != "html.py":
                words = "".join(str(each.value) for each in node.values if isinstance(each, ast.Constant))
                assert not re.search(r"</?[a-z!]", words), f"{path.name}:{node.lineno} puts HTML together"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Markup" and path.name != "html.py":
                names = {each for arg in node.args for each in ast.walk(arg) if isinstance(each, ast.JoinedStr)}
                assert not names, f"{path.name}:{node.lineno} takes words for HTML"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "markup":
                template = node.args[0]
                assert isinstance(template, ast.Constant | ast.Name), f"{path.name}:{node.lineno}: no template of ours"


def test_scripts_put_words_in_as_text() -> None:
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|setHTML|DOMParser"
        r"|\beval\(|new Function|srcdoc|javascript:"
    )
    for path in sorted((PAGES / "assets").glob("*.js")):
        assert not re.search(ways, path.read_text(encoding="utf-8")), path.name


def _filled(tree: Any, accepted: Callable[[Any], object], words: str = OWN) -> tuple[Any, int]:
    """Return a tree with hostile words in every place that is not refused there, and in how many that is."""
    count = 0
    for path in list(_leaves(tree)):
        changed = _with(tree, path, words)
        try:
            accepted(changed)
        except FedtideError:
            continue
        tree, count = changed, count + 1
    return tree, count


def test_run_pages(made_run: Callable[..., Path], tmp_path: Path, opened: Callable[..., Any]) -> None:
    """Every string of a run folder, and its name."""
    source = made_run(fleet={"num_devices": 4}, policy={"limit": 2}, timeline={"horizon": 1.0})
    folder, usual = tmp_path / HOSTILE.replace("/", "\u2044"), run_page([source])
    shutil.copytree(source, folder)
    experiment = config.dump(config.experiment(config.read_yaml_file(source / "experiment.yaml")))
    versions = json.loads((source / "versions.json").read_text())
    hostile, count = _filled({**experiment, "tracker": [OWN]}, lambda tree: config.experiment(tree))
    assert count > 15
    for tree, told in ((experiment, versions), (hostile, versions), (hostile, {**versions, "handed": [HOSTILE]})):
        (folder / "experiment.yaml").write_text(yaml12.to_yaml(tree))
        (folder / "versions.json").write_text(json.dumps(_filled(told, lambda _: None, HOSTILE)[0]))
        _seal(folder)
        made = run_page([folder])
        _check(made, usual)
        assert not set("<>&") & set(run_page_data([folder], live._tag_of([folder])))
    page = opened(made)
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert page.execute_script("return document.querySelectorAll('script').length") == 3
    assert "onerror=alert(1)" in page.find_element("id", "run0").text
    assert "onerror=alert(1)" in page.find_element("css selector", ".settings").get_attribute("textContent")


@pytest.mark.parametrize("handed", [{HOSTILE: 1}, 5, HOSTILE])
def test_a_damaged_list_is_one_line(handed: Any, made_run: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(made_run(), tmp_path / "run")
    tree = json.loads((tmp_path / "run" / "versions.json").read_text())
    (tmp_path / "run" / "versions.json").write_text(json.dumps({**tree, "handed": handed}))
    _seal(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"versions\.json is damaged"):
        run_page([tmp_path / "run"])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Store]:
    """A study whose name, axes and files are hostile, with its results."""
    place = tmp_path_factory.mktemp("study") / "<b>&store"
    (place / "x<").mkdir(parents=True)
    name = "x</img src=x onerror=alert(1)>.py"
    (place / name).write_text("def f(candidates, limit, rng):\n    return range(min(limit, len(candidates.device)))\n")
    tree = {
        "version": 1,
        "name": HOSTILE,
        "base": {
            "data": {"name": "synthetic", "num_train": 400, "num_test": 50},
            "learning": {"model": "softmax", "local_epochs": 1},
            "timeline": {"horizon": 1.0},
        },
        "axes": {"policy.scheduler": ["random", f"{name}:f"], "policy.limit": [2, 4]},
        "seeds": 2,
    }
    file = place / "study.yaml"
    file.write_text(yaml12.to_yaml(tree))
    store = Store(place / "results")
    assert run_study(read_study(file), store, backend="here") == []
    return file, store


def test_study_pages(stored: tuple[Path, Store], opened: Callable[..., Any]) -> None:
    file, store = stored
    made = _study_page(read_study(file), store, str(file))
    _check(made, _study_page(read_study(file)._replace(name="plain"), store))
    page = opened(made)
    assert page.execute_script("return document.querySelectorAll('img, b[src], svg svg script').length") == 0
    assert page.execute_script("return document.querySelectorAll('script').length") == 5
    assert page.find_element("css selector", "h1").get_attribute("textContent") == HOSTILE


def test_pages_of_stored_results(stored: tuple[Path, Store], tmp_path: Path) -> None:
    """Every string of a stored result."""
    _, store = stored
    names = sorted(store.names())
    first, others = store.load(names[0]), [(name, store.load(name)) for name in names[1:]]

    def page_of(tree: Any) -> str:
        forged = Store(tmp_path)
        forged.write([(names[0], dataclasses.replace(first, **tree)), *others], ["one"])
        return _results_page(*study_curves_in_store(forged, HOSTILE))

    tree = {"experiment": first.experiment, "provenance": first.provenance}
    hostile, count = _filled(tree, page_of)
    assert count > 10
    _check(page_of(hostile), page_of(tree))


@pytest.mark.parametrize("words", [HOSTILE, "]]>", "\u2028\u2029", "\x00\x1b[31m", "\ud800", "<!--<script>"])
def test_data_in_a_script_element_is_ascii_without_markup(words: str) -> None:
    made = payload_json({words: [words]})
    assert made.isascii()
    assert not set("<>&") & set(made)
    assert json.loads(made) == {words: [words]}
