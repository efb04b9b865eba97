"""The cards of the training exports that are built on request.

Belongs here: their texts. The parts that all cards share are in `cards`.
"""

from pathlib import Path

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.card_content import Counts, write_card
from demo_pipeline.datasets.cards import CardConfig, CardKind
from demo_pipeline.datasets.dataset_stats import DatasetStats, Provenance, table_stats
from demo_pipeline.formats.step_labels.models import OUTCOME_FOLDER

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
