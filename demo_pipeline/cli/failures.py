"""What a person reads when a command cannot go on: a sentence, never a traceback.

Belongs here: turning errors into that sentence. Messages of errors that are not ours are left out,
since they may quote typed text.
"""

import os
from pathlib import Path
from traceback import extract_tb

import demo_pipeline

_PACKAGE = Path(demo_pipeline.__file__).parent


def failure_sentence(error: Exception) -> str:
    """Why a command cannot go on, and what to do."""
    from demo_pipeline.cli.environment import dagster_home
    from demo_pipeline.defs.home_files import damaged_database, is_damage
    from demo_pipeline.pipeline.rebuild import storage_message
    from demo_pipeline.pipeline.transient import transient_reason
    from demo_pipeline.storage.errors import StorageError

    if isinstance(error, StorageError):
        return storage_message(error)
    if is_damage(error) and (damage := damaged_database(dagster_home())):
        return damage
    reason = transient_reason(error)
    if reason is None:
        name = type(error).__name__
        return f"a defect of the pipeline: {name}{_location(error)}; please report it"
    file = getattr(error, "filename", None)
    place = f"{ascii(os.fsdecode(file))[1:-1]}: " if isinstance(file, str | bytes) else ""
    return f"{place}{reason}; what is done is kept, and the next run goes on when that is over"


def _location(error: Exception) -> str:
    """`, at <file>:<line>` of the innermost frame in this package; empty without one."""
    frames = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    ours = [(path, line) for path, line in frames if path.is_relative_to(_PACKAGE)]
    if not ours:
        return ""
    path, line = ours[-1]
    return f", at {path.relative_to(_PACKAGE.parent).as_posix()}:{line}"
