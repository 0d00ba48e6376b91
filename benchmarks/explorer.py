"""The picture of the explorer in the README: two schedulers on the same fading, taken in a headless Chromium.

Trains what is missing, 60 aggregations each, in build/explorer: a minute. Needs Chromium, chromedriver and selenium (extra `test`).
"""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path

import fedtide
from fedtide.pages.run import run_page

ROOT = Path(__file__).resolve().parent.parent
WORK, PICTURE = ROOT / "build" / "explorer", ROOT / "docs" / "figures" / "explorer.png"
WIDTH, SCALE = 1000, 2  # the page's width in px, and pixels of the picture per px
AT, SPAN = 10, "12"  # the aggregation in view, and how many are shown around it
KEYS = {"timeline.horizon": 15.0, "fleet.num_devices": 20, "policy.limit": 5, "radio.num_symbols": 190_000}
# What the picture leaves out, and the panel that it ends with
HIDDEN = ".tools, .origin, details, .facts, .now, #measures, .exports, #moments li:nth-child(n+9)"
LAST = "Airtime, symbols"
# Returns where the picture ends
PREPARE = """
const sheet = new CSSStyleSheet();
sheet.replaceSync(`${arguments[0]} { display: none !important; }`);
document.adoptedStyleSheets = [sheet];
const span = [...document.querySelectorAll("select")].find((each) => each.querySelector(`option[value="${arguments[1]}"]`));
if (span) { span.value = arguments[1]; span.dispatchEvent(new Event("input")); span.dispatchEvent(new Event("change")); }
const last = [...document.querySelectorAll("h3")].filter((each) => each.textContent === arguments[2]).pop();
return Math.ceil(last.closest(".panel").getBoundingClientRect().bottom + window.scrollY) + 12;
"""


def main() -> None:
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        sys.exit("needs chromium and chromedriver on the path")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    runs = []
    for scheduler in ("proposed", "random"):
        runs.append(WORK / scheduler)
        fedtide.simulate(fedtide.experiment(KEYS, {"policy.scheduler": scheduler}), runs[-1])
    page = WORK / "page.html"
    page.write_text(run_page(runs), encoding="utf-8")
    options = ChromeOptions()
    options.binary_location = chromium
    for word in (
        f"--window-size={WIDTH},1200",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--force-device-scale-factor={SCALE}",
    ):
        options.add_argument(word)
    browser = Chrome(options=options, service=Service(driver))
    try:
        browser.get(f"{page.as_uri()}#t={AT}")
        browser.execute_script(PREPARE, HIDDEN, SPAN, LAST)
        height = browser.execute_script(PREPARE, HIDDEN, SPAN, LAST)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
        taken = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        found = browser.execute_cdp_cmd("Page.captureScreenshot", taken)
    finally:
        browser.quit()
    PICTURE.write_bytes(base64.b64decode(found["data"]))


if __name__ == "__main__":
    main()
