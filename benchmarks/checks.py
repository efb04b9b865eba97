"""Measures what the checks of all outputs cost, beside building them, over the samples.

Run: `.venv/bin/python benchmarks/checks.py [--rounds 3] [--exports sft,messages,cudag]`. Each round
builds the four samples and the datasets in a fresh process and a new store. A row has the user CPU
seconds of a stage over all samples: of its build function and of its checks. The last row also has
the whole round, which opens, hashes and commits too. Figures are medians of the rounds. User CPU
time is hardly changed by other work on the machine.
"""

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.child import in_child  # noqa: E402 - after the path
from demo_pipeline.runs.stages import STAGES, built_stages  # noqa: E402
from demo_pipeline.settings import BUILT_IN_EXPORTS  # noqa: E402
from demo_pipeline_tests.building import run_dataset_stage  # noqa: E402
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages  # noqa: E402

SAMPLES = ROOT / "data" / "samples"


@dataclass
class Costs:
    """User CPU seconds of a round: by stage, and of everything.

    `checks` and `builds` are added to by the stages while they are built.
    """

    builds: dict[str, float] = field(default_factory=dict)
    checks: dict[str, float] = field(default_factory=dict)
    total: float = 0.0


def user_seconds() -> float:
    """User CPU time of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def timed(function: Callable[..., Any], seconds: dict[str, float], stage: str) -> Any:
    """The same function, which adds its user CPU time to the seconds of its stage."""

    def measured(*arguments: Any) -> Any:
        before = user_seconds()
        try:
            return function(*arguments)
        finally:
            seconds[stage] = seconds.get(stage, 0.0) + user_seconds() - before

    return measured


def build_samples(exports: Sequence[str]) -> Costs:
    """Build every output of the samples, and measure."""
    costs = Costs()
    with tempfile.TemporaryDirectory(prefix="checks-") as text:
        root = Path(text)
        shutil.copytree(SAMPLES, root / "uploads")
        workspace = open_workspace(root, datasets={"exports": exports})
        datasets = built_stages(workspace.settings)
        for stage in (*STAGES, *datasets):
            object.__setattr__(stage, "build", timed(stage.build, costs.builds, stage.name))
            for check in stage.checks:
                object.__setattr__(check, "run", timed(check.run, costs.checks, stage.name))
        before = user_seconds()
        for upload in workspace.uploads.list_demonstrations():
            run_all_stages(workspace, upload.id)
        for dataset in datasets:
            run_dataset_stage(workspace, dataset)
        costs.total = user_seconds() - before
    return costs


def main() -> None:
    """Measure the rounds and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exports", default=",".join(BUILT_IN_EXPORTS))
    arguments = parser.parse_args()
    exports = arguments.exports.split(",")
    rounds: list[Costs] = [in_child(build_samples, exports) for _ in range(arguments.rounds)]
    print(f"{'user CPU s':<28}{'build':>8}{'checks':>8}")
    for stage in rounds[0].builds:
        build = statistics.median(costs.builds[stage] for costs in rounds)
        checks = statistics.median(costs.checks.get(stage, 0.0) for costs in rounds)
        print(f"{stage:<28}{build:>8.2f}{checks:>8.2f}")
    build = statistics.median(sum(costs.builds.values()) for costs in rounds)
    checks = statistics.median(sum(costs.checks.values()) for costs in rounds)
    total = statistics.median(costs.total for costs in rounds)
    print(f"{'all':<28}{build:>8.2f}{checks:>8.2f}")
    share = checks / (total - checks)
    print(f"a round {total:.2f}, of it checks {checks:.2f}: {share:.1%} of the rest")


if __name__ == "__main__":
    main()
