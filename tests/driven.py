"""A browser for tests that drive a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no chromium and chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


def show(browser: Any, page: str, folder: Path, at: str = "") -> None:
    """Open a page from a file."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    browser.get("about:blank")
    browser.get(f"{file.as_uri()}{at}")


def said(browser: Any) -> list[str]:
    """Return what the page said on the console since the last time."""
    return [each["message"] for each in browser.get_log("browser")]
