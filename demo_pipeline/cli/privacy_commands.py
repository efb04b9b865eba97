"""The command `demo-pipeline privacy`: what is private in demonstrations, by kind and place.

Belongs here: its arguments and output. What was found is never printed, only where.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from demo_pipeline.cli.console import print_line
from demo_pipeline.cli.environment import open_workspace, refuse

_SHOWN = ("step", "place", "kind", "detector", "confidence", "policy", "secret")


def show_private(
    demonstration: Annotated[str, typer.Argument(help="Its id; none: counts of all.")] = "",
    *,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a JPEG of the redacted pictures of this one.")
    ] = None,
) -> None:
    """List what is private: kinds, places and what was done; never the text."""
    from demo_pipeline.cli.tables import print_records
    from demo_pipeline.privacy.redaction_stage import REDACTIONS, read_findings

    store = open_workspace().store
    ids = [name.partition("/")[2] for name in store.outputs(REDACTIONS)]
    if demonstration and demonstration not in ids:
        refuse(f"{demonstration} has no redactions; `demo-pipeline run` builds them")
    rows: list[dict[str, Any]] = []
    for key in [demonstration] if demonstration else ids:
        folder = store.open(f"{REDACTIONS}/{key}")[0]
        found = read_findings(folder)
        if demonstration:
            rows = [{name: row[name] for name in _SHOWN} for row in found]
        else:
            counts = Counter((row["kind"], row["policy"]) for row in found)
            rows += [
                {"demonstration": key, "kind": kind, "policy": policy, "found": count}
                for (kind, policy), count in sorted(counts.items())
            ]
        if sheet is not None and demonstration:
            print_line(f"{sheet}: {_write_sheet(key, folder, found, sheet)} redacted pictures")
    print_records("private data", rows)
    if not rows:
        print_line("nothing private was found")


def _write_sheet(key: str, folder: Path, found: Sequence[dict[str, Any]], sheet: Path) -> int:
    """Write the redacted pictures of a demonstration as tiles; returns how many there are."""
    from demo_pipeline.trajectories.contact_sheets import contact_sheet, encode_jpeg, step_tiles

    covered = {row["step"] for row in found if row["policy"] == "redact" and row["x"] is not None}
    tiles = step_tiles(key, folder)[0] if (folder / "task.json").is_file() else []
    shown = [tile for number, tile in enumerate(tiles) if number in covered]
    sheet.write_bytes(encode_jpeg(contact_sheet(shown, 3, 640, f"{key}: redacted pictures")))
    return len(shown)
