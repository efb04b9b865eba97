"""What commands of this machine leave beside the table of discovery, for the daemon and each other.

Belongs here: which uploads a command works on and has not reported to Dagster yet, and which ids
are registered. While a command lives, no run is requested for its uploads; when it was killed, what
it built is reported by the next command or tick.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from demo_pipeline.files.atomic_write import atomic_file
from demo_pipeline.files.processes import has_ended, this_process

_SUFFIX = ".claims"
_REGISTERED = "registered.json"


def claim(folder: Path, ids: Iterable[str]) -> Path:
    """Claim demonstrations for this process; returns the file, deleted when all is reported.

    Work on datasets claims none, and is known to be unfinished by the file.
    """
    return _write(folder / f"{this_process().mark}{_SUFFIX}", ids)


def living_claims(folder: Path) -> set[str]:
    """The demonstrations that a living command works on."""
    return {key for file in _files(folder, ended=False) for key in _read(file)}


def unreported(folder: Path) -> dict[Path, list[str]]:
    """File → the demonstrations that a command that was killed may have built."""
    return {file: _read(file) for file in _files(folder, ended=True)}


def note_registered(folder: Path, ids: Iterable[str]) -> None:
    """Note that Dagster knows these demonstrations."""
    _write(folder / _REGISTERED, ids)


def are_registered(folder: Path, ids: Collection[str]) -> bool:
    """Whether Dagster knows all of these, as far as a command has told it."""
    return (folder / _REGISTERED).is_file() and set(ids) <= set(_read(folder / _REGISTERED))


def _files(folder: Path, *, ended: bool) -> list[Path]:
    """Of commands that have ended, or have not."""
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    return [file for file in files if has_ended(file.name.partition(".")[0]) is ended]


def _write(file: Path, ids: Iterable[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as stream:
        stream.write(json.dumps(sorted(ids)).encode())
    return file


def _read(file: Path) -> list[str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # its process ended
        return []
    return found if isinstance(found, list) else []
