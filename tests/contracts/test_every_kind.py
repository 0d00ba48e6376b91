"""Every kind of part has a suite, and every suite runs over what is registered of its kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedtide import testing
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.parts.kinds import KINDS, builtin_parts
from promises import part
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


FROM_OUTSIDE = ("data", "trainer")  # need files or a task: their own suites make them, and check them
MORE = {"fleet_durations": np.linspace(0.1, 1, 20), "data_num_shards": 40, "radio_symbol_rate": 1e6}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FROM_OUTSIDE])
def test_every_part_of_ours_depends_on_its_arguments_alone(kind: str) -> None:
    """As testing.check finds out for a user's own, which a run calls before it begins."""
    by_name = kind in ("model", "tracker")  # what makes them is what is checked
    unequal = {"speed_sizes": {"data_size_spread": 0.5}}
    parts = {
        name: name if by_name else part(kind, name, **MORE, **unequal.get(name, {})) for name in builtin_parts(kind)
    }
    assert {name: found for name, each in parts.items() if (found := testing.check(each, kind))} == {}


def test_a_number_that_means_years_is_refused() -> None:
    with pytest.raises(FedtideError, match=r"tries=1000000000000000000 cannot be: .*less than or equal to 100000"):
        registry.part("scheduler", "best_of_random_subsets", {"tries": 10**18})
