"""A defect of the code, told without its words: these may quote what a person typed.

Belongs here: what of an exception may enter the event log, which nobody purges.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

import demo_pipeline
from demo_pipeline.pipeline.rebuild import rebuild_command
from demo_pipeline.pipeline.superseded import SupersededError
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.storage.errors import OutputError, StorageError

_PACKAGE = Path(demo_pipeline.__file__).parent


class DefectError(Exception):
    """A stage died of something that no input should have been able to cause."""


@contextmanager
def redacted_errors(stage: str, demonstration: str) -> Iterator[None]:
    """Let a defect out as its type's name, the demonstration, and where our code met it.

    Errors whose words are our own keep them, and lose only what they were raised from.

    Args:
        stage: which stage is at work.
        demonstration: its id.

    Raises:
        DefectError: of a subclass that bears the name of what was raised, since that is the name
            that Dagster keeps of an error.
    """
    try:
        yield
    except OutputError as error:
        error.add_note(f"build it with `{rebuild_command(error.output)}`")
        raise error from None
    except (DemonstrationError, StorageError, SupersededError) as error:
        raise error from None
    except Exception as error:  # noqa: BLE001 - nothing is swallowed: only its words are held back
        named = type(type(error).__name__, (DefectError,), {"__module__": __name__})
        where = _place(error)
        raise named(f"a defect met {stage} of {demonstration}{where}; please report it") from None


def _place(error: BaseException) -> str:
    """`, at <file>:<line>` of the innermost of our own frames; empty when there is none."""
    frames = [(Path(one.filename), one.lineno) for one in extract_tb(error.__traceback__)]
    ours = [(path, line) for path, line in frames if path.is_relative_to(_PACKAGE)]
    if not ours:
        return ""
    path, line = ours[-1]
    return f", at {path.relative_to(_PACKAGE.parent).as_posix()}:{line}"
