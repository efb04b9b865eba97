"""The commands over the whole store: `demo-pipeline export`, `revalidate` and `prune`.

Belongs here: their arguments, output and exit codes.
"""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import byte_text, print_line
from demo_pipeline.cli.environment import INVALID, OK, usable_settings

if TYPE_CHECKING:
    from demo_pipeline.pipeline.context import Workspace


def export(
    dest: Annotated[Path, typer.Argument(help="A directory that is empty or does not exist.")],
    *,
    hub_layout: Annotated[
        bool,
        typer.Option(
            help="One dataset for the Hugging Face Hub instead: pictures in Parquet shards, a card."
        ),
    ] = False,
) -> None:
    """Copy the datasets to a directory, as plain files, completely or not at all.

    Every picture is stored once, under all its names. Exports that `datasets.exports` does not name
    are not copied.
    """
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.export import export_datasets
    from demo_pipeline.pipeline.stages import training_exports

    settings = usable_settings()
    if hub_layout:
        _export_hub_layout(Workspace.open(settings), dest)
        return
    disabled = [stage.folder for stage in training_exports() if not stage.is_built(settings)]
    copied = export_datasets(Workspace.open(settings).store, dest, disabled)
    written: Counter[str] = Counter()
    for name, size in copied.items():
        print_line(f"{dest}/{name}")
        written[name.partition("/")[0]] += size
    sizes = ", ".join(f"{name} {byte_text(size)}" for name, size in written.items())
    print_line(f"written: {sizes}")


def _export_hub_layout(workspace: "Workspace", dest: Path) -> None:
    from demo_pipeline.pipeline.hub_export import export_hub_layout

    for config in export_hub_layout(workspace, dest):
        rows = ", ".join(f"{split} {count}" for split, count in config.rows.items())
        size = byte_text(sum(config.sizes.values()))
        print_line(f"{config.table.config}: {rows or 'no row, not listed'} ({size})")
    print_line(f"to share it: hf upload NAME {dest} --repo-type dataset")


def revalidate() -> None:
    """Read every committed output and compare each file with its manifest."""
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.rebuild import damage_problem
    from demo_pipeline.pipeline.verification import verify_outputs

    found = verify_outputs(Workspace.open(usable_settings()))
    for damage in found.damages:
        print_line(str(damage_problem(damage)))
    print_line(f"{found.outputs} outputs, {len(found.damages)} problems")
    raise typer.Exit(INVALID if found.damages else OK)


def prune(
    *,
    grace_hours: Annotated[
        float, typer.Option(min=0, help="Keep versions that were in use within this many hours.")
    ] = 24.0,
) -> None:
    """Delete old versions of outputs that nothing refers to any more."""
    from demo_pipeline.pipeline.context import Workspace

    deleted = Workspace.open(usable_settings()).store.collect(grace_hours * 3600, time.time())
    print_line(f"{len(deleted)} old versions removed")
