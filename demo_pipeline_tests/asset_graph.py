"""Draws the assets and their dependencies as an SVG image, from the lists of stages.

A dependency that other arrows already imply has no arrow of its own.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.review.triage import TRIAGE_STAGE
from demo_pipeline.runs.stages import STAGES, dataset_stages, datasets_job_stages, upstream
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.settings import Settings, export_names
from demo_pipeline.stage import RECORDS, Need
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE

_WIDTH = 126
_HEIGHT = 30
_GAP_X = 18
_GAP_Y = 12
_EDGE = 10
_CHAIN_COLOUR = "#dbeafe"  # assets between a recording and its trajectory
_COLOURS = {
    **dict.fromkeys((TASKS_STAGE.name, REVIEWS), "#e2e8f0"),  # written by people
    **dict.fromkeys(("redactions", "annotations", RECORDS), "#fae8ff"),
    **dict.fromkeys((CONTACT_SHEETS_STAGE.name, TRIAGE_STAGE.name), "#dcfce7"),  # for people
    **dict.fromkeys((stage.name for stage in datasets_job_stages()), "#fef3c7"),
}


def asset_inputs() -> dict[str, tuple[str, ...]]:
    """Returns asset → the assets that it reads directly.

    An input is left out if another input of the asset already depends on it.
    """
    inputs = {stage.name: set(stage.inputs) for stage in STAGES}
    everything = Settings(datasets={"exports": export_names()})
    inputs |= {stage.name: set(upstream(stage, everything)) for stage in dataset_stages()}
    for stage in STAGES:
        inputs[stage.name] |= {TASKS_STAGE.name} if Need.TASK in stage.needs else set()
    inputs[RECORDS].add(REVIEWS)
    inputs[REVIEWS] = set()

    @cache
    def above(name: str) -> frozenset[str]:
        return frozenset(inputs[name]).union(*map(above, inputs[name]))

    return {
        name: tuple(sorted(read - frozenset().union(*(above(other) for other in read))))
        for name, read in inputs.items()
    }


def asset_graph() -> str:
    """Returns the image as SVG."""
    inputs = asset_inputs()
    places = _places(inputs)
    right = max(x for x, _ in places.values()) + _WIDTH + _EDGE
    lowest = max(y for _, y in places.values()) + _HEIGHT + _EDGE
    size = f"0 0 {right} {lowest}"
    font = 'font-family="Helvetica, Arial, sans-serif"'
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {font} font-size="13">\n',
            f'<rect width="{right}" height="{lowest}" rx="8" fill="#ffffff"/>\n',
            '<g fill="none" stroke="#64748b" stroke-width="1.2">\n',
            *_arrows(inputs, places),
            "</g>\n",
            *(_box(name, places[name], _COLOURS.get(name, _CHAIN_COLOUR)) for name in inputs),
            "</svg>\n",
        ]
    )


def _places(inputs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, int]]:
    """Returns asset → position of the upper left corner of its box.

    The column of an asset is the length of the longest path from an asset without inputs.
    """
    columns: dict[str, int] = {}
    for name in inputs:
        columns[name] = max((columns.get(other, 0) + 1 for other in inputs[name]), default=0)
    columns[TASKS_STAGE.name] = columns["trajectories"] - 1
    rows: dict[int, int] = {}
    places = {}
    for name, column in columns.items():
        row = rows.get(column, 0)
        rows[column] = row + 1
        x = _EDGE + column * (_WIDTH + _GAP_X)
        places[name] = (x, _EDGE + row * (_HEIGHT + _GAP_Y))
    return places


def _arrows(
    inputs: Mapping[str, tuple[str, ...]], places: Mapping[str, tuple[int, int]]
) -> Iterator[str]:
    for name, read in inputs.items():
        for other in read:
            x = places[other][0] + _WIDTH
            y = places[other][1] + _HEIGHT / 2
            end_x = places[name][0]
            end_y = places[name][1] + _HEIGHT / 2
            bend = x + _GAP_X / 2
            tip = end_x - 6
            yield f'<path d="M{x} {y:g} C{bend:g} {y:g} {bend:g} {end_y:g} {tip} {end_y:g}"/>'
            head = f"M{tip} {end_y - 3:g} L{end_x} {end_y:g} L{tip} {end_y + 3:g}"
            yield f'<path d="{head}" fill="#64748b"/>\n'


def _box(name: str, place: tuple[int, int], colour: str) -> str:
    x, y = place
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{colour}"'
        ' stroke="#64748b"/>'
        f'<text x="{x + _WIDTH / 2:g}" y="{y + _HEIGHT / 2 + 4:g}" text-anchor="middle"'
        f' fill="#0f172a">{name}</text>\n'
    )
