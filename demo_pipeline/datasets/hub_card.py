"""The card of a dataset in the layout for the Hub, with the front matter that the Hub reads.

Belongs here: its text. The parts that it shares with the cards of exports are in `cards`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hashing import read_digest
from demo_pipeline.common.hub_features import hub_features
from demo_pipeline.common.hub_settings import HubSettings
from demo_pipeline.common.shown_text import markdown_table
from demo_pipeline.datasets.cards import origin_text
from demo_pipeline.datasets.dataset_stats import SplitStats
from demo_pipeline.datasets.hub_layout import DATA_FOLDER, HubConfig

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**6, "100K<n<1M"))
_MORE = "1M<n<10M"
_ABOUT = (
    "Demonstrations of people using computers, as training data for computer-use agents. Every "
    "configuration holds the same demonstrations in another form; pictures are in the rows."
)


def hub_card(
    configs: Sequence[HubConfig],
    splits: Mapping[str, Mapping[str, SplitStats]],
    settings: tuple[DatasetSettings, HubSettings],
    out: Path,
) -> str:
    """The text of the card.

    Args:
        configs: what was written; those without a row are not listed.
        splits: configuration → split → what is in it.
        settings: with the license and the languages.
        out: the folder of the dataset.
    """
    used = [config for config in configs if config.rows]
    name = settings[0].name_prefix
    rows = [
        (f"`{config.table.config}`", split, stats.samples, stats.trajectories, stats.tasks)
        for config in used
        for split, stats in splits[config.table.config].items()
    ]
    parts = [
        "\n".join(["---", *_front_matter(used, settings, out), "---"]),
        f"# {name}",
        _ABOUT,
        "## Configurations",
        markdown_table(
            ("configuration", "a row is"),
            [(f"`{config.table.config}`", config.table.about) for config in used],
        ),
        "## Splits",
        markdown_table(("configuration", "split", "rows", "demonstrations", "tasks"), rows),
        "No task and no demonstration is in two splits, over all configurations: a split is by "
        "task. Demonstrations of known benchmark tasks are left out"
        + ("." if not settings[0].include_contaminated else ", unless the settings include them."),
        "## How it was made",
        origin_text(settings[0]),
        "## Loading",
        _loading(used),
        "## License",
        f"`{settings[0].license}`",
    ]
    return "\n\n".join(parts) + "\n"


def _loading(configs: Sequence[HubConfig]) -> str:
    name = configs[0].table.config if configs else ""
    return (
        "```python\n"
        "from datasets import load_dataset\n\n"
        f'rows = load_dataset("the name or path of this dataset", "{name}", streaming=True)\n'
        "```"
    )


def _front_matter(
    configs: Sequence[HubConfig], settings: tuple[DatasetSettings, HubSettings], out: Path
) -> Iterator[str]:
    total = sum(sum(config.rows.values()) for config in configs)
    tasks = {name for config in configs for name in config.table.task_categories}
    yield f"license: {_quoted(settings[0].license)}"
    yield from _list("language", settings[1].language)
    yield from _list("task_categories", sorted(tasks))
    yield from _list("size_categories", [next((n for most, n in _SIZES if total < most), _MORE)])
    yield f"pretty_name: {_quoted(settings[0].name_prefix)}"
    yield from _list("tags", ("computer-use", "gui-agents"))
    yield "dataset_info:"
    for config in configs:
        yield from _dataset_info(config)
    yield "configs:"
    for number, config in enumerate(configs):
        yield f"- config_name: {config.table.config}"
        if number == 0:
            yield "  default: true"
        yield f"  description: {_quoted(_digest(config, out))}"
        yield "  data_files:"
        for split in config.rows:
            yield f"  - split: {split}"
            yield f"    path: {DATA_FOLDER}/{config.table.config}/{split}-*.parquet"


def _digest(config: HubConfig, out: Path) -> str:
    """Changes with the data: `datasets` keys its cache by the card and the names of the files."""
    digest = hashlib.sha256()
    for path in sorted((out / DATA_FOLDER / config.table.config).iterdir()):
        digest.update(read_digest(path).sha256.encode())
    return f"sha256:{digest.hexdigest()}"


def _dataset_info(config: HubConfig) -> Iterator[str]:
    size = sum(config.sizes.values())
    yield f"- config_name: {config.table.config}"
    yield "  features:"
    for name, feature in hub_features(config.schema).items():
        yield from _feature_lines(name, feature, "  ")
    yield "  splits:"
    for split, rows in config.rows.items():
        yield f"  - name: {split}"
        yield f"    num_bytes: {config.sizes[split]}"
        yield f"    num_examples: {rows}"
    yield f"  download_size: {size}"
    yield f"  dataset_size: {size}"


def _feature_lines(name: str, feature: Mapping[str, Any], indent: str) -> Iterator[str]:
    yield f"{indent}- name: {name}"
    yield from _type_lines(feature, f"{indent}  ", "dtype")


def _type_lines(feature: Mapping[str, Any], indent: str, key: str) -> Iterator[str]:
    """Yield a type; `key` is `dtype`, or `list` for the type of a list's items."""
    kind = feature.get("_type")
    if kind == "Image":
        yield f"{indent}{key}: image"
    elif kind == "Value":
        yield f"{indent}{key}: {feature['dtype']}"
    elif kind == "List":
        yield from _type_lines(feature["feature"], indent, "list")
    else:
        yield f"{indent}{'struct' if key == 'dtype' else key}:"
        for name, below in feature.items():
            yield from _feature_lines(name, below, indent)


def _list(name: str, values: Sequence[str]) -> Iterator[str]:
    yield f"{name}:"
    yield from (f"- {_quoted(value)}" for value in values)


def _quoted(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)
