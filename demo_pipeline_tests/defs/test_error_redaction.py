"""Tests which parts of an error the event log contains."""

import traceback

import pytest

from demo_pipeline.runs.failures import DefectError, redacted_errors


def test_a_defect_is_named_without_its_message():
    typed = "correct-horse"
    with pytest.raises(DefectError) as caught, redacted_errors("actions", "d1"):
        raise KeyError(typed)
    printed = "".join(traceback.format_exception(caught.value))
    assert "KeyError: a defect of the pipeline stopped actions of d1" in printed
    assert typed not in printed
