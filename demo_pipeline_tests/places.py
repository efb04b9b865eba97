"""Where a problem is, for tests that do not care about the column."""

from demo_pipeline.problems import Problem


def file_and_line(problem: Problem) -> str:
    """`file:line`, or `file` without a line."""
    return problem.file if problem.line is None else f"{problem.file}:{problem.line}"
