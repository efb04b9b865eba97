"""Writes dataset cards: README.md with front matter for the Hugging Face Hub, and charts.

card_templates/ has the texts. A card never shows typed text. Charts are PNG files with text in
OpenCV's built-in font, so equal numbers give equal bytes. Characters outside ASCII become "?".
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from demo_pipeline import __version__
from demo_pipeline.datasets.card_files import CARD, CHARTS_FOLDER
from demo_pipeline.datasets.splits import Split
from demo_pipeline.exports.dataset_statistics import (
    DatasetStats,
    hidden_action_counts,
    index_stats,
    row_stats,
)
from demo_pipeline.exports.export_summary import CardFacts, ExportSummary
from demo_pipeline.exports.form import Form
from demo_pipeline.exports.prompts import scroll_rule
from demo_pipeline.exports.step_facts import CANVAS
from demo_pipeline.exports.token_estimates import resized
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.parquet import row_count
from demo_pipeline.files.shown_text import markdown_text
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_FILE, Provenance

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_BARS = 15  # maximum number of bars in a chart
# Lengths in a chart, pixels.
_WIDTH = 640  # width of the image
_ROW = 26  # height of a bar with the space below it
_TOP = 44  # height of the title
_MARGIN = 14
_LABELS = 190  # width of the labels
_VALUES = 70  # width of the numbers
# Colours (blue, green, red) of the text, the background of bars, and the bars.
_INK = (60, 50, 40)
_PALE = (232, 228, 224)
_BAR = (176, 120, 60)
# Ranges of trajectory lengths (in samples), one per bar; both ends are included.
_BINS = ((1, 1), (2, 5), (6, 10), (11, 15), (16, 25), (26, 50), (51, 100), (101, 10**9))


def write_charts(out: Path, stats: DatasetStats) -> None:
    """Writes the charts of a dataset as `plots/<name>.png` in its folder `out`."""
    bars: dict[str, tuple[str, Mapping[str, int]]] = {
        "actions": ("Samples by action", stats.actions),
        "lengths": ("Trajectories by number of samples", _binned(stats.lengths)),
        "applications": ("Trajectories by application", stats.applications),
        "resolutions": ("Trajectories by recorded screen", stats.resolutions),
    }
    if stats.splits:
        splits = {name: split.samples for name, split in stats.splits.items()}
        bars["splits"] = ("Samples by split", splits)
    (out / CHARTS_FOLDER).mkdir(parents=True, exist_ok=True)
    for name, (title, counts) in bars.items():
        (out / CHARTS_FOLDER / f"{name}.png").write_bytes(bar_chart(title, counts))


def bar_chart(title: str, bars: Mapping[str, int]) -> bytes:
    """Draws a horizontal bar chart as PNG, with the bars in the given order.

    If there are more than `MOST_BARS` bars, the last bar is the sum of the rest.

    Args:
        title: text above the bars.
        bars: the value of each bar by its label; values are not negative.
    """
    drawn = list(bars.items()) or [("nothing yet", 0)]
    if len(drawn) > MOST_BARS:
        rest = [value for _, value in drawn[MOST_BARS - 1 :]]
        drawn = [*drawn[: MOST_BARS - 1], (f"{len(rest)} others", sum(rest))]
    height = _TOP + _ROW * len(drawn) + _MARGIN
    image = np.full((height, _WIDTH, 3), 255, np.uint8)
    _write(image, title, (_MARGIN, 26), 0.55)
    room = _WIDTH - _LABELS - _VALUES - _MARGIN
    largest = max(1, *(value for _, value in drawn))
    for number, (label, value) in enumerate(drawn):
        top = _TOP + _ROW * number
        for length, colour in ((room, _PALE), (round(room * value / largest), _BAR)):
            if length or value:
                end = (_LABELS + length, top + _ROW - 5)
                cv2.rectangle(image, (_LABELS, top + 3), end, colour, cv2.FILLED)
        short_label = label
        if len(label) > 24:
            short_label = f"{label[:22]}.."
        _write(image, short_label, (_MARGIN, top + 17), 0.42)
        _write(image, str(value), (_LABELS + room + 8, top + 17), 0.42)
    return bytes(cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1])


def _write(image: NDArray[np.uint8], text: str, position: tuple[int, int], scale: float) -> None:
    ascii_text = text.encode("ascii", "replace").decode("ascii")
    font = cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(image, ascii_text, position, font, scale, _INK, 1, cv2.LINE_AA)


def _binned(lengths: Mapping[int, int]) -> dict[str, int]:
    """Counts trajectories in the bins of `_BINS`, from the first to the last non-empty bin.

    Args:
        lengths: number of trajectories by length in samples.
    """
    bins = dict[str, int]()
    for low, high in _BINS:
        name = f"{low} to {high}"
        if low == high:
            name = str(low)
        elif (low, high) == _BINS[-1]:
            name = f"over {_BINS[-2][1]}"
        bins[name] = sum(count for length, count in lengths.items() if low <= length <= high)
    names = list(bins)
    while names and not bins[names[0]]:
        del names[0]
    while names and not bins[names[-1]]:
        del names[-1]
    return {name: bins[name] for name in names}


Counts = Mapping[str, Mapping[str, int]]
"""Numbers of left-out items, by kind of item (trajectories, samples, …) and by reason."""
_MOST_ROWS = 20  # maximum number of rows of a table in a card; a further row sums up all others
_CHARTS = ("actions", "lengths", "applications", "resolutions", "splits")


@dataclass(frozen=True, slots=True)
class _CardConfig:
    """A file that `load_dataset` loads as a configuration, or as splits of a configuration.

    Attributes:
        name: name of the configuration; the first configuration in the card is the default.
        path: path of the file in the dataset.
        splits: the splits that the file contains; empty for a table without splits.
            `load_dataset` loads such a table as the split `train`.
    """

    name: str
    path: str
    splits: tuple[str, ...]


_INDEX = tuple(
    _CardConfig(name, f"{name}.parquet", ()) for name in ("trajectories", "steps", "hidden_actions")
)


def describe_form(
    form: Form,
    out: Path,
    settings: DatasetSettings,
    rows_and_provenance: tuple[CardFacts, Provenance],
    summary: ExportSummary,
    *,
    privacy: str = "",
    damaged: int = 0,
) -> DatasetStats:
    """Writes the card and the charts of a training export.

    Args:
        settings: the settings with which the dataset was built, including the name of its license.
        rows_and_provenance: facts about the written rows, and the provenance of the trajectories.
        privacy: see `CommittedTrajectories.privacy`.
        damaged: number of trajectories that were left out because of a damaged file.

    Returns:
        The numbers in the card.
    """
    facts, provenance = rows_and_provenance
    stats = row_stats(facts.rows, provenance)
    configs = [
        _CardConfig(file.config, file.at(split, settings), (split.value,))
        for file in form.files
        for split in Split
        if file.config and split in file.only
    ]
    text = card_text(
        form,
        stats,
        settings,
        _with_damaged(summary.left_out, damaged),
        (configs, out),
        longest=facts.longest_chat,
        privacy=privacy,
    )
    write_charts(out, stats)
    (out / CARD).write_text(text, encoding="utf-8")
    return stats


def card_text(
    form: Form | None,
    stats: DatasetStats,
    settings: DatasetSettings,
    left_out: Counts,
    loaded: tuple[Sequence[_CardConfig], Path],
    *,
    privacy: str = "",
    longest: int = 0,
) -> str:
    """Returns the text of a card.

    Args:
        form: the record format of the export, or None for the card of the trajectory dataset.
        settings: the settings with which the dataset was built, including the name of its license.
        left_out: numbers of left-out trajectories, rows and actions.
        loaded: the files that `load_dataset` may load, and the dataset's folder.
        privacy: see `CommittedTrajectories.privacy`.
        longest: estimated tokens of the longest chat; 0 if there are no chats.
    """
    configs, root = loaded
    name = "index"
    paths = []
    if form:
        name = form.name
        paths = [file.at(Split.TRAIN, settings) for file in form.files]
    has_own = Path(__file__).with_name("card_templates").joinpath(f"{name}.md.jinja").is_file()
    return render_card(
        name if has_own else "form",
        settings,
        form=form,
        paths=paths,
        configs=list(_loadable(configs, stats, root)),
        stats=stats,
        left_out=left_out,
        charts=[name for name in _CHARTS if name != "splits" or stats.splits],
        scroll_rule=scroll_rule(settings),
        privacy=privacy,
        longest=longest,
        length=-(-longest // 1024) * 1024,
        seen=resized(CANVAS, settings.max_pixels),
    )


def render_card(template: str, settings: DatasetSettings, **values: Any) -> str:
    """Renders `card_templates/<template>.md.jinja` with the settings and further values."""
    card = _templates().get_template(f"{template}.md.jinja")
    return card.render(settings=settings, version=__version__, **values)


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - costs 0.1 s

    environment = Environment(
        loader=PackageLoader("demo_pipeline.exports", "card_templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - not HTML; `markdown_text` escapes names
    )
    environment.filters |= {
        "yaml": yaml_text,
        "percent": "{:.2%}".format,
        "short": "{:g}".format,
        "most_frequent": _most_frequent,
    }
    return environment


def _loadable(
    configs: Sequence[_CardConfig], stats: DatasetStats, root: Path
) -> Iterator[dict[str, Any]]:
    """Yields the front matter of each configuration, without empty files.

    The library `datasets` cannot load empty files. It identifies its cached data by the folder's
    name and the card's front matter, which therefore contains a digest of the files.
    """
    paths_by_config: dict[str, dict[str, str]] = {}
    for config in configs:
        for split in config.splits or ("train",):
            path = root / config.path
            has_rows = split in stats.splits or not config.splits
            if has_rows and path.suffix == ".parquet":
                has_rows = path.is_file() and row_count(path) > 0
            if has_rows and path.is_file():
                paths_by_config.setdefault(config.name, {})[split] = config.path
    for name, paths in paths_by_config.items():
        digest = hashlib.sha256()
        for path_name in paths.values():
            digest.update(read_digest(root / path_name).sha256.encode())
        yield {"name": name, "paths": paths, "digest": digest.hexdigest()}


def yaml_text(text: str) -> str:
    """Returns a text as YAML; every JSON string is valid YAML."""
    return json.dumps(text, ensure_ascii=False)


def _most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns the rows of a table: escaped names and counts, in the given order.

    A last row sums up all counts after the first `_MOST_ROWS`.
    """
    rows = [(markdown_text(name), count) for name, count in counts.items()]
    rest = rows[_MOST_ROWS:]
    if not rest:
        return rows
    return [*rows[:_MOST_ROWS], (f"{len(rest)} others", sum(count for _, count in rest))]


def _with_damaged(left_out: Counts, damaged: int) -> Counts:
    """Adds the number of damaged trajectories to the counts of a card, unless it is 0."""
    if not damaged:
        return left_out
    trajectories = {**left_out.get("trajectories", {}), "damaged": damaged}
    return {**left_out, "trajectories": trajectories}


def describe_index(
    out: Path, settings: DatasetSettings, privacy: str = "", *, damaged: int = 0
) -> DatasetStats:
    """Writes the card and the charts of a trajectory dataset, and returns its numbers.

    Args:
        settings: the settings with which the dataset was built, including the name of its license.
        privacy: see `CommittedTrajectories.privacy`.
        damaged: number of trajectories that were left out because of a damaged file.
    """
    stats = index_stats(out)
    hidden_actions = {"actions": hidden_action_counts(out / HIDDEN_ACTIONS_FILE)}
    left_out = _with_damaged(hidden_actions, damaged)
    write_charts(out, stats)
    text = card_text(None, stats, settings, left_out, (_INDEX, out), privacy=privacy)
    (out / CARD).write_text(text, encoding="utf-8")
    return stats
