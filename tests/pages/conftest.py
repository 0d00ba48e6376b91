"""A browser, and runs to look at."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedtide
from fedtide import config

CHEAP: dict[str, Any] = {
    "data": {"name": "synthetic"},
    "learning": {"model": "softmax", "local_epochs": 1},
    "timeline": {"horizon": 5.0},
}


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that makes the folder of a cheap run with some keys changed, each once."""
    made: dict[str, Path] = {}

    def make(**groups: Any) -> Path:
        experiment = config.experiment(CHEAP, groups)
        key = config.digest(experiment)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("run") / "run"
            fedtide.simulate(experiment, made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def deployed_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that makes the folder of a federation, whole or stopped after five periods, each once."""
    pytest.importorskip("flwr", reason="needs Flower (extra `flower`)")
    flower = str(Path(__file__).parents[1] / "flower")
    if flower not in sys.path:
        sys.path.insert(0, flower)
    from memory_grid import Federation, terms

    made: dict[bool, Path] = {}

    def stop(record: Any) -> None:
        if record.index == 5:
            raise KeyboardInterrupt

    def make(whole: bool) -> Path:
        if whole not in made:
            made[whole] = tmp_path_factory.mktemp("federation") / "run"
            federation = Federation(terms(), made[whole], on_round=None if whole else stop)
            with contextlib.suppress(KeyboardInterrupt):
                federation.coordinator().run()
        return made[whole]

    return make


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium with its console on record, for all pages of a session."""
    selenium = pytest.importorskip("selenium.webdriver", reason="needs the package selenium (extra `test`)")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("needs chromium and chromedriver on the path")
    from selenium.webdriver.chrome.service import Service

    options = selenium.ChromeOptions()
    options.binary_location = binary
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = selenium.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page from a file; at the end the console must have stayed empty."""
    browser.get_log("browser")

    def show(content: str, hash: str = "", width: int = 1280) -> Any:
        path = tmp_path / "page.html"
        path.write_text(content, encoding="utf-8")
        override = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)
        browser.get("about:blank")
        browser.get(path.as_uri() + hash)
        return browser

    yield show
    said = browser.get_log("browser")
    assert not said, said
