"""How the stages of a demonstration appear in the UI: groups, kinds, descriptions, columns.

Belongs here: words for people. What a stage does is written down in chain.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.datasets.provenance import PROVENANCE_SCHEMA
from demo_pipeline.observation.frames.screenshots import FRAMES_SCHEMA
from demo_pipeline.observation.trees.ui_trees import UI_TREES_SCHEMA
from demo_pipeline.recording.event_tables import EVENTS_SCHEMA


@dataclass(frozen=True)
class AssetMetadata:
    """How a stage appears in the UI."""

    group: str
    kinds: set[str]
    description: str
    schema: pa.Schema | None = None


ASSET_METADATA: Mapping[str, AssetMetadata] = {
    "raw_recordings": AssetMetadata(
        "recording",
        {"json", "video"},
        "The three uploaded files, verified: present, meta.json valid, video probed by decoding, "
        "all fingerprinted with SHA-256. Writes `recordings/<id>/manifest.json`.",
    ),
    "events": AssetMetadata(
        "recording",
        {"parquet"},
        "Every line of input_log.jsonl as a typed row, or as a rejected line with its reason; "
        "where each accessibility scan lies in the log.",
        EVENTS_SCHEMA,
    ),
    "actions": AssetMetadata(
        "actions",
        {"parquet"},
        "What the hand did: clicks, drags, scrolls, typed text, hotkeys and pauses, each with the "
        "raw events it came from, and a ledger that accounts for every event.",
        ACTIONS_SCHEMA,
    ),
    "screenshots": AssetMetadata(
        "observation",
        {"opencv", "parquet"},
        "The screen before each action, 1920 by 1080, chosen by presentation time before the hand "
        "set out for the target; the clock, the canvas and the waits that the video proves.",
        FRAMES_SCHEMA,
    ),
    "ui_trees": AssetMetadata(
        "observation",
        {"json", "parquet"},
        "The accessibility scan in force at each action in seed 001's roles and states, on the "
        "canvas, and the element that the action was meant for.",
        UI_TREES_SCHEMA,
    ),
    "trajectories": AssetMetadata(
        "trajectories",
        {"json", "parquet"},
        "One OSWorld-Desktopd trajectory (seed 001): task, numbered steps with screenshot, tree "
        "and action, result; provenance.parquet says where each step came from.",
        PROVENANCE_SCHEMA,
    ),
    "contact_sheets": AssetMetadata(
        "trajectories",
        {"jpeg", "opencv"},
        "Every step as a tile on JPEG sheets, for people: its frame with the action and the target "
        "drawn on it, the reason code, the lead, the tree's freshness, and LEAK or UNAVOIDABLE.",
    ),
}
