"""Reporting defects of the code without their messages, which may quote typed text.

Belongs here: what of an exception may enter logs, records and the event log, which is never purged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

import demo_pipeline
from demo_pipeline.pipeline.rebuild import rebuild_command
from demo_pipeline.pipeline.stage_limits import ExceededLimitError
from demo_pipeline.pipeline.superseded import SupersededError
from demo_pipeline.pipeline.transient import TransientError, transient_reason
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.storage.errors import OutputError

_PACKAGE = Path(demo_pipeline.__file__).parent


class DefectError(Exception):
    """A stage failed for a reason that no input should be able to cause."""


@contextmanager
def redacted_errors(stage: str, demonstration: str = "") -> Iterator[None]:
    """Replace a defect by the name of its type, the stage and the line of our code.

    Errors with messages of our own keep them, and lose only their cause.

    Args:
        stage: that is running.
        demonstration: its id; empty for a dataset.

    Raises:
        DefectError: of a subclass with the name of the exception, since Dagster keeps that name.
        TransientError: something passing stopped the stage, such as a full disk.
    """
    try:
        yield
    except OutputError as error:
        error.add_note(f"build it with `{rebuild_command(error.output)}`")
        raise error from None
    except (DemonstrationError, SupersededError, ExceededLimitError) as error:
        raise error from None
    except Exception as error:  # noqa: BLE001 - it is raised again, without its message
        reason = transient_reason(error)
        if reason is not None:
            raise TransientError(reason) from None
        named = type(type(error).__name__, (DefectError,), {"__module__": __name__})
        subject = f"{stage} of {demonstration}" if demonstration else stage
        message = f"a defect of the pipeline stopped {subject}{_location(error)}; please report it"
        raise named(message) from None


def _location(error: BaseException) -> str:
    """`, at <file>:<line>` of the innermost frame in this package; empty without one."""
    frames = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    ours = [(path, line) for path, line in frames if path.is_relative_to(_PACKAGE)]
    if not ours:
        return ""
    path, line = ours[-1]
    return f", at {path.relative_to(_PACKAGE.parent).as_posix()}:{line}"
