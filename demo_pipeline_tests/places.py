"""Formats the place of a problem for tests that ignore the column."""

from demo_pipeline.problems import Problem


def file_and_line(problem: Problem) -> str:
    """Returns the place of a problem as `file:line`, or as `file` if it has no line."""
    return problem.file if problem.line is None else f"{problem.file}:{problem.line}"
