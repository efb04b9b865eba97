"""The texts of each dataset's card, and the writer of a dataset's card and charts.

Belongs here: what differs between the datasets. The parts that all cards share are in `cards`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.cards import CARD, CardConfig, CardKind, card_text
from demo_pipeline.datasets.charts import write_charts
from demo_pipeline.datasets.dataset_stats import (
    DatasetStats,
    Provenance,
    cudag_stats,
    hidden_action_counts,
    index_stats,
    messages_stats,
    sft_stats,
)
from demo_pipeline.datasets.hidden_actions import HIDDEN_ACTIONS_FILE
from demo_pipeline.datasets.prompts import scroll_rule

Counts = Mapping[str, Mapping[str, int]]
_ROOT = 'root = "the path of this folder"'

INDEX = CardKind(
    title="trajectories",
    about=(
        "Demonstrations of people using computers, as OSWorld-Desktopd trajectories: a task, and "
        "for each step a 1920x1080 screenshot, an accessibility tree and the action taken. Failed "
        "and aborted demonstrations are included; the training exports leave them out by default."
    ),
    unit="steps",
    files=(
        ("index.json", "id, task, success, number of steps and application of every trajectory"),
        ("metadata.json", "the program that made the dataset, its settings and counts"),
        ("exports.json", "the split of every trajectory, and what each training export has of it"),
        ("trajectories/<id>/", "task.json, result.json, steps/NNN/, final_screenshot.png"),
        ("trajectories.parquet", "one row per trajectory"),
        ("steps.parquet", "one row per step: where its screenshot, tree and target came from"),
        ("hidden_actions.parquet", "one row per action that no screenshot shows, with the reason"),
        ("exports.parquet", "one row per trajectory and training export: split, version, records"),
    ),
    loading=(
        "```python\n"
        "import duckdb\n\n"
        "duckdb.sql(\"SELECT action_type, count(*) FROM 'steps.parquet' GROUP BY 1\")\n"
        "```\n\n"
        "The same tables with `datasets`:\n\n"
        "```python\n"
        "from datasets import load_dataset\n\n"
        'root = "the path of this folder"\n'
        'trajectories = load_dataset(root, "trajectories")["train"]\n'
        'steps = load_dataset(root, "steps")["train"]\n'
        "```\n\n"
        "`demo-pipeline validate .` checks the dataset; `demo-pipeline stats` shows its statistics."
    ),
    configs=tuple(
        CardConfig(name, f"{name}.parquet", splits=())
        for name in ("trajectories", "steps", "hidden_actions")
    ),
)
SFT = CardKind(
    title="SFT samples",
    about=(
        "One sample per step for supervised fine-tuning: the instruction, the screenshot, the "
        "accessibility tree and the previous actions, with the action that the person took next "
        "(the SFT format of OSWorld-Desktopd). Where the tree was found to differ from the "
        "screenshot (`tree_agreement` is `differs`), `ui_tree` is null."
    ),
    unit="samples",
    files=(
        ("samples.jsonl", "all samples; `input` and `output` are nested objects"),
        ("train.jsonl, val.jsonl, test.jsonl", "the same by split (held_out.jsonl if any)"),
        ("samples.parquet", "all samples as flat columns; nested ones are JSON text"),
        ("train.parquet, val.parquet, test.parquet", "the same by split"),
        ("trajectories/<id>/", "the screenshots and trees whose paths the samples hold"),
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
    configs=(CardConfig("default", "{split}.parquet"),),
)
MESSAGES = CardKind(
    title="messages",
    about=(
        "The steps as chats of a vision model. The answer consists of calls of the `computer_use` "
        "tool as text; coordinates run from 0 to 1000. In the JSON Lines the user's content is a "
        "list of parts and the image part names its file, as qwen-vl-utils and ms-swift read it. "
        "In the tables every content is text and `images` is a list: `messages` for Axolotl, "
        "ms-swift and TRL, `prompt` and `completion` for TRL."
    ),
    unit="records",
    files=(
        ("train.jsonl, val.jsonl, test.jsonl", "one record per line (held_out.jsonl if any)"),
        ("train.parquet, val.parquet, test.parquet", "the same as `messages` and `images`"),
        ("prompt_completion/", "the same as `prompt`, `completion` and `images`, by split"),
        ("messages.schema.json", "the JSON Schema of a line"),
        ("trajectories/<id>/", "the screenshots whose paths the records hold"),
    ),
    loading=(
        "`images` holds paths below this folder, or the pictures themselves "
        "(`datasets.embed_images`). These lines load both, from any working directory (they need "
        "Pillow); with the default loss of TRL only the answer is learnt:\n\n"
        "```python\n"
        "from pathlib import Path\n"
        "from datasets import Image, List, Value, load_dataset\n\n"
        f"{_ROOT}\n"
        'data = load_dataset(root, "prompt_completion")\n'
        'if data["train"].features["images"].feature == Value("string"):\n'
        "    root = Path(root).resolve()\n"
        '    data = data.map(lambda row: {"images": [f"{root}/{one}" for one in row["images"]]})\n'
        '    data = data.cast_column("images", List(Image()))\n'
        "```\n\n"
        "What trainers have to be told:\n\n"
        "- **TRL**: `SFTConfig(max_length=None)`; the default of 1024 tokens cuts the screenshot's "
        "tokens. With the configuration `default` (`messages`) all tokens become labels unless "
        "`assistant_only_loss=True`.\n"
        "- **Axolotl**: `train.jsonl` with `ds_type: json` and `type: chat_template`, started in "
        "this folder; `sequence_len: 8192`, `skip_prepare_dataset: true`, "
        "`remove_unused_columns: false`, `sample_packing: false`.\n"
        "- **ms-swift**: `--dataset train.jsonl` with `ROOT_IMAGE_DIR` set to this folder, and "
        "`--max_length 8192`.\n"
        "- **LLaMA-Factory** reads the CUDAG dataset, with `cutoff_len: 8192`."
    ),
    configs=(
        CardConfig("default", "{split}.parquet"),
        CardConfig("prompt_completion", "prompt_completion/{split}.parquet"),
    ),
)
CUDAG = CardKind(
    title="CUDAG",
    about=(
        "Computer-use records in the CUDAG layout: a screenshot, the task with the previous "
        "actions, and the next action as calls of the `computer_use` tool; coordinates run from 0 "
        "to 1000."
    ),
    unit="records",
    files=(
        ("data.jsonl", "train, val and held_out together"),
        (
            "train.jsonl, val.jsonl",
            "the splits (held_out.jsonl if any); images in `images/`",
        ),
        (
            "test/test.json",
            "the test split; images in `test/images/`, annotated ones in `annotated/`",
        ),
        ("config.json", "the settings that the dataset was made with, and the system prompt"),
        ("splits.json", "the split of every trajectory, and what was left out"),
    ),
    loading=(
        "```python\n"
        "from datasets import load_dataset\n\n"
        f"{_ROOT}\n"
        "data = load_dataset(root)  # train and val\n"
        'tests = load_dataset(root, "test")\n'
        "```\n\n"
        "**LLaMA-Factory**: `dataset_dir` and `media_dir` are this folder, the datasets are those "
        "of `dataset_info.json`, `default_system` is the text of `system_prompt.txt`, and "
        "`cutoff_len: 8192`; a screenshot alone is about 2,700 tokens."
    ),
    configs=(
        CardConfig("default", "{split}.jsonl", ("train", "val", "held_out")),
        CardConfig("test", "test/test.json", ("test",)),
    ),
)


def describe_index(out: Path, settings: DatasetSettings) -> DatasetStats:
    """Write the card and the charts of a trajectory dataset; returns what is in it."""
    left_out = {"actions": hidden_action_counts(out / HIDDEN_ACTIONS_FILE)}
    return write_card(out, INDEX, index_stats(out), settings, left_out)


def describe_sft(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for SFT samples.

    Args:
        out: the dataset's folder.
        settings: the settings that it was made with.
        provenance: provenance.parquet of the trajectories that it was made from.
        left_out: see `ExportSummary.left_out`.
    """
    return write_card(out, SFT, sft_stats(out, provenance)[0], settings, left_out)


def describe_messages(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for messages; arguments as for `describe_sft`."""
    return write_card(out, MESSAGES, messages_stats(out, provenance)[0], settings, left_out)


def describe_cudag(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for a CUDAG dataset; arguments as for `describe_sft`."""
    return write_card(
        out, cudag_card(settings), cudag_stats(out, provenance)[0], settings, left_out
    )


def cudag_card(settings: DatasetSettings) -> CardKind:
    """The texts of a CUDAG dataset's card, which say what the numbers of a scroll mean."""
    return replace(CUDAG, about=f"{CUDAG.about} In scroll actions {scroll_rule(settings)}.")


def write_card(
    out: Path, kind: CardKind, stats: DatasetStats, settings: DatasetSettings, left_out: Counts
) -> DatasetStats:
    """Write a card and its charts; returns what is in the dataset."""
    write_charts(out, stats)
    (out / CARD).write_text(card_text(kind, stats, settings, left_out, out), encoding="utf-8")
    return stats
