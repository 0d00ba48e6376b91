"""The table of private updates on docs/deploy.md is that of the stored runs."""

from __future__ import annotations

import sys

from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import private_updates  # type: ignore[import-not-found]


def test_the_page_has_the_stored_table() -> None:
    assert f"<!-- private -->\n\n{private_updates.table()}\n<!-- end of private -->" in private_updates.PAGE.read_text()
