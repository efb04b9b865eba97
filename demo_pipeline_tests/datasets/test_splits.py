"""Tests of splits: no task is in two splits, and new demonstrations move no old ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.datasets.splits import Split, assign_splits, connected_groups, stable_position
from demo_pipeline.settings import DatasetSettings

NAMES = st.text("abcdefgh_0123456789", min_size=1, max_size=8)
GROUPS = st.dictionaries(NAMES, NAMES, max_size=40)


def many(count):
    return {f"demo_{n}": f"group_{n}" for n in range(count)}


@given(GROUPS, st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_trajectory_has_a_split_and_no_group_has_two(groups, seed):
    plan = assign_splits(groups, DatasetSettings(seed=seed))
    assert set(plan.splits) == set(groups)
    assert set(plan.groups) == set(groups.values())
    for trajectory, group in groups.items():
        assert plan.splits[trajectory] is plan.groups[group]


@given(st.sets(NAMES, min_size=1, max_size=40), st.sets(NAMES, max_size=20), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_new_groups_move_only_groups_that_fill_a_split(old, new, seed):
    before = assign_splits({name: name for name in old}, DatasetSettings(seed=seed))
    after = assign_splits({name: name for name in old | new}, DatasetSettings(seed=seed))
    moved = {name for name in old if after.groups[name] is not before.groups[name]}
    assert moved <= {name for name, _ in (*before.filled, *after.filled)}
    if not before.filled and not after.filled:
        assert not moved


@given(GROUPS)
@settings(max_examples=60, deadline=None)
def test_a_split_stays_empty_only_if_no_other_split_has_two_groups(groups):
    plan = assign_splits(groups, DatasetSettings())
    members = [list(plan.groups.values()).count(split) for split in Split]
    if plan.empty:
        assert max(members) <= 1
    assert bool(plan.empty) == (len(plan.groups) < 3)


def test_val_and_test_of_twenty_tasks_are_never_empty():
    plans = [assign_splits(many(20), DatasetSettings(seed=seed)) for seed in range(300)]
    assert not [plan.empty for plan in plans if plan.empty]
    # In 10 to 30 % of the plans, a split would be empty if no group were moved to it.
    assert 0.1 < sum(bool(plan.filled) for plan in plans) / 300 < 0.3


def test_three_demonstrations_fill_three_splits_and_the_plan_says_how():
    plan = assign_splits(many(3), DatasetSettings())
    assert set(plan.groups.values()) == {Split.TRAIN, Split.VAL, Split.TEST}
    assert {split for _, split in plan.filled} <= {Split.TRAIN, Split.VAL, Split.TEST}
    unmoved = set(plan.groups) - {group for group, _ in plan.filled}
    for group in unmoved:
        at = stable_position(0, group)
        expected = Split.TRAIN if at < 0.8 else Split.VAL if at < 0.9 else Split.TEST
        assert plan.groups[group] is expected


def test_the_group_nearest_the_empty_split_is_moved():
    one_sided = {k: g for k, g in many(40).items() if stable_position(0, g) < 0.5}
    few = dict(list(one_sided.items())[:5])
    plan = assign_splits(few, DatasetSettings(train_ratio=0.5, val_ratio=0.0))
    nearest = max(few.values(), key=lambda g: stable_position(0, g))
    assert plan.filled == ((nearest, Split.TEST),)


def test_shares_follow_the_ratios():
    plan = assign_splits(many(2000), DatasetSettings())
    shares = [list(plan.splits.values()).count(split) / 2000 for split in Split]
    assert abs(shares[0] - 0.8) < 0.03
    assert abs(shares[1] - 0.1) < 0.02
    assert abs(shares[2] - 0.1) < 0.02
    assert shares[3] == 0


def test_a_split_without_a_ratio_gets_nothing():
    only = DatasetSettings(train_ratio=1.0, val_ratio=0.0)
    assert set(assign_splits(many(10), only).groups.values()) == {Split.TRAIN}


def test_a_held_out_application_takes_its_whole_group():
    groups = {"a": "shared", "b": "shared", "c": "other"}
    chosen = DatasetSettings(held_out_applications=("gimp",))
    plan = assign_splits(groups, chosen, {"a": "gimp", "b": "chrome", "c": "chrome"})
    assert plan.splits["a"] is plan.splits["b"] is Split.HELD_OUT
    assert plan.splits["c"] is not Split.HELD_OUT


def test_a_held_out_application_is_known_by_any_of_its_names_and_missed_when_absent():
    chosen = DatasetSettings(held_out_applications=("Google Chrome", "Krita"))
    plan = assign_splits({"a": "one", "b": "two"}, chosen, {"a": "chrome", "b": "gimp"})
    assert plan.splits["a"] is Split.HELD_OUT
    assert plan.absent == ("Krita",)


def test_another_seed_gives_other_splits():
    first = assign_splits(many(100), DatasetSettings(seed=1)).groups
    second = assign_splits(many(100), DatasetSettings(seed=2)).groups
    assert first != second


def test_demonstrations_are_grouped_through_shared_split_groups():
    links = {"a": ["t1"], "b": ["t1", "t2"], "c": ["t2"], "d": ["t3"], "e": []}
    groups = connected_groups(links)
    assert groups["a"] == groups["b"] == groups["c"] == "t1"
    assert len({groups["a"], groups["d"], groups["e"]}) == 3


@given(st.dictionaries(NAMES, st.lists(NAMES, max_size=3), max_size=15))
@settings(max_examples=60, deadline=None)
def test_trajectories_with_a_common_split_group_share_a_group(links):
    groups = connected_groups(links)
    assert set(groups) == set(links)
    for key, first in links.items():
        for other, second in links.items():
            if set(first) & set(second):
                assert groups[key] == groups[other]
