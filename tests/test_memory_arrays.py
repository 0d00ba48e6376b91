from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedtide.errors import FedtideError
from fedtide.runs.checkpoint import _from_arrays, _to_arrays

names = st.sampled_from(["m", "v", "layer.0.weight", "x-1", "memory", "devices"])
some = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.bool_]),
    arrays.array_shapes(min_dims=0, max_dims=2, min_side=0),
)
server = st.dictionaries(
    st.sampled_from(["scheduler", "aggregator"]), st.dictionaries(names, some, min_size=1, max_size=3)
)
fleet = st.dictionaries(
    st.sampled_from(["codec", "trainer"]),
    st.dictionaries(st.integers(0, 2**40), st.dictionaries(names, some, max_size=3), min_size=1, max_size=4),
)


def plain(tree: Any) -> Any:
    """Return nested arrays as what can be compared."""
    if isinstance(tree, dict):
        return {key: plain(each) for key, each in tree.items()}
    return tree.dtype.str, tree.shape, tree.tobytes()


def archived(found: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    np.savez(buffer, **found)
    buffer.seek(0)
    with np.load(buffer) as saved:
        return {name: saved[name] for name in saved}


@given(server, fleet)
def test_memory_comes_back_through_an_archive(memory: Any, devices: Any) -> None:
    again = _from_arrays(archived({"format": np.array(2), **_to_arrays(memory, devices)}))
    assert plain(again[0]) == plain(memory)
    assert plain(again[1]) == plain(devices)


def test_equal_rows_are_stacked_and_others_are_not() -> None:
    row = {3: {"residual": np.ones(4, np.float32)}, 1: {"residual": np.zeros(4, np.float32)}}
    found = _to_arrays(
        {"aggregator": {"m": np.arange(3.0)}}, {"codec": row, "trainer": {2: {"x": np.ones(2)}, 5: {"x": np.ones(3)}}}
    )
    assert {name: each.shape for name, each in found.items()} == {
        "memory/aggregator/m": (3,),
        "devices/codec": (2,),
        "devices/codec/residual": (2, 4),
        "devices/trainer": (2,),
        "devices/trainer/x/2": (2,),
        "devices/trainer/x/5": (3,),
    }
    assert found["devices/codec"].tolist() == [1, 3]
    assert found["devices/codec/residual"][:, 0].tolist() == [0, 1]


def test_nothing_remembered_is_nothing_written() -> None:
    for memory, devices in (({}, {}), ({"aggregator": {}}, {"codec": {}})):
        assert _to_arrays(memory, devices) == {}
    assert _from_arrays({"models": np.zeros(3)}) == ({}, {})


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([{}]), "aggregator's memory 'm' is an array of object: keep NumPy arrays"),
        (np.zeros(2, [("a", object)]), "is an array of"),
        ([1.0], "is a list"),
        (3.0, "is a float"),
        (None, "is a NoneType"),
    ],
)
def test_what_a_checkpoint_cannot_hold(array: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        _to_arrays({"aggregator": {"m": array}}, {})
    with pytest.raises(FedtideError, match=says.replace("aggregator", "codec")):
        _to_arrays({}, {"codec": {0: {"m": array}}})


@pytest.mark.parametrize("name", ["", "a/b", "m.npy", "../x", "a b", "x" * 101, 7, "é\n"])
def test_names_that_no_archive_keeps_apart(name: Any) -> None:
    with pytest.raises(FedtideError, match="memory has the name") as caught:
        _to_arrays({"aggregator": {name: np.zeros(1)}}, {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "found",
    [
        {"devices/codec": np.array([1]), "devices/codec/r": np.zeros((2, 3))},
        {"devices/codec": np.array([1]), "devices/codec/r": np.zeros(())},
        {"devices/codec/r": np.zeros((2, 3))},
        {"devices/codec": np.array([1]), "devices/codec/r/2": np.zeros(3)},
        {"devices/codec": np.array([1]), "devices/codec/r/x": np.zeros(3)},
    ],
)
def test_arrays_that_do_not_belong_together(found: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        _from_arrays(found)
