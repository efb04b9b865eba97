"""Dataset cards: the README.md of a dataset, with its front matter for the Hub, and its charts.

The texts of cards are in card_templates/; a card never shows typed text. Charts are PNG files with
equal bytes for equal numbers. They use OpenCV's built-in font, so that the fonts of the machine do
not matter. It only has ASCII characters; other characters become "?".
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

MOST_BARS = 15
_WIDTH = 640
_ROW = 26
_TOP = 44
_MARGIN = 14
_LABELS = 190
_VALUES = 70
_INK = (60, 50, 40)  # BGR, as the two below
_PALE = (232, 228, 224)
_BAR = (176, 120, 60)
_BINS = ((1, 1), (2, 5), (6, 10), (11, 15), (16, 25), (26, 50), (51, 100), (101, 10**9))


def write_charts(out: Path, stats: DatasetStats) -> None:
    """Writes `plots/<name>.png` below `out`."""
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
    """Draws horizontal bars in the given order and returns PNG bytes.

    If there are too many bars, the last of `MOST_BARS` bars is the sum of the rest.

    Args:
        title: text above the bars.
        bars: label → value, not negative.
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
    """Returns the trajectories by length, from the first to the last bin that is not empty."""
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
_MOST_ROWS = 20
_CHARTS = ("actions", "lengths", "applications", "resolutions", "splits")


@dataclass(frozen=True, slots=True)
class _CardConfig:
    """A configuration that `load_dataset` finds in the card; the first one is the default.

    Attributes:
        path: of its file.
        splits: of the file; empty for a table without splits, which loads as `train`.
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
    made_of: tuple[CardFacts, Provenance],
    summary: ExportSummary,
    *,
    privacy: str = "",
    damaged: int = 0,
) -> DatasetStats:
    """Write the card and the charts of a dataset in a form; returns what is in it.

    Args:
        form: of the dataset.
        out: its folder.
        settings: that it was made with; they name the license.
        made_of: facts about the written rows, and the provenance of the trajectories.
        summary: of the build.
        privacy: see `CommittedTrajectories`.
        damaged: how many trajectories are left out because a file of theirs is damaged.
    """
    facts, provenance = made_of
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
    """The text of a card.

    Args:
        form: of the dataset, which may have a template; None: it is the index.
        stats: what is in it.
        settings: the settings that it was made with; they name the license.
        left_out: how many were left out, by unit (trajectories, samples …) and reason.
        loaded: the configurations that `load_dataset` may find, and the dataset's folder.
        privacy: see `CommittedTrajectories`.
        longest: tokens of its longest chat, estimated; 0: it has none.
    """
    (configs, root), name = loaded, form.name if form else "index"
    has_own = Path(__file__).with_name("card_templates").joinpath(f"{name}.md.jinja").is_file()
    return render_card(
        name if has_own else "form",
        settings,
        form=form,
        paths=[file.at(Split.TRAIN, settings) for file in form.files] if form else [],
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
    """Renders a template with the settings and these values."""
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
        autoescape=False,  # noqa: S701 - Markdown, whose names `markdown_text` escapes
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
    """Yields the configurations with their non-empty files, because `datasets` loads no others.

    `datasets` keys its cache by the folder's name and these lines, not by the data. The digest
    makes it read changed files again.
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
    """Returns a text as YAML; a JSON string is valid YAML."""
    return json.dumps(text, ensure_ascii=False)


def _most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    rows = [(markdown_text(name), count) for name, count in counts.items()]
    rest = rows[_MOST_ROWS:]
    if not rest:
        return rows
    return [*rows[:_MOST_ROWS], (f"{len(rest)} others", sum(count for _, count in rest))]


def _with_damaged(left_out: Counts, damaged: int) -> Counts:
    """The counts of a card, with the damaged trajectories if there are any."""
    if not damaged:
        return left_out
    trajectories = {**left_out.get("trajectories", {}), "damaged": damaged}
    return {**left_out, "trajectories": trajectories}


def describe_index(
    out: Path, settings: DatasetSettings, privacy: str = "", *, damaged: int = 0
) -> DatasetStats:
    """Write the card and the charts of a trajectory dataset; returns what is in it."""
    stats = index_stats(out)
    hidden_actions = {"actions": hidden_action_counts(out / HIDDEN_ACTIONS_FILE)}
    left_out = _with_damaged(hidden_actions, damaged)
    write_charts(out, stats)
    text = card_text(None, stats, settings, left_out, (_INDEX, out), privacy=privacy)
    (out / CARD).write_text(text, encoding="utf-8")
    return stats
