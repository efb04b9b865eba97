"""Which uploads a command of this machine works on, and has not reported to Dagster yet.

Belongs here: a small file for each such command, beside discovery's ledger. While its process
lives, no run is requested for these uploads; when it was killed, what it built is reported by the
next command or tick.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from demo_pipeline.files.processes import has_ended, this_process

_SUFFIX = ".claims"


def claim(folder: Path, uploads: Mapping[str, str]) -> Path:
    """Claim uploads for this process; returns the file, which is deleted when all is reported.

    Args:
        folder: of the claims.
        uploads: demonstration → fingerprint of the listing of its upload; empty: it has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{this_process().mark}{_SUFFIX}"
    file.write_text(json.dumps(uploads), encoding="utf-8")
    return file


def living_claims(folder: Path) -> dict[str, str]:
    """The uploads that a living command works on."""
    files = [file for file in _files(folder) if not has_ended(file.stem)]
    return {key: listed for file in files for key, listed in _read(file).items()}


def unreported(folder: Path) -> dict[Path, list[str]]:
    """File → the demonstrations that a command that was killed may have built."""
    return {file: list(_read(file)) for file in _files(folder) if has_ended(file.stem)}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"*{_SUFFIX}"))


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # its process ended, or was killed while it wrote
        return {}
    return found if isinstance(found, dict) else {}
