"""Dataset cards: the README.md of a dataset, its texts, and its front matter for the Hub.

Belongs here: the parts that every card has, and what differs between the datasets. The numbers come
from dataset_stats.py; a card never shows text that a person typed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.exports.charts import CHARTS_FOLDER, write_charts
from demo_pipeline.exports.dataset_counts import (
    DatasetStats,
    cudag_stats,
    hidden_action_counts,
    index_stats,
    messages_stats,
    sft_stats,
    table_stats,
)
from demo_pipeline.exports.prompts import scroll_rule
from demo_pipeline.exports.step_labels import OUTCOME_FOLDER
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.parquet import row_count
from demo_pipeline.files.shown_text import markdown_table, markdown_text
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_FILE, Provenance

CARD = "README.md"
_MOST_ROWS = 20
_CHARTS = ("actions", "lengths", "applications", "resolutions", "splits")


@dataclass(frozen=True, slots=True)
class CardConfig:
    """A configuration that `load_dataset` finds in the card; the first of a card is its default.

    Attributes:
        name: of the configuration.
        path: of its file; with `{split}` for the name of a split when it has a file per split.
        splits: the splits that it may have; none: a table without splits, which loads as `train`.
    """

    name: str
    path: str
    splits: tuple[str, ...] = ("train", "val", "test", "held_out")


@dataclass(frozen=True, slots=True)
class CardKind:
    """What differs between the cards.

    Attributes:
        title: follows the name prefix.
        about: one paragraph that describes the dataset.
        unit: what is counted: steps, samples or records.
        files: (name, content) of the files.
        loading: how to load the dataset, as Markdown.
        configs: what `load_dataset` can load.
        shows_leaks: whether the card has the leak rate.
    """

    title: str
    about: str
    unit: str
    files: Sequence[tuple[str, str]]
    loading: str
    configs: Sequence[CardConfig]
    shows_leaks: bool = True


def card_text(
    kind: CardKind,
    stats: DatasetStats,
    settings: DatasetSettings,
    left_out: Mapping[str, Mapping[str, int]],
    root: Path,
) -> str:
    """The text of a card.

    Args:
        kind: which dataset.
        stats: what is in it.
        settings: the settings that it was made with; they name the license.
        left_out: how many were left out, by unit (trajectories, samples …) and reason.
        root: the dataset's folder, with the files that the configurations name.
    """
    name = settings.name_prefix
    parts = [
        _front_matter(kind, stats, settings, root),
        f"# {name}: {kind.title}",
        kind.about,
        "## How it was made",
        origin_text(settings),
        "## What is in it",
        _counts(kind, stats, left_out),
        *_hidden(left_out),
        *_tables(kind, stats),
        *_leaks(kind, stats, settings),
        "## Files",
        markdown_table(
            ("file", "content"), [(f"`{file}`", content) for file, content in kind.files]
        ),
        "## Loading",
        kind.loading,
        "## License",
        _license(settings),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(
    kind: CardKind, stats: DatasetStats, settings: DatasetSettings, root: Path
) -> str:
    lines = [
        f"license: {_yaml(settings.license)}",
        f"pretty_name: {_yaml(f'{settings.name_prefix}: {kind.title}')}",
        "tags:",
        "- computer-use",
        "- gui-agents",
    ]
    configs = [line for config in kind.configs for line in _config(config, stats, root)]
    if configs and configs[0] != "- config_name: default":
        configs.insert(1, "  default: true")
    return "\n".join(["---", *lines, *(["configs:"] if configs else []), *configs, "---"])


def _config(config: CardConfig, stats: DatasetStats, root: Path) -> list[str]:
    """The lines of a configuration; none when it has no row, which `datasets` cannot load.

    `datasets` keys its cache by the folder's name and these lines, not by the data. The hash makes
    it read the files again when they have changed.
    """
    names = [name for name in stats.splits if name in config.splits]
    names = names if config.splits else ["train"]
    paths = {name: config.path.format(split=name) for name in names}
    paths = {name: path for name, path in paths.items() if _has_rows(root / path)}
    if not paths:
        return []
    digest = hashlib.sha256()
    for path in paths.values():
        digest.update(read_digest(root / path).sha256.encode())
    files = [
        line for name, path in paths.items() for line in (f"  - split: {name}", f"    path: {path}")
    ]
    described = f'  description: "sha256:{digest.hexdigest()}"'
    return [f"- config_name: {config.name}", described, "  data_files:", *files]


def _has_rows(path: Path) -> bool:
    return path.suffix != ".parquet" or row_count(path) > 0


def _yaml(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)


def origin_text(settings: DatasetSettings) -> str:
    """How a dataset was made, as Markdown."""
    return (
        f"demo_pipeline {__version__} made this dataset from recordings of people at work: a log "
        "of their input, a video of the screen and scans of the accessibility tree. Input events "
        "are grouped into actions; every action has the frame and the accessibility tree from "
        "before it. No model took part. `reasoning` is written by a template, not by a person. The "
        "text that people typed is in the data, in their `type` actions.\n\n"
        f"Settings (SHA-256): `{settings.fingerprint()[:16]}`, split seed {settings.seed}, ratios "
        f"{settings.train_ratio:g} / {settings.val_ratio:g} / {settings.test_ratio:g}."
    )


def _counts(kind: CardKind, stats: DatasetStats, left_out: Mapping[str, Mapping[str, int]]) -> str:
    rows = [
        (kind.unit, stats.samples),
        ("trajectories", stats.trajectories),
        ("tasks", stats.tasks),
        *(
            (f"{unit} left out: {reason.replace('_', ' ')}", count)
            for unit, reasons in left_out.items()
            for reason, count in sorted(reasons.items())
        ),
    ]
    return markdown_table(("item", "count"), rows)


def _hidden(left_out: Mapping[str, Mapping[str, int]]) -> Iterable[str]:
    if left_out.get("actions"):
        yield (
            "Actions left out are those of a person that no screenshot shows: on another display, "
            "before or after the video, or in a part of it that cannot be read. The steps around "
            "them are kept. Prompts name such an action in words, without its place and its text; "
            "in a `history` of actions it is an entry of the type `gap`."
        )


def _tables(kind: CardKind, stats: DatasetStats) -> Iterable[str]:
    if stats.splits:
        rows = [
            (name, split.samples, split.trajectories, split.tasks)
            for name, split in stats.splits.items()
        ]
        yield "### Splits"
        yield markdown_table(("split", kind.unit, "trajectories", "tasks"), rows)
        yield "No task and no trajectory is in two splits; all exports use the same split plan."
    yield "### Actions"
    yield markdown_table(("action", kind.unit), _most_frequent(stats.actions))
    yield "### Applications"
    yield markdown_table(("application", "trajectories"), _most_frequent(stats.applications))
    shown = [name for name in _CHARTS if name != "splits" or stats.splits]
    yield "\n".join(f"![{name}]({CHARTS_FOLDER}/{name}.png)" for name in shown)


def _most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    rows = [(markdown_text(name), count) for name, count in counts.items()]
    rest = rows[_MOST_ROWS:]
    more = [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else []
    return [*rows[:_MOST_ROWS], *more]


def _leaks(kind: CardKind, stats: DatasetStats, settings: DatasetSettings) -> Iterable[str]:
    if not kind.shows_leaks:
        return
    avoidable = _leak_use("include_avoidable_leaks", included=settings.include_avoidable_leaks)
    others = _leak_use("include_unavoidable_leaks", included=settings.include_unavoidable_leaks)
    leaks = stats.leaks
    unavoidable = leaks.share(leaks.unavoidable_leaks)
    yield "## Screenshots that may show the answer"
    yield (
        f"Leak rate: {leaks.share(leaks.leaks):.2%} (in {leaks.leaks} of {leaks.pointer_actions} "
        f"{kind.unit} of pointing actions the screenshot already shows the pointer at its "
        f"target). Unavoidable leak rate: {unavoidable:.2%} (in {leaks.unavoidable_leaks} the "
        "pointer was already at the target when the previous action ended, as it is for an agent "
        f"that acts there again). Steps that leak avoidably are {avoidable}, the others {others}; "
        "`leak` and `unavoidable` in `provenance.parquet` of every trajectory mark them."
    )


def _leak_use(setting: str, *, included: bool) -> str:
    return f"{'included in' if included else 'left out of'} training exports (`{setting}`)"


def _license(settings: DatasetSettings) -> str:
    if settings.license == "unknown":
        return (
            "`unknown`: no license is stated. Set `datasets.license` "
            "(`DEMO_PIPELINE_DATASETS__LICENSE`) before you share the dataset."
        )
    return f"`{settings.license}`"


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


_PICTURES = (
    "The columns of pictures hold paths below this folder; `demo-pipeline export --hub-layout` "
    "writes the same rows with the pictures in them."
)


def _loading(config: str = "") -> str:
    names = f', "{config}"' if config else ""
    return (
        "```python\n"
        "from datasets import load_dataset\n\n"
        'root = "the path of this folder"\n'
        f"data = load_dataset(root{names})\n"
        f"```\n\n{_PICTURES}"
    )


GROUNDING = CardKind(
    title="grounding",
    about=(
        "A screenshot, words that name one of its elements (`text`), the element's box "
        "(`[x1, y1, x2, y2]` in pixels with both ends inside, as ScreenSpot-Pro has it) and its "
        "centre (`point`). Only screenshots whose accessibility tree was compared with them and "
        "agrees, and only elements without others inside that are visible as a whole, have a "
        "name a person can read and are the only ones of their name and role on the screen. Text "
        "fields are not asked for, nor names that are, have or are part of what the person typed. "
        "The names come from the accessibility tree; that an element shows its name is not known."
    ),
    unit="samples",
    files=(
        ("train.parquet, val.parquet, test.parquet", "the rows (held_out.parquet if any)"),
        ("screenspot/", "the same as task files in ScreenSpot-Pro's form, by split"),
        ("cua_lite/", "the same in CUA-Lite's form, as points and as boxes from 0 to 1000"),
        ("grounding.schema.json", "the JSON Schema of a row"),
        ("trajectories/<id>/", "the screenshots whose paths the rows hold"),
    ),
    loading=_loading(),
    configs=(CardConfig("default", "{split}.parquet"),),
    shows_leaks=False,
)
TRANSITIONS = CardKind(
    title="transitions",
    about=(
        "What actions did to the screen: the screenshot before a step (`before`), its action as "
        "JSON (`action`; points are pixels), and the screenshot before the next input or at the "
        "end (`after`). Steps of waiting are no transitions; `waited_seconds` has their time. Left "
        "out are steps that an action follows which no screenshot shows (`hidden_after`), and "
        "those whose next picture is from before the end of the action (`early_after`)."
    ),
    unit="samples",
    files=(
        ("train.parquet, val.parquet, test.parquet", "the rows (held_out.parquet if any)"),
        ("transitions.schema.json", "the JSON Schema of a row"),
        ("trajectories/<id>/", "the screenshots whose paths the rows hold"),
    ),
    loading=_loading(),
    configs=(CardConfig("default", "{split}.parquet"),),
)
STEP_LABELS = CardKind(
    title="step labels",
    about=(
        "Demonstrations for reward models, as TRL's stepwise supervision: `prompt` is the task, "
        "`completions` are actions as JSON, `labels` are booleans. A recording says whether its "
        "task was done, and nothing about single steps. So:\n\n"
        "- `outcome`: every demonstration, also those that did not do their task, as one "
        "completion; its label is whether the task was done.\n"
        "- `default`: the demonstrations that did their task, with a label per step, **all true**: "
        "the task could still be done after the step, because the person went on to do it. That a "
        "step was needed, or not a detour, is not said. There are no false labels of steps, "
        "because nothing shows which step of a failed demonstration was wrong.\n\n"
        "An action that no screenshot shows is a line of words before the JSON of the next step. "
        "`images` are the screenshots before the steps, and in `outcome` also the last one. TRL's "
        "trainer reads the text only. Aborted demonstrations, whose task may have been done, take "
        "part only with `datasets.include_aborted`, and then count as not done. Screenshots that "
        "show the pointer at its target are included: the action is given here, not asked."
    ),
    unit="samples",
    files=(
        ("train.parquet, val.parquet, test.parquet", "labels of steps (held_out.parquet if any)"),
        ("outcome/", "the labels of demonstrations, by split"),
        ("step_labels.schema.json", "the JSON Schema of a row"),
        ("trajectories/<id>/", "the screenshots whose paths the rows hold"),
    ),
    loading=_loading("outcome"),
    configs=(
        CardConfig("default", "{split}.parquet"),
        CardConfig("outcome", f"{OUTCOME_FOLDER}/{{split}}.parquet"),
    ),
    shows_leaks=False,
)


def describe_grounding(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for grounding rows; what is counted as kind of action is the role."""
    stats = table_stats(out, provenance, "role")[0]
    return write_card(out, GROUNDING, stats, settings, left_out)


def describe_transitions(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """Write the card and the charts; arguments as for `card_content.describe_sft`."""
    stats = table_stats(out, provenance, "action_type")[0]
    return write_card(out, TRANSITIONS, stats, settings, left_out)


def describe_step_labels(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for labels; what is counted as kind of action is the outcome."""
    stats = table_stats(out / OUTCOME_FOLDER, provenance, "outcome")[0]
    return write_card(out, STEP_LABELS, stats, settings, left_out)
