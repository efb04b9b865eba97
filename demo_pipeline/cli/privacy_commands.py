"""The command `demo-pipeline privacy`: lists private data in demonstrations by kind and place.

The private text itself is never printed.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from demo_pipeline.cli.console import print_line
from demo_pipeline.cli.environment import open_workspace, refuse

_COLUMNS = ("step", "place", "kind", "detector", "confidence", "policy", "secret")


def show_private(
    demonstration: Annotated[
        str, typer.Argument(help="Id of a demonstration. [default: counts for all]")
    ] = "",
    *,
    sheet: Annotated[
        Path | None,
        typer.Option(help="With an id: JPEG file to write, with the redacted screenshots."),
    ] = None,
) -> None:
    """List the private data that was found: kind, place and policy, but never the private text."""
    from demo_pipeline.cli.tables import print_records
    from demo_pipeline.privacy.redaction_stage import REDACTIONS, read_findings

    store = open_workspace().store
    ids = [name.partition("/")[2] for name in store.outputs(REDACTIONS)]
    if demonstration and demonstration not in ids:
        refuse(f"{demonstration} has no redactions; `demo-pipeline run` builds them")
    rows: list[dict[str, Any]] = []
    if demonstration:
        folder = store.open(f"{REDACTIONS}/{demonstration}")[0]
        findings = read_findings(folder)
        rows = [{name: row[name] for name in _COLUMNS} for row in findings]
        if sheet is not None:
            count = _write_sheet(demonstration, folder, findings, sheet)
            print_line(f"{sheet}: {count} redacted screenshots")
    else:
        for key in ids:
            findings = read_findings(store.open(f"{REDACTIONS}/{key}")[0])
            counts = Counter((row["kind"], row["policy"]) for row in findings)
            for (kind, policy), count in sorted(counts.items()):
                rows.append({"demonstration": key, "kind": kind, "policy": policy, "found": count})
    if rows:
        print_records("private data", rows)
    else:
        print_line("nothing private was found")


def _write_sheet(key: str, folder: Path, findings: Sequence[dict[str, Any]], sheet: Path) -> int:
    """Writes the redacted screenshots of a demonstration to one image, and returns their number.

    `sheet` is the JPEG file to write.
    """
    from demo_pipeline.trajectories.contact_sheets import contact_sheet, encode_jpeg, step_tiles

    covered_steps = {
        row["step"] for row in findings if row["policy"] == "redact" and row["x"] is not None
    }
    tiles = step_tiles(key, folder)[0] if (folder / "task.json").is_file() else []
    redacted = [tile for number, tile in enumerate(tiles) if number in covered_steps]
    title = f"{key}: redacted screenshots"
    sheet.write_bytes(encode_jpeg(contact_sheet(redacted, 3, 640, title)))
    return len(redacted)
