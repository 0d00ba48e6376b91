"""Every kind of part has a suite, and every suite runs over what is registered of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import KINDS, builtin_parts
from with_memory import REMEMBERING

HERE = Path(__file__).parent


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_suite_over_its_table(kind: str) -> None:
    text = (HERE / f"test_{kind}.py").read_text(encoding="utf-8")
    assert f'builtin_parts("{kind}")' in text
    assert "parametrize" in text


def test_every_kind_with_memory_has_an_example_in_its_suite() -> None:
    assert {*REMEMBERING} == {name for name, kind in KINDS.items() if kind.memory}
    for kind in REMEMBERING:
        assert f'REMEMBERING["{kind}"]' in (HERE / f"test_{kind}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_whole_number_of_ours_has_an_upper_bound(kind: str) -> None:
    """It is how long a loop or an array is: one slip of the keyboard would mean years. How many samples, the data set says."""
    ours = builtin_parts(kind)
    for name in ours:
        for each in registry.own_parameters(kind, registry.find_part(kind, name, ours)):
            if each.type in (int, int | None) and each.about.key not in ("seed", "data.num_train", "data.num_test"):
                assert {"le", "lt"} & {*each.about.bounds}, (kind, name, each.name)


def test_a_number_that_means_years_is_refused() -> None:
    with pytest.raises(FedtideError, match=r"tries=1000000000000000000 cannot be: .*less than or equal to 100000"):
        registry.part("scheduler", "best_of_random_subsets", {"tries": 10**18})
