"""Dataset cards: the README.md of a dataset, with its front matter for the Hub.

Belongs here: which configurations a card names, and what the templates in card_templates/ get.
The texts are in the templates, the numbers come from dataset_counts.py; a card never shows text
that a person typed.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline import __version__
from demo_pipeline.exports.charts import write_charts
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
from demo_pipeline.files.shown_text import markdown_text
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_FILE, Provenance

CARD = "README.md"
Counts = Mapping[str, Mapping[str, int]]
_MOST_ROWS = 20
_CHARTS = ("actions", "lengths", "applications", "resolutions", "splits")
_SPLITS = ("train", "val", "test", "held_out")


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
    splits: tuple[str, ...] = _SPLITS


@dataclass(frozen=True, slots=True)
class CardKind:
    """The template of a card, and what `load_dataset` can load."""

    template: str
    configs: tuple[CardConfig, ...] = (CardConfig("default", "{split}.parquet"),)


_TABLES = ("trajectories", "steps", "hidden_actions")
_CUDAG_CONFIGS = (
    CardConfig("default", "{split}.jsonl", ("train", "val", "held_out")),
    CardConfig("test", "test/test.json", ("test",)),
)
_BY_SPLIT = CardConfig("default", "{split}.parquet")
INDEX = CardKind("index", tuple(CardConfig(name, f"{name}.parquet", ()) for name in _TABLES))
SFT = CardKind("sft")
MESSAGES = CardKind(
    "messages", (_BY_SPLIT, CardConfig("prompt_completion", "prompt_completion/{split}.parquet"))
)
CUDAG = CardKind("cudag", _CUDAG_CONFIGS)
GROUNDING = CardKind("grounding")
TRANSITIONS = CardKind("transitions")
STEP_LABELS = CardKind(
    "step_labels", (_BY_SPLIT, CardConfig("outcome", f"{OUTCOME_FOLDER}/{{split}}.parquet"))
)


def card_text(
    kind: CardKind, stats: DatasetStats, settings: DatasetSettings, left_out: Counts, root: Path
) -> str:
    """The text of a card.

    Args:
        kind: which dataset.
        stats: what is in it.
        settings: the settings that it was made with; they name the license.
        left_out: how many were left out, by unit (trajectories, samples …) and reason.
        root: the dataset's folder, with the files that the configurations name.
    """
    return render_card(
        kind.template,
        settings,
        configs=[found for config in kind.configs for found in _loadable(config, stats, root)],
        stats=stats,
        left_out=left_out,
        charts=[name for name in _CHARTS if name != "splits" or stats.splits],
        scroll_rule=scroll_rule(settings),
    )


def render_card(template: str, settings: DatasetSettings, **values: Any) -> str:
    """The text of a template, which is given the settings and these values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - costs 0.1 s

    environment = Environment(
        loader=PackageLoader("demo_pipeline.exports", "card_templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, whose names `markdown_text` escapes
    )
    environment.filters |= {
        "yaml": yaml_text,
        "percent": "{:.2%}".format,
        "short": "{:g}".format,
        "most_frequent": _most_frequent,
    }
    card = environment.get_template(f"{template}.md.jinja")
    return card.render(settings=settings, version=__version__, **values)


def _loadable(config: CardConfig, stats: DatasetStats, root: Path) -> Iterator[dict[str, Any]]:
    """Yield a configuration unless it has no row, which `datasets` cannot load.

    `datasets` keys its cache by the folder's name and these lines, not by the data. The hash makes
    it read the files again when they have changed.
    """
    names = [name for name in stats.splits if name in config.splits] if config.splits else ["train"]
    named = {name: config.path.format(split=name) for name in names}
    paths = {name: path for name, path in named.items() if _has_rows(root / path)}
    digest = hashlib.sha256()
    for path in paths.values():
        digest.update(read_digest(root / path).sha256.encode())
    if paths:
        yield {"name": config.name, "paths": paths, "digest": digest.hexdigest()}


def _has_rows(path: Path) -> bool:
    return path.suffix != ".parquet" or row_count(path) > 0


def yaml_text(text: str) -> str:
    """A text in YAML: a JSON string is one."""
    return json.dumps(text, ensure_ascii=False)


def _most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    rows = [(markdown_text(name), count) for name, count in counts.items()]
    rest = rows[_MOST_ROWS:]
    more = [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else []
    return [*rows[:_MOST_ROWS], *more]


def write_card(
    out: Path, kind: CardKind, stats: DatasetStats, settings: DatasetSettings, left_out: Counts
) -> DatasetStats:
    """Write a card and its charts; returns what is in the dataset."""
    write_charts(out, stats)
    (out / CARD).write_text(card_text(kind, stats, settings, left_out, out), encoding="utf-8")
    return stats


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
    return write_card(out, CUDAG, cudag_stats(out, provenance)[0], settings, left_out)


def describe_grounding(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for grounding rows; what is counted as kind of action is the role."""
    stats = table_stats(out, provenance, "role")[0]
    return write_card(out, GROUNDING, stats, settings, left_out)


def describe_transitions(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for transitions; arguments as for `describe_sft`."""
    stats = table_stats(out, provenance, "action_type")[0]
    return write_card(out, TRANSITIONS, stats, settings, left_out)


def describe_step_labels(
    out: Path, settings: DatasetSettings, provenance: Provenance, left_out: Counts
) -> DatasetStats:
    """The same for labels; what is counted as kind of action is the outcome."""
    stats = table_stats(out / OUTCOME_FOLDER, provenance, "outcome")[0]
    return write_card(out, STEP_LABELS, stats, settings, left_out)
