"""What the result of a run in this process says: why it failed, waits or was interrupted.

Belongs here: reading results. Messages of errors that are not ours are left out, since they may
quote typed text.
"""

from typing import Any

import dagster as dg

from demo_pipeline.defs.waiting_runs import waiting_reason
from demo_pipeline.pipeline import error_redaction

_OURS = ("demo_pipeline.problems.", "demo_pipeline.storage.", f"{error_redaction.__name__}.")
_BY_CTRL_C = {"DagsterExecutionInterruptedError", "KeyboardInterrupt"}


def was_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Whether Ctrl-C ended a run; Dagster turns it into a failure."""
    failures = [event.step_failure_data.error for event in result.get_step_failure_events()]
    ends = [event.job_failure_data.error for event in result.all_events if event.is_run_failure]
    return any(error is not None and error.cls_name in _BY_CTRL_C for error in failures + ends)


def waits_for(result: dg.ExecuteInProcessResult) -> str | None:
    """What a run waits for, in plain words; None when it does not wait."""
    failures = (event.step_failure_data for event in result.get_step_failure_events())
    return next(filter(None, map(waiting_reason, failures)), None)


def only_failed_deliberately(result: dg.ExecuteInProcessResult) -> bool:
    """Whether every step that failed did so with a `Failure`, not with a defect."""
    failed = result.get_step_failure_events()
    return all(event.step_failure_data.user_failure_data is not None for event in failed)


def run_errors(result: dg.ExecuteInProcessResult) -> list[str]:
    """Why a run failed, one line for each failed step."""
    errors = [
        f"{event.step_key}: {_message(event.step_failure_data)}"
        for event in result.get_step_failure_events()
    ]
    return errors or ["the run failed; open it in the UI"]


def _message(data: Any) -> str:
    """Why a step failed: the description of a `Failure`, else the message of the first error.

    Messages of errors that are not ours are left out, since they may quote typed text.
    """
    if data.user_failure_data is not None and data.user_failure_data.description:
        return str(data.user_failure_data.description)
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return "the step failed"
    line = str(error.message).strip().partition("\n")[0]
    if not line.startswith(_OURS):
        return f"{error.cls_name}; open the run in the UI"
    return f"{error.cls_name}: {line.partition(': ')[2]}"
