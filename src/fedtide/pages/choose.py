"""Which page a folder becomes: that of a run, of two runs, or of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedtide.core.files import is_there
from fedtide.errors import RunFolderError
from fedtide.pages.run import run_page
from fedtide.pages.study import folder_page, study_page
from fedtide.studies.spec import read_study
from fedtide.studies.store import Store


def page_of(paths: Sequence[Path], store: Path | None = None) -> str:
    """Return the page of what lies there, as one HTML file. store: where the results of a study file are."""
    if are_runs(paths):
        return run_page(paths)
    if len(paths) > 1:
        raise RunFolderError(
            f"{paths[0]} is no run folder; name one run, two runs, or one study (a file, or its results)"
        )
    if paths[0].is_dir():
        return folder_page(paths[0])
    return study_page(read_study(paths[0]), Store(store or Path("results")), str(paths[0]))


def are_runs(paths: Sequence[Path]) -> bool:
    """Say whether these are run folders; raise if something is not there, or only some are."""
    for path in paths:
        if not is_there(path):
            raise RunFolderError(f"there is no {path}; name a run folder, or a study")
    found = [is_there(path / "experiment.yaml") for path in paths]
    if any(found) and not all(found):
        raise RunFolderError(
            f"{paths[found.index(False)]} is no run folder and {paths[found.index(True)]} is one; "
            "name one run, two runs, or a study"
        )
    return all(found)
