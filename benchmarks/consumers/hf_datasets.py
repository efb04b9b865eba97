"""Hugging Face datasets: every configuration of every card, and the JSON Lines where it can."""

import datasets
from pyarrow.parquet import read_metadata
from reported import cudag, lines_of, places, row


def count(folder: str, config: str) -> int:
    """Samples of a configuration, over its splits."""
    loaded = datasets.load_dataset(folder, config)
    for rows in loaded.values():
        rows[0]
    return sum(len(rows) for rows in loaded.values())


def streamed(folder: str, pattern: str) -> int:
    """Rows of tables that are read as a stream."""
    loaded = datasets.load_dataset(folder, data_files={"all": pattern}, streaming=True)
    return sum(1 for _ in loaded["all"])


def main() -> None:
    """Load all of them."""
    export, _ = places()
    root = cudag(export)
    chats = sum(len(lines_of(path)) for path in (export / "messages").glob("*.jsonl"))
    samples = len(lines_of(export / "sft/samples.jsonl"))
    records, tests = len(lines_of(root / "data.jsonl")), chats - len(lines_of(root / "data.jsonl"))
    index = len(list((export / "dataset/trajectories").iterdir()))
    row("dataset (trajectories)", index, count(str(export / "dataset"), "trajectories"))
    row("sft", samples, count(str(export / "sft"), "default"))
    row("messages (tables)", chats, count(str(export / "messages"), "default"))
    row("messages/prompt_completion", chats, count(str(export / "messages"), "prompt_completion"))
    row("cudag", records, count(str(root), "default"))
    row("cudag (test)", tests, count(str(root), "test"))
    rows = sum(read_metadata(path).num_rows for path in (export / "cua_lite").rglob("*.parquet"))
    row("cua_lite, streamed", rows, streamed(str(export / "cua_lite"), "**/*.parquet"))


if __name__ == "__main__":
    main()
