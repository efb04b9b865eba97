"""Tests of leak rates, and of the warning if a rate is above its limit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.settings import TrajectorySettings
from demo_pipeline.trajectories.pointer_leaks import LeakRates, check_leak_rates, leak_rates
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.fixed_values import settings_with

LIMITS = settings_with(TrajectorySettings, max_avoidable_leak_rate=0.25, max_leak_rate=0.5)
KINDS = ("click", "double_click", "right_click", "drag", "scroll", "type", "hotkey", "wait")


def row(kind: str = "click", *, leak: bool = False, unavoidable: bool = False) -> dict:
    return {"action_type": kind, "leak": leak, "unavoidable": unavoidable, "reason_code": "settled"}


def test_rates_are_shares_of_the_pointing_actions():
    rows = [row(leak=True), row("scroll", leak=True, unavoidable=True), row("drag"), row("type")]
    assert leak_rates(rows).as_dict() == {
        "pointer_actions": 3,
        "leaks": 2,
        "unavoidable_leaks": 1,
        "leak_rate": 0.6667,
        "unavoidable_leak_rate": 0.3333,
    }


def test_only_pointing_actions_count_as_leaks():
    rows = [row(kind, leak=True) for kind in ("type", "hotkey", "wait")]
    assert leak_rates(rows) == LeakRates()
    assert leak_rates(rows).as_dict()["leak_rate"] == 0.0


@given(
    st.lists(st.builds(row, st.sampled_from(KINDS), leak=st.booleans(), unavoidable=st.booleans()))
)
def test_rates_of_parts_add_up(rows):
    whole = leak_rates(rows)
    assert leak_rates(rows[::2]) + leak_rates(rows[1::2]) == whole
    assert 0 <= whole.unavoidable_leaks <= whole.leaks <= whole.pointer_actions <= len(rows)


def table(root: Path, avoidable: int, unavoidable: int) -> Path:
    """Writes the provenance of four clicks, with the given numbers of leaks."""
    rows = {n: {"leak": True, "reason_code": "backoff"} for n in range(avoidable)}
    for n in range(avoidable, avoidable + unavoidable):
        rows[n] = {"leak": True, "unavoidable": True}
    return make_trajectory(root, "demo", [CLICK] * 4, rows=rows).provenance


@pytest.mark.parametrize(
    ("avoidable", "unavoidable", "codes"),
    [
        (0, 0, []),
        (1, 0, []),
        (2, 0, ["avoidable_leak_rate"]),
        (0, 2, []),
        (0, 3, ["leak_rate"]),
        (2, 1, ["avoidable_leak_rate", "leak_rate"]),
    ],
)
def test_a_rate_above_its_limit_gives_a_warning(tmp_path, avoidable, unavoidable, codes):
    problems = check_leak_rates(table(tmp_path, avoidable, unavoidable), LIMITS)
    assert [problem.code for problem in problems] == codes


def test_a_warning_has_numbers_reason_codes_and_the_settings(tmp_path):
    avoidable, total = check_leak_rates(table(tmp_path, 2, 1), LIMITS)
    assert avoidable.message == (
        "2 of 4 pointing actions have an avoidable leak: rate 0.5000, limit 0.25; "
        "by reason code: backoff 2"
    )
    assert total.message.endswith("rate 0.7500, limit 0.5; by reason code: backoff 2, pre_move 1")
    for problem in (avoidable, total):
        assert "datasets.include_avoidable_leaks" in problem.remedy
        assert "datasets.include_unavoidable_leaks" in problem.remedy
