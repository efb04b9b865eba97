"""What a batch run says at its end: joint checks, counts, and which demonstrations are not done.

Belongs here: turning results into check outcomes and the run's failure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.files.shown_text import plain_line
from demo_pipeline.pipeline.batch_progress import BatchProgress
from demo_pipeline.pipeline.demonstration_run import DemonstrationResult, StageReport
from demo_pipeline.problems import Problem
from demo_pipeline.stage import Check, Stage
from demo_pipeline.storage.store.version_manifest import CheckOutcome

_SHOWN = 20
_REMEDY = {
    "superseded": "none: the upload changed during the run, and a new run follows",
    "waiting": "none, if that passes: it is tried again by itself",
    "crashed": "report it; then materialise its partition again",
}


@dataclass
class BatchReport:
    """The results of a batch run.

    Attributes:
        stages: that ran, in order.
        progress: the counts.
        results: in the order in which they ended.
    """

    stages: tuple[Stage, ...]
    progress: BatchProgress
    results: list[DemonstrationResult] = field(default_factory=list)

    def add(self, result: DemonstrationResult) -> None:
        """Take in one result; of its outputs only the checks and their counts are kept."""
        slim = tuple(replace(made, summary=self._counts(made)) for made in result.stages)
        self.results.append(replace(result, stages=slim))

    def folder(self, stage: str) -> str:
        """Folder of a stage's outputs in the store."""
        return next(known.folder for known in self.stages if known.name == stage)

    def missing(self, result: DemonstrationResult) -> list[str]:
        """Names of the stages that gave a demonstration nothing."""
        given = {made.stage for made in result.stages}
        return [stage.name for stage in self.stages if stage.name not in given]

    def line(self, result: DemonstrationResult) -> str:
        """Why a demonstration is not done, in one line."""
        return str(self._problems(result)[0])

    def given(self, stage: str) -> int:
        """Number of demonstrations that a stage gave an output."""
        return sum(made.stage == stage for one in self.results for made in one.stages)

    def joint_checks(self, stage: Stage) -> list[CheckOutcome]:
        """One outcome for each check of a stage, over all demonstrations that came to it.

        It fails for every demonstration that this stage stopped. No check ran when none came.
        """
        stopped = [
            problem
            for result in self.results
            if result.status != "done" and result.stage == stage.name
            for problem in self._problems(result)
        ]
        if not stopped and not self.given(stage.name):
            return []
        return [self._joint(check, stage.name, stopped) for check in stage.checks]

    def say_checks(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, stage: Stage
    ) -> None:
        """Report the joint checks of a stage; a failed one is red, and stops no later step."""
        for outcome in self.joint_checks(stage):
            said = reporting.check_result(outcome)
            evaluation = dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(stage.name),
                check_name=outcome.name,
                passed=outcome.passed,
                severity=said.severity,
                description=said.description,
                metadata=said.metadata,
                blocking=False,
            )
            context.log_event(evaluation)  # type: ignore[arg-type] # its signature lags behind

    def numbers(self) -> dict[str, int]:
        """How many demonstrations ended in which way."""
        return self.progress.numbers()

    def failure(self) -> dg.Failure | None:
        """What ends the run, when a demonstration needs somebody or another run."""
        if not self.progress.not_done:
            return None
        left = [one for one in self.results if one.status not in {"done", "superseded"}]
        left.sort(key=lambda one: one.demonstration)
        lines = [
            f"  {one.status} in {one.stage}: {plain_line(self.line(one))}" for one in left[:_SHOWN]
        ]
        more = [f"  … and {len(left) - _SHOWN} more"] if len(left) > _SHOWN else []
        found = [problem for one in left for problem in self._problems(one)]
        return dg.Failure(
            description="\n".join([f"{self.progress.last_line()}:", *lines, *more]),
            metadata={**self.numbers(), "found": reporting.problem_table(found)},
            allow_retries=False,
        )

    def _joint(self, check: Check[Any], stage: str, stopped: Sequence[Problem]) -> CheckOutcome:
        built = [made for one in self.results for made in one.stages if made.stage == stage]
        outcomes = [found for made in built for found in made.checks if found.name == check.name]
        problems = [*stopped, *(problem for outcome in outcomes for problem in outcome.problems)]
        passed = not stopped and all(outcome.passed for outcome in outcomes)
        compared = Counter(demonstrations=len(built))
        for made in built:
            compared.update(check.counts(made.summary))
        return CheckOutcome(check.name, passed, tuple(problems), compared, blocking=check.blocking)

    def _counts(self, made: StageReport) -> dict[str, int]:
        checks = next(known.checks for known in self.stages if known.name == made.stage)
        return {
            name: number for check in checks for name, number in check.counts(made.summary).items()
        }

    def _problems(self, result: DemonstrationResult) -> list[Problem]:
        key = result.demonstration
        return [
            replace(
                problem,
                demonstration=problem.demonstration or key,
                remedy=problem.remedy or _REMEDY.get(result.status, ""),
            )
            for problem in result.problems
        ] or [Problem(result.status, ".", "ended without a reason", demonstration=key)]
