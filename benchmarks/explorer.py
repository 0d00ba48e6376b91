"""The picture of the explorer in the README: two schedulers on the same fading, taken in a headless Chromium.

Trains what is missing, 60 aggregations each, in build/explorer: some minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fedtide
from fedtide.pages.run import run_page

ROOT = Path(__file__).resolve().parent.parent
WORK, PICTURE = ROOT / "build" / "explorer", ROOT / "docs" / "figures" / "explorer.png"
SIZE, AT = (1280, 1022), 21  # pixels; the aggregation in view


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("needs chromium on the path")
    runs = []
    for scheduler in ("proposed", "random"):
        runs.append(WORK / scheduler)
        fedtide.simulate(fedtide.experiment({"timeline.horizon": 15.0, "policy.scheduler": scheduler}), runs[-1])
    page = WORK / "page.html"
    page.write_text(run_page(runs), encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={WORK / 'browser'}"]
    words += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={PICTURE}", f"{page.as_uri()}#t={AT}"]
    subprocess.run([chromium, *words], check=True)


if __name__ == "__main__":
    main()
