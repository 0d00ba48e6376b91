"""Every kind of part has a suite, and every suite runs over what is registered of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtide.core.kinds import KINDS
from with_memory import REMEMBERING

HERE = Path(__file__).parent


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_suite_over_its_table(kind: str) -> None:
    text = (HERE / f"test_{kind}.py").read_text(encoding="utf-8")
    assert f'table("{kind}")' in text
    assert "parametrize" in text


def test_every_kind_with_memory_has_an_example_in_its_suite() -> None:
    assert {*REMEMBERING} == {name for name, kind in KINDS.items() if kind.remembers is not None}
    for kind in REMEMBERING:
        assert f'REMEMBERING["{kind}"]' in (HERE / f"test_{kind}.py").read_text(encoding="utf-8")
