"""Names of runs are those of the methods, and never the same for two runs of one scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ct_dip.data.run_names import run_names

FAST = {"method": "dip", "preset": "fast", "dip": {"steps": 100, "channels": [1, 2]}}
SLOW = {"method": "dip", "preset": "thorough", "dip": {"steps": 900, "channels": [1, 2]}}


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([("a", "tv", {}), ("a", "fbp", {}), ("b", "tv", {"tv": {"strength": 2}})], ["tv", "fbp", "tv"]),
        ([("a", "dip", FAST), ("a", "dip", SLOW)], ["dip, preset fast", "dip, preset thorough"]),
        ([("a", "tv", {"tv": {"strength": s}}) for s in (1, 2)], ["tv, strength 1", "tv, strength 2"]),
        ([("a", "tv", {}), ("a", "tv", {})], ["tv", "tv (2)"]),
    ],
)
def test_only_what_tells_runs_apart_is_named(runs, names):
    assert run_names(runs) == names


SETTINGS = st.fixed_dictionaries(
    {"seed": st.integers(0, 1), "tv": st.fixed_dictionaries({"a": st.integers(0, 2)})}
)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["tv", "dip"]), SETTINGS), max_size=8))
def test_no_two_runs_of_a_scan_have_one_name(runs):
    names = run_names(runs)
    assert len({(scan, name) for (scan, _, _), name in zip(runs, names, strict=True)}) == len(runs)
    assert all(name.startswith(method) for (_, method, _), name in zip(runs, names, strict=True))
