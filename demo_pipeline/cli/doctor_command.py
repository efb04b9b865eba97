"""The command `demo-pipeline doctor`.

Belongs here: its output and exit codes. What is examined is in pipeline/health.py and
defs/instance_health.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_json, print_line
from demo_pipeline.cli.environment import INVALID, OK, set_dagster_home, usable_settings

if TYPE_CHECKING:
    from demo_pipeline.pipeline.health import Finding


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a report as JSON.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 for warnings too.")] = False,
    expect_daemon: Annotated[
        bool, typer.Option("--expect-daemon", help="It is an error when no daemon runs.")
    ] = False,
) -> None:
    """Examine versions, roots, free space, runs, sensors, quarantine and leftovers.

    Exits with 0 if nothing needs anybody, 1 if something is wrong, 2 for unusable settings.
    """
    from demo_pipeline.defs.instance_health import examine_instance
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.health import HealthLevel, examine_workspace

    workspace = Workspace.open(usable_settings())
    set_dagster_home()
    findings = [
        *examine_workspace(workspace),
        *examine_instance(workspace, expect_daemon=expect_daemon),
    ]
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count(HealthLevel.ERROR), levels.count(HealthLevel.WARNING)
    if as_json:
        report = {
            "healthy": not errors,
            "errors": errors,
            "warnings": warnings,
            "findings": [finding.as_dict() for finding in findings],
        }
        print_json(report)
    else:
        _print_findings(findings)
        print_line(f"{errors} errors, {warnings} warnings")
    raise typer.Exit(INVALID if errors or (strict and warnings) else OK)


def _print_findings(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        print_line(f"{finding.level.value:<8}{finding.check}: {finding.message}")
