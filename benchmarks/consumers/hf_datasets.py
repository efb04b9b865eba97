"""Hugging Face datasets: every configuration of every card, and the JSON Lines where it can."""

from pathlib import Path

import datasets
from pyarrow.parquet import read_metadata
from reported import cudag, lines_of, places, row

HUB = {
    **{name: name for name in ("sft", "messages", "grounding", "transitions", "step_labels")},
    "outcome_labels": "step_labels/outcome",
}


def count(folder: str, config: str) -> int:
    """Samples of a configuration, over its splits."""
    loaded = datasets.load_dataset(folder, config)
    for rows in loaded.values():
        rows[0]
    return sum(len(rows) for rows in loaded.values())


def streamed(folder: str, config: str) -> int:
    """The same, row by row; every picture is decoded."""
    splits = datasets.load_dataset(folder, config, streaming=True)
    return sum(1 for rows in splits.values() for _ in rows)


def streamed_files(folder: str, pattern: str) -> int:
    """Rows of tables that are read as a stream."""
    loaded = datasets.load_dataset(folder, data_files={"all": pattern}, streaming=True)
    return sum(1 for _ in loaded["all"])


def made_case(export: Path) -> None:
    """Every configuration that a card of a made store names, against the lines beside its table."""
    for folder in (export / "sft", export / "messages", cudag(export)):
        for config in datasets.get_dataset_config_names(str(folder)):
            part = "test/test.jsonl" if config == "test" else "*.jsonl"
            lines = {path.stem: len(lines_of(path)) for path in folder.glob(part)}
            lines = {name: n for name, n in lines.items() if name not in {"samples", "data"}}
            row(f"{folder.name} ({config})", sum(lines.values()), count(str(folder), config))


def main() -> None:
    """Load all of them: of the samples with counts from the lines, else what the cards name."""
    export, _ = places()
    if not (export / "hub").exists():
        made_case(export)
        return
    root = cudag(export)
    chats = sum(len(lines_of(path)) for path in (export / "messages").glob("*.jsonl"))
    samples = len(lines_of(export / "sft/samples.jsonl"))
    # A drag is a record of the split and no test.
    records, tests = (len(lines_of(root / name)) for name in ("data.jsonl", "test/test.jsonl"))
    index = len(list((export / "dataset/trajectories").iterdir()))
    row("dataset (trajectories)", index, count(str(export / "dataset"), "trajectories"))
    row("sft", samples, count(str(export / "sft"), "default"))
    row("messages (tables)", chats, count(str(export / "messages"), "default"))
    row("messages/prompt_completion", chats, count(str(export / "messages"), "prompt_completion"))
    hub = str(export / "hub")
    for config, folder in HUB.items():
        before = count(
            str(export / folder.partition("/")[0]), "outcome" if "/" in folder else "default"
        )
        row(f"hub layout ({config}), streamed", before, streamed(hub, config))
    row("cudag", records, count(str(root), "default"))
    row("cudag (test)", tests, count(str(root), "test"))
    rows = sum(read_metadata(path).num_rows for path in (export / "cua_lite").rglob("*.parquet"))
    row("cua_lite, streamed", rows, streamed_files(str(export / "cua_lite"), "**/*.parquet"))


if __name__ == "__main__":
    main()
