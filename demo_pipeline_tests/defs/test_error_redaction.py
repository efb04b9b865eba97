"""What the event log keeps of an error."""

import traceback

import pytest
from dagster._utils.error import serializable_error_info_from_exc_info

from demo_pipeline.runs.failures import DefectError, redacted_errors
from demo_pipeline.store.errors import MissingOutput


def test_the_event_log_names_the_command_that_builds_a_missing_output() -> None:
    with pytest.raises(MissingOutput) as caught, redacted_errors("trajectories", "d1"):
        raise MissingOutput("osworld/tasks")
    logged = serializable_error_info_from_exc_info((caught.type, caught.value, caught.tb))
    assert "--select osworld_tasks`" in logged.message


def test_a_defect_is_named_without_its_message() -> None:
    typed = "correct-horse"
    with pytest.raises(DefectError) as caught, redacted_errors("actions", "d1"):
        raise KeyError(typed)
    shown = "".join(traceback.format_exception(caught.value))
    assert "KeyError: a defect of the pipeline stopped actions of d1" in shown
    assert typed not in shown
