"""The rules for the split report of a CUDAG dataset, beyond single mutations."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.cudag.inventory import CudagInventory
from demo_pipeline.exports.cudag.models import HASHED, RECORD_FILES
from demo_pipeline.exports.cudag.record_rules import Scope
from demo_pipeline.exports.cudag.split_report import split_faults

RATIOS = {"train": 0.8, "val": 0.1, "test": 0.1}
CONFIG = {"split_ratios": RATIOS, "split_filled": []}


def report_of(groups: dict[str, int]) -> dict[str, Any]:
    """A valid report with this number of groups per split, one trajectory each, without records."""
    members = {
        f"{split}_{n}": {"group": f"{split}_{n}", "split": split}
        for split, count in groups.items()
        for n in range(count)
    }
    placed = Counter(member["split"] for member in members.values())
    total = sum(placed[split] for split in HASHED)
    splits: dict[str, dict[str, Any]] = {
        split: {"groups": placed[split], "trajectories": placed[split], "records": 0}
        for split in RECORD_FILES
    }
    for split in HASHED:
        share = round(placed[split] / total, 6) if total else 0
        splits[split] |= {"ratio": RATIOS[split], "share": share}
    excluded: dict[str, dict[str, int]] = {"trajectories": {}, "records": {}}
    return {"splits": splits, "excluded": excluded, "filled": [], "trajectories": members}


@pytest.mark.parametrize(
    ("groups", "messages"),
    [
        ({"train": 80, "val": 10, "test": 10}, []),
        ({"train": 80, "val": 10, "test": 10, "held_out": 300}, []),
        ({"train": 88, "val": 3, "test": 9}, []),
        ({"train": 1, "val": 1, "test": 1}, []),
        (
            {"train": 50, "val": 40, "test": 10},
            [
                "train has 50.0% of 100 groups, expected 80.0%",
                "val has 40.0% of 100 groups, expected 10.0%",
            ],
        ),
        ({"train": 0, "val": 0, "test": 0}, []),
    ],
)
def test_shares_that_chance_does_not_explain_are_a_warning(groups, messages):
    faults = [fault for _, fault in split_faults(report_of(groups), CONFIG, CudagInventory())]
    found = [fault for fault in faults if fault.code != "empty_split"]
    assert [fault.message for fault in found] == messages
    assert {fault.scope for fault in found} <= {Scope.NOTE}


def test_a_wanted_split_without_records_is_a_warning_with_its_reason():
    report = report_of({"train": 3, "val": 2, "test": 0})
    inventory = CudagInventory(records=Counter(train=5))
    report["splits"]["train"]["records"] = 5
    found = [fault for _, fault in split_faults(report, CONFIG, inventory)]
    assert [(fault.code, fault.scope) for fault in found] == [("empty_split", Scope.NOTE)] * 2
    assert found[0].message.startswith("val is empty: every record of its 2 task groups")
    assert found[1].message.startswith("test is empty: there are too few task groups")


def test_an_unwanted_split_and_an_empty_dataset_may_be_empty():
    ratios = {"train": 1.0, "val": 0.0, "test": 0}
    config = {"split_ratios": ratios, "split_filled": []}
    report = report_of({"train": 1, "val": 0, "test": 0})
    report["splits"]["train"]["records"] = 1
    for split, ratio in ratios.items():
        report["splits"][split]["ratio"] = ratio
    inventory = CudagInventory(records=Counter(train=1))
    assert list(split_faults(report, config, inventory)) == []
    empty = report_of({"train": 0, "val": 0, "test": 0})
    assert list(split_faults(empty, CONFIG, CudagInventory())) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
PLACES = [
    ("splits",),
    ("splits", "val"),
    ("splits", "val", "groups"),
    ("splits", "val", "share"),
    ("excluded",),
    ("excluded", "records"),
    ("trajectories",),
    ("trajectories", "train_0"),
    ("trajectories", "train_0", "group"),
    ("trajectories", "train_0", "split"),
    ("filled",),
]


@given(st.sampled_from(PLACES), JSON, st.sampled_from([RATIOS, None, [], {"val": "x"}]))
@settings(max_examples=80, deadline=None)
def test_any_value_is_valid_or_a_fault_and_never_a_traceback(place, value, ratios):
    report = report_of({"train": 2, "val": 1, "test": 1})
    target = report
    for key in place[:-1]:
        target = target[key]
    same = target[place[-1]] == value
    target[place[-1]] = value
    config = {"split_ratios": ratios, "split_filled": []}
    found = list(split_faults(report, config, CudagInventory()))
    if ratios is RATIOS and not same and place not in (PLACES[5], PLACES[8]):
        assert found
