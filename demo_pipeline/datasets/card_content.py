"""What each dataset's card says, and writing a dataset's card and charts.

Belongs here: the words that differ between the datasets. The form of a card is in `cards`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from demo_pipeline.datasets.cards import CARD, CardKind, card_text
from demo_pipeline.datasets.charts import write_charts
from demo_pipeline.datasets.dataset_stats import (
    DatasetStats,
    cudag_stats,
    index_stats,
    messages_stats,
    sft_stats,
)
from demo_pipeline.settings import DatasetSettings

Counts = Mapping[str, Mapping[str, int]]
_PICTURES = (
    "Pictures are paths below this folder. To let `datasets` decode them (with Pillow installed):"
)
_ROOT = 'root = "the path of this folder"'

INDEX = CardKind(
    title="trajectories",
    about=(
        "Demonstrations of people using computers as OSWorld-Desktopd trajectories: a task, and "
        "for each step a 1920x1080 screenshot, an accessibility tree and the action taken. Failed "
        "and aborted demonstrations are in; the training exports leave them out."
    ),
    unit="steps",
    files=(
        ("index.json", "every trajectory: id, task, success, steps, application"),
        ("metadata.json", "what made the dataset, its configuration and counts"),
        ("trajectories/<id>/", "task.json, result.json, steps/NNN/, final_screenshot.png"),
        ("trajectories.parquet", "a row a trajectory"),
        ("steps.parquet", "a row a step: where picture, tree and target came from"),
    ),
    loading=(
        "```python\n"
        "import duckdb\n\n"
        "duckdb.sql(\"SELECT action_type, count(*) FROM 'steps.parquet' GROUP BY 1\")\n"
        "```\n\n"
        "`demo-pipeline validate .` checks it; `demo-pipeline stats` counts it."
    ),
)
SFT = CardKind(
    title="SFT samples",
    about=(
        "One sample a step for supervised fine-tuning: instruction, screenshot, accessibility tree "
        "and the actions before, with the action that the person took next (OSWorld-Desktopd, "
        "section 6)."
    ),
    unit="samples",
    files=(
        ("samples.jsonl", "all samples, `input` and `output` as nested objects"),
        ("train.jsonl, val.jsonl, test.jsonl", "the same by split (held_out.jsonl if any)"),
        ("samples.parquet", "all samples as flat columns; history and action are JSON text"),
        ("train.parquet, val.parquet, test.parquet", "the same by split"),
        ("trajectories/<id>/", "the pictures and trees that samples name"),
    ),
    loading=(
        "```python\n"
        "import json\n"
        "from datasets import load_dataset\n\n"
        f"{_ROOT}\n"
        "data = load_dataset(root)\n"
        'action = json.loads(data["train"][0]["action"])\n'
        "```"
    ),
    data="{split}.parquet",
)
MESSAGES = CardKind(
    title="messages",
    about=(
        "The same steps as chats, in the form that TRL and Axolotl document for vision models: "
        "`messages` of role and content, where content is a list of image and text parts, and "
        "`images`. The answer is calls of the `computer_use` tool; coordinates run from 0 to 1000. "
        "`messages.schema.json` is the JSON Schema of a line."
    ),
    unit="records",
    files=(
        ("train.jsonl, val.jsonl, test.jsonl", "a record a line (held_out.jsonl if any)"),
        ("train.parquet, val.parquet, test.parquet", "the same as typed columns"),
        ("messages.schema.json", "the JSON Schema of a line"),
        ("trajectories/<id>/", "the pictures that records name"),
    ),
    loading=(
        f"{_PICTURES}\n\n"
        "```python\n"
        "from datasets import Image, List, load_dataset\n\n"
        f"{_ROOT}\n"
        "data = load_dataset(root)\n"
        'data = data.map(lambda row: {"images": [f"{root}/{path}" for path in row["images"]]})\n'
        'data = data.cast_column("images", List(Image()))\n'
        "```"
    ),
    data="{split}.parquet",
)
CUDAG = CardKind(
    title="CUDAG",
    about=(
        "Computer-use records in the CUDAG layout: a screenshot, the task with the actions before, "
        "and the next action as calls of the `computer_use` tool, coordinates from 0 to 1000."
    ),
    unit="records",
    files=(
        ("data.jsonl", "train, val and held_out together"),
        ("train.jsonl, val.jsonl", "the splits (held_out.jsonl if any); pictures in `images/`"),
        ("test/test.json", "the test split; pictures in `test/images/`, drawn on in `annotated/`"),
        ("config.json", "what it was made with, and the system prompt"),
        ("splits.json", "where what went, and what was left out"),
    ),
    loading=(
        "```python\n"
        "from datasets import load_dataset\n\n"
        f"{_ROOT}\n"
        "data = load_dataset(root)  # train and val\n"
        'tests = load_dataset(root, "test")\n'
        "```"
    ),
    data="{split}.jsonl",
    test="test/test.json",
)


def describe_index(out: Path, settings: DatasetSettings) -> DatasetStats:
    """Write card and charts of a trajectory dataset; what is in it."""
    return _describe(out, INDEX, index_stats(out), settings, {})


def describe_sft(
    out: Path, settings: DatasetSettings, provenance: Sequence[Path], left_out: Counts
) -> DatasetStats:
    """The same for SFT samples; `provenance` of the trajectories they were made from."""
    return _describe(out, SFT, sft_stats(out, provenance)[0], settings, left_out)


def describe_messages(
    out: Path, settings: DatasetSettings, provenance: Sequence[Path], left_out: Counts
) -> DatasetStats:
    """The same for messages."""
    return _describe(out, MESSAGES, messages_stats(out, provenance)[0], settings, left_out)


def describe_cudag(
    out: Path, settings: DatasetSettings, provenance: Sequence[Path], left_out: Counts
) -> DatasetStats:
    """The same for a CUDAG dataset."""
    return _describe(out, CUDAG, cudag_stats(out, provenance)[0], settings, left_out)


def cudag_card(facts: DatasetStats, settings: DatasetSettings, left_out: Counts) -> str:
    """The text of a CUDAG dataset's card; see `cards.card`."""
    return card_text(CUDAG, facts, settings, left_out)


def _describe(
    out: Path, kind: CardKind, facts: DatasetStats, settings: DatasetSettings, left_out: Counts
) -> DatasetStats:
    write_charts(out, facts)
    (out / CARD).write_text(card_text(kind, facts, settings, left_out), encoding="utf-8")
    return facts
