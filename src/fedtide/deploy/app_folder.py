"""The Flower app of a federation: a folder with a pyproject.toml that `flwr run` sends to server and nodes.

It holds the terms and two lines of code; fedtide itself must be installed wherever it runs.
"""

from __future__ import annotations

import json
from pathlib import Path

from fedtide import __version__
from fedtide.deploy.settings import Terms, to_run_config
from fedtide.errors import FedtideError

_PACKAGE = "fedtide_app"


def write_app(folder: Path, terms: Terms, run_folder: Path) -> Path:
    """Write the app and return its folder. run_folder is where the server keeps the run, on the server's host."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _PACKAGE).is_dir():
        raise FedtideError(f"{folder} holds something else; choose an empty or new folder for the app")
    config = {**to_run_config(terms), "run-folder": str(run_folder)}
    settings = "\n".join(f"{key} = {_toml(value)}" for key, value in config.items())
    package = folder / _PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('"""A federation of fedtide."""\n')
    for side in ("client", "server"):
        # Flower looks for an assignment in the file's text
        text = f'"""The {side}\'s app."""\n\nfrom fedtide.deploy import {side}_app\n\napp = {side}_app.app\n'
        (package / f"{side}.py").write_text(text)
    (folder / "pyproject.toml").write_text(_PROJECT.format(version=__version__, package=_PACKAGE, settings=settings))
    return folder


def _toml(text: str) -> str:
    """Return a text as a TOML basic string: JSON's escapes are TOML's, and everything else is written as \\u."""
    return json.dumps(text).replace("\x7f", "\\u007f")


_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedtide-app"
version = "{version}"
description = "A federation of fedtide"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedtide"

[tool.flwr.app.components]
serverapp = "{package}.server:app"
clientapp = "{package}.client:app"

[tool.flwr.app.config]
{settings}
"""
