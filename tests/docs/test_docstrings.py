"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import fedtide

SOURCE = Path(fedtide.__file__).parent
MODULES = [
    "fedtide." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_central_functions_have_examples() -> None:
    assert {
        "fedtide.codec.base",
        "fedtide.codec.sparse_quantized",
        "fedtide.columns",
        "fedtide.learning.model",
        "fedtide.rng",
        "fedtide.schedule.label_variance",
    } <= {*MODULES}
