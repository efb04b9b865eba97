"""What the event log keeps of an error."""

import pytest
from dagster._utils.error import serializable_error_info_from_exc_info

from demo_pipeline.pipeline.error_redaction import redacted_errors
from demo_pipeline.storage.errors import MissingOutput


def test_the_event_log_names_the_command_that_builds_a_missing_output() -> None:
    with pytest.raises(MissingOutput) as caught, redacted_errors("trajectories", "d1"):
        raise MissingOutput("osworld/tasks")
    logged = serializable_error_info_from_exc_info((caught.type, caught.value, caught.tb))
    assert "--select osworld_tasks`" in logged.message
