"""Verdicts of checks that are kept with the parts, for what has not changed since.

Belongs here: which lines and trajectories a check need not read again. A rebuild that is forced,
and `demo-pipeline validate`, read all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple

from demo_pipeline.datasets.export_parts import Part, kept_parts
from demo_pipeline.desktopd.validator import IndexCounts, KnownTrajectories
from demo_pipeline.files.atomic_write import cut_into_parts
from demo_pipeline.files.line_digests import KnownLines
from demo_pipeline.problems import Problem, errors
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, sorted_by_id

_VERDICTS = "valid trajectories 3"


def with_known_lines(check: Callable[[KnownLines], list[Problem]]) -> list[Problem]:
    """Check only lines that no earlier build has found valid; keep the verdict on the new ones.

    A verdict depends on the line and on the files that it names, which the part's key stands for.
    """
    parts = kept_parts()
    known = parts.kept_lines() if parts else KnownLines()
    found = check(known)
    if parts and not errors(found):
        parts.keep_lines(known)
    return found


class TrajectoryVerdicts:
    """The trajectories that an earlier check has found without an error, and its warnings.

    Args:
        trajectories: all that are checked.

    Attributes:
        known: for `validate_dataset`.
    """

    def __init__(self, trajectories: Sequence[DatasetTrajectory]) -> None:
        self._trajectories = sorted_by_id(trajectories)
        self.known, valid = KnownTrajectories(), dict[str, IndexCounts]()
        for _, part in self._parts():
            verdicts = part.header if part else {"valid": {}, "warnings": {}}
            valid |= {name: IndexCounts(*values) for name, values in verdicts["valid"].items()}
            for name, found in verdicts["warnings"].items():
                self.known.warnings[name] = [Problem.from_dict(values) for values in found]
        self.known.valid = valid

    def keep(self) -> None:
        """Keep the verdict on every part whose trajectories are all valid."""
        parts, found, warnings = kept_parts(), self.known.found, self.known.warnings
        for names, part in self._parts():
            if parts and part is None and found.keys() >= {name for name, _ in names}:
                verdicts = {
                    "valid": {name: astuple(found[name]) for name, _ in names},
                    "warnings": {
                        name: [problem.as_dict() for problem in warnings[name]]
                        for name, _ in names
                        if name in warnings
                    },
                }
                parts.put(parts.shared_key(_VERDICTS, names), Part(verdicts))

    def _parts(self) -> Iterator[tuple[list[tuple[str, str]], Part | None]]:
        """Yield the ids and contents of every part, and its verdict if there is one."""
        parts = kept_parts()
        known = [(source.id, source.content) for source in self._trajectories]
        for names in cut_into_parts(known, [name for name, _ in known]):
            if parts and all(content for _, content in names):
                yield names, parts.get(parts.shared_key(_VERDICTS, names))
