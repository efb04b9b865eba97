"""Dataset cards: the README.md of a dataset, with its front matter for the Hub, and its charts.

Belongs here: which configurations a card names, what the templates in card_templates/ get, and bar
charts as PNG files, the same bytes for the same numbers. OpenCV's built-in font is used, so that
the fonts of the machine do not matter; it is ASCII only, and other characters of a label become
"?". The texts are in the templates; a card never shows text that a person typed.
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
_INK, _PALE, _BAR = (60, 50, 40), (232, 228, 224), (176, 120, 60)  # BGR
_BINS = ((1, 1), (2, 5), (6, 10), (11, 15), (16, 25), (26, 50), (51, 100), (101, 10**9))


def write_charts(out: Path, stats: DatasetStats) -> None:
    """Write `plots/<name>.png` below `out`."""
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
    """Draw horizontal bars in the given order; the last of `MOST_BARS` bars sums up the rest.

    Args:
        title: text above the bars.
        bars: label → value, not negative.

    Returns:
        PNG bytes.
    """
    shown = list(bars.items()) or [("nothing yet", 0)]
    if len(shown) > MOST_BARS:
        rest = [value for _, value in shown[MOST_BARS - 1 :]]
        shown = [*shown[: MOST_BARS - 1], (f"{len(rest)} others", sum(rest))]
    height = _TOP + _ROW * len(shown) + _MARGIN
    image = np.full((height, _WIDTH, 3), 255, np.uint8)
    _write(image, title, (_MARGIN, 26), 0.55)
    room = _WIDTH - _LABELS - _VALUES - _MARGIN
    most = max(1, *(value for _, value in shown))
    for number, (label, value) in enumerate(shown):
        top = _TOP + _ROW * number
        for length, colour in ((room, _PALE), (round(room * value / most), _BAR)):
            if length or value:
                end = (_LABELS + length, top + _ROW - 5)
                cv2.rectangle(image, (_LABELS, top + 3), end, colour, cv2.FILLED)
        _write(image, label if len(label) <= 24 else f"{label[:22]}..", (_MARGIN, top + 17), 0.42)
        _write(image, str(value), (_LABELS + room + 8, top + 17), 0.42)
    return bytes(cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1])


def _write(image: NDArray[np.uint8], text: str, position: tuple[int, int], scale: float) -> None:
    ascii_text = text.encode("ascii", "replace").decode("ascii")
    font = cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(image, ascii_text, position, font, scale, _INK, 1, cv2.LINE_AA)


def _binned(lengths: Mapping[int, int]) -> dict[str, int]:
    """Trajectories by length in bins, from the first to the last bin that is not empty."""
    bins = [sum(n for size, n in lengths.items() if low <= size <= high) for low, high in _BINS]
    names = [str(low) if low == high else f"{low} to {high}" for low, high in _BINS[:-1]]
    names.append(f"over {_BINS[-2][1]}")
    used = [number for number, count in enumerate(bins) if count]
    found = list(zip(names, bins, strict=True))
    return dict(found[used[0] : used[-1] + 1]) if used else {}


Counts = Mapping[str, Mapping[str, int]]
_MOST_ROWS = 20
_CHARTS = ("actions", "lengths", "applications", "resolutions", "splits")


@dataclass(frozen=True, slots=True)
class _CardConfig:
    """A configuration that `load_dataset` finds in the card; the first of a card is its default.

    Attributes:
        name: of the configuration.
        path: of its file.
        splits: that the file is of; none: a table without splits, which loads as `train`.
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
    """The text of a template, which is given the settings and these values."""
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
    """Yield the configurations, each with the files that have a row: `datasets` loads no others.

    `datasets` keys its cache by the folder's name and these lines, not by the data. The hash makes
    it read the files again when they have changed.
    """
    found: dict[str, dict[str, str]] = {}
    for config in configs:
        for split in config.splits or ("train",):
            path = root / config.path
            has_rows = split in stats.splits or not config.splits
            if has_rows and path.suffix == ".parquet":
                has_rows = path.is_file() and row_count(path) > 0
            if has_rows and path.is_file():
                found.setdefault(config.name, {})[split] = config.path
    for name, paths in found.items():
        digest = hashlib.sha256()
        for path_name in paths.values():
            digest.update(read_digest(root / path_name).sha256.encode())
        yield {"name": name, "paths": paths, "digest": digest.hexdigest()}


def yaml_text(text: str) -> str:
    """A text in YAML: a JSON string is one."""
    return json.dumps(text, ensure_ascii=False)


def _most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    rows = [(markdown_text(name), count) for name, count in counts.items()]
    rest = rows[_MOST_ROWS:]
    more = [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else []
    return [*rows[:_MOST_ROWS], *more]


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
