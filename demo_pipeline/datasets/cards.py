"""Dataset cards: the README.md of a dataset, with the front matter that the Hugging Face Hub reads.

Belongs here: the parts that every card has. What differs between the datasets is in `card_content`.
The numbers come from `dataset_stats`; a card never shows text that a person typed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hashing import read_digest
from demo_pipeline.common.parquet import row_count
from demo_pipeline.common.shown_text import markdown_table, markdown_text
from demo_pipeline.datasets.charts import CHARTS_FOLDER
from demo_pipeline.datasets.dataset_stats import DatasetStats

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
