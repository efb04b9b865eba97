"""Tests that problems survive conversion to dictionaries, and that other versions are read."""

import json

import pytest

from demo_pipeline.problems import Problem, Severity

FULL = Problem(
    "torn",
    "input_log.jsonl",
    "ends early",
    line=3,
    frame=5,
    remedy="send it again",
    severity=Severity.WARNING,
    demonstration="d1",
    byte=7,
    column=9,
)


@pytest.mark.parametrize("problem", [FULL, Problem("torn", "meta.json", "ends early")])
def test_a_problem_survives_a_json_document(problem):
    values = json.loads(json.dumps(problem.as_dict()))
    assert Problem.from_dict(values) == problem
    assert isinstance(Problem.from_dict(values).severity, Severity)


def test_the_column_is_part_of_the_place():
    assert FULL.location == "input_log.jsonl:3:9"
    assert Problem("torn", "meta.json", "ends early", 1).location == "meta.json:1"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"code": 5, "file": None, "message": ["x"], "remedy": {}, "demonstration": 1},
        {"line": "three", "frame": True, "byte": 1.5, "severity": "fatal"},
        {"line": -1, "frame": 2**63, "severity": None, "unknown": 1},
    ],
)
def test_missing_values_and_values_of_other_types_become_empty(values):
    assert Problem.from_dict(values) == Problem("", "", "")
