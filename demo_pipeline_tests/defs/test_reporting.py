"""What the UI shows of problems."""

from demo_pipeline.problems import Problem, Severity
from demo_pipeline.runs.quarantine import QuarantineRecord


def test_a_quarantine_record_gives_back_every_field_of_its_problems() -> None:
    problem = Problem(
        "torn", "input_log.jsonl", "ends early", line=3, byte=7, severity=Severity.WARNING
    )
    record = QuarantineRecord(
        demonstration="d1",
        stage="events",
        tool_version="1",
        problems=[problem.as_dict(), {"code": 5}],
    )
    first, second = record.known_problems()
    assert first == Problem.from_dict(problem.as_dict(), demonstration="d1")
    assert (first.line, first.byte, first.severity) == (3, 7, "warning")
    assert (second.demonstration, second.code, second.severity) == ("d1", "", "error")
