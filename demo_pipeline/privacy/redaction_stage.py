"""The stage `redactions`: what is private in a trajectory, and what leaves instead of it.

Belongs here: its declaration and its table. Where something is redacted, the output is a trajectory
that later stages read instead of the original, which stays in the stages before this one.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.json_files import JsonFileError, dump_json, json_bytes, load_json
from demo_pipeline.files.parquet import (
    COUNT,
    TEXT,
    between,
    described_schema,
    fitting,
    one_of,
    read_rows,
    schema_problems,
    write_rows,
)
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.observation.trees.secret_fields import hide_passwords, mapped_texts
from demo_pipeline.observation.trees.ui_trees import UI_TREES_FILE, read_tree_rows
from demo_pipeline.privacy.detectors import Detectors
from demo_pipeline.privacy.redaction import OURS, Marks, Redaction
from demo_pipeline.problems import Problem, errors
from demo_pipeline.recording.manifest import read_manifest
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.stage import Check, SourceInput, Stage, Summary, joined
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version

REDACTIONS = "redactions"
_REVIEW_MARKS = "reviews"
REDACTIONS_FILE = "redactions.parquet"
STATE_FILE = "redactions.json"
_PACKAGES = ("detect-secrets", "phonenumbers", "python-stdnum", "rapidocr")

REDACTIONS_SCHEMA = described_schema(
    (
        ("step", pa.int32(), True, "0-based; null: of the whole demonstration"),
        ("place", pa.string(), False, "file of the trajectory, and node or key in it"),
        ("kind", pa.string(), False, "password, email, card …: see docs/guides/privacy.md"),
        ("detector", pa.string(), False, "what found it"),
        ("confidence", pa.float64(), False, "of the detector, 0 to 1"),
        ("policy", pa.string(), False, "what was done: flag, redact or drop"),
        ("secret", pa.string(), False, "the same for the same text of this demonstration"),
        ("start", pa.int32(), True, "first character in the text; null: in a picture"),
        ("end", pa.int32(), True, "the character after the last one"),
        ("x", pa.int32(), True, "box on the canvas, pixels; null: in a text"),
        ("y", pa.int32(), True, "box on the canvas, pixels"),
        ("width", pa.int32(), True, "box on the canvas, pixels"),
        ("height", pa.int32(), True, "box on the canvas, pixels"),
    ),
    {
        "step start end": COUNT,
        "place kind detector": TEXT,
        "confidence": between(0, 1),
        "policy": one_of("flag", "redact", "drop"),
        "secret": fitting(r"[0-9a-f]{16}"),
    },
)


def is_redacted(version: Version) -> bool:
    """Whether an output of the stage is a trajectory that stands for the one it was built from."""
    return bool(version.manifest.summary["redacted_files"])


def left_of(redactions: Path, settings: PrivacySettings) -> dict[str, Any]:
    """What a summary says: why it must not leave (empty: it may), and what was found.

    Args:
        redactions: the stage's output.
        settings: what was looked for.
    """
    state = load_json(redactions / STATE_FILE)
    found = {"found": state["found"], "detectors": state["detectors"]}
    return {"withheld": state["withheld"], "privacy": looked_for(settings), **found}


def is_shown_redacted(store: Store, demonstration: str) -> bool:
    """Whether a copy is shown of a trajectory, so that its film must not be."""
    version = store.current(f"{REDACTIONS}/{demonstration}")
    return version is not None and is_redacted(version)


def told_of_privacy(settings: PrivacySettings, summaries: Sequence[Mapping[str, Any]]) -> str:
    """Policy, versions and counts for a card; empty: the default policy, which found nothing.

    Args:
        settings: of the build.
        summaries: of the records, see `left_of`.
    """
    found = Counter[str]()
    versions = dict[str, str]()
    for summary in summaries:
        found.update(summary.get("found", {}))
        versions |= summary.get("detectors", {})
    if not found and (settings.policy, settings.kinds) == ("flag", {}):
        return ""
    policies = [settings.policy, *(f"{kind}: {p}" for kind, p in sorted(settings.kinds.items()))]
    counts = [f"{what} {count}" for what, count in sorted(found.items())]
    detectors = [f"{name} {number}" for name, number in sorted(versions.items())]
    return (
        f"Private data: policy {', '.join(policies)}; looked for with {', '.join(detectors)}; "
        f"places found: {', '.join(counts) or 'none'}. What is redacted is a placeholder such as "
        "`<email>` in texts, and covered in pictures; what is flagged is in the data."
    )


def looked_for(settings: PrivacySettings) -> str:
    """A hash of what is looked for; other settings find something else."""
    return hashlib.sha256(json_bytes(settings)).hexdigest()[:16]


def open_shown(
    store: Store, demonstration: str, settings: PrivacySettings | None = None
) -> tuple[Path, Version]:
    """The folder of a trajectory as it may be shown, and the version of the trajectory.

    Args:
        store: of the pipeline.
        demonstration: its id.
        settings: with which it must have been looked at, if something must not leave.

    Raises:
        StorageError: there is none, or it was not looked at.
    """
    output = f"{REDACTIONS}/{demonstration}"
    folder, version = store.open(f"trajectories/{demonstration}")
    redactions = store.current(output)
    if settings is not None and settings.reads_pictures:
        summary = redactions.manifest.summary if redactions else {}
        if summary.get("privacy") != looked_for(settings) or summary["withheld"]:
            raise MissingOutput(output)
    if is_shown_redacted(store, demonstration):
        folder = store.open(f"{REDACTIONS}/{demonstration}")[0]
    return folder, version


_Opened = Callable[[Path, PrivacySettings], Redaction]  # a folder's, as the recording says


def _known(workspace: Any, demonstration: str, versions: Mapping[str, Version]) -> SourceInput:
    """What people say, and what the recording of the trajectory says."""
    boxes = workspace.reviews.private_boxes(demonstration, versions["trajectories"])
    marks = Marks()
    for step, found in boxes.items():
        # The last word about a box counts; a mark that was taken back leaves no box alone.
        marked = {box for box, private in found if private}
        last = dict(found)
        marks.added[step] = [box for box, private in last.items() if private]
        marks.kept[step] = [box for box in last if box not in marked]
    told = {_REVIEW_MARKS: hashlib.sha256(repr(marks).encode()).hexdigest()} if boxes else {}
    opened = _opener(workspace.store, demonstration, versions["trajectories"], marks)
    return SourceInput(opened, told)


def _opener(store: Store, demonstration: str, trajectory: Version, marks: Marks) -> _Opened:
    """Opens a folder with passwords, country and key of the trajectory's recording, if any.

    They are read then: whether an output is up to date is asked of very many.
    """

    @cache
    def known() -> tuple[frozenset[str], str, bytes]:
        if "actions" not in trajectory.manifest.recipe.inputs:
            return frozenset(), "US", trajectory.content.encode()
        recording = read_manifest(store.open(f"recordings/{demonstration}", "manifest.json")[0])
        rows = read_tree_rows(store.open(f"ui_trees/{demonstration}", UI_TREES_FILE)[0])
        actions = read_actions(store.open(f"actions/{demonstration}")[0])
        said = recording.parsed_meta().locale.replace("_", "-").rpartition("-")[2].upper()
        key = bytes.fromhex(recording.file(LOG_FILE).sha256)
        return hide_passwords(actions, rows)[1], said if len(said) == 2 else "US", key

    def opened(folder: Path, settings: PrivacySettings) -> Redaction:
        passwords, country, key = known()
        return Redaction(folder, Detectors(settings, country), key, passwords, marks)

    return opened


Said = TypeVar("Said", bound=BaseModel)


def cleaner(store: Store, settings: PrivacySettings, demonstration: str) -> Callable[[Said], Said]:
    """The function that replaces what is private in what people and models say of a demonstration.

    Raises `StorageError` when it has no trajectory.
    """
    folder, version = store.open(f"trajectories/{demonstration}")
    found = _opener(store, demonstration, version, Marks())(folder, settings)
    found.learn()
    return lambda said: said.model_validate(
        mapped_texts(said.model_dump(mode="json"), found.texts.clean, OURS)
    )


def _run_redactions(inputs: RecordingInputs, out: Path) -> Summary:
    """What is private, and the copy without it where something is redacted."""
    settings = inputs.settings.privacy
    redaction = inputs.source(inputs.folders["trajectories"], settings)
    redaction.find()
    reason = redaction.withheld(inputs.demonstration)
    files = redaction.write(out)
    write_rows(out / REDACTIONS_FILE, redaction.findings, REDACTIONS_SCHEMA)
    counts = Counter(f"{one['kind']} ({one['policy']})" for one in redaction.findings)
    state = {
        "withheld": reason,
        "policy": settings.policy,
        "kinds": settings.kinds,
        "pictures_read": redaction.pictures_read,
        "detectors": _versions(),
        "found": dict(sorted(counts.items())),
    }
    dump_json(out / STATE_FILE, state)
    return {
        "findings": len(redaction.findings),
        "by_kind": dict(sorted(counts.items())),
        "pictures_read": redaction.pictures_read,
        "redacted_files": files,
        "withheld": reason,
        "privacy": looked_for(settings),
    }


def _versions() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # of the extra
            continue
    return found


def _check_schema(_inputs: RecordingInputs, out: Path) -> list[Problem]:
    return schema_problems(out / REDACTIONS_FILE, REDACTIONS_SCHEMA)


def _check_state(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """The settings and programs are noted, and without a copy there is no other file."""
    problems: list[Problem] = []
    if not (out / "task.json").is_file():
        problems += differing_files(out, {}, {REDACTIONS_FILE, STATE_FILE})
    if problems or _check_schema(inputs, out):
        return problems
    try:
        state = load_json(out / STATE_FILE)
    except JsonFileError as error:
        return [Problem("not_noted", STATE_FILE, error.message, remedy="build it again")]
    settings = inputs.settings.privacy
    rows = read_findings(out)
    kinds = Counter(f"{row['kind']} ({row['policy']})" for row in rows)
    expected = {
        "policy": settings.policy,
        "kinds": settings.kinds,
        "detectors": _versions(),
        "found": dict(sorted(kinds.items())),
    }
    for name, value in expected.items():
        if state.get(name) != json.loads(json_bytes({name: value}))[name]:
            message = f"{name} is not that of this build"
            problems.append(Problem("not_noted", STATE_FILE, message, remedy="build it again"))
    return problems


def _check_copy(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """The copy is a valid trajectory in whose texts nothing is left that must not leave."""
    if not (out / "task.json").is_file():
        return []
    again = inputs.source(out, inputs.settings.privacy)
    again.find_in_texts()
    problems = errors(validate_trajectory(out, inputs.demonstration))
    return problems + [
        Problem("not_redacted", one["place"], f"{one['kind']} is left", remedy=_REPORT)
        for one in again.findings
        if one["policy"] in {"redact", "drop"} and one["detector"] != "secret_field"
    ]


_REPORT = "report it: name the kind and the detector, not the text"

REDACTIONS_STAGE: Stage[RecordingInputs] = Stage(
    name="redactions",
    folder="redactions",
    description="What is private in a trajectory: kinds and places, never the text; and, where the "
    "policy says so, the trajectory without it, which all later stages read.",
    kinds=frozenset({"parquet", "json"}),
    code_version="6",
    inputs=("trajectories",),
    section=lambda settings: settings.privacy,
    source=_known,
    build=_run_redactions,
    checks=(
        Check(
            "nothing_private_left",
            "The table has its declared columns; the redacted trajectory is valid, and no detector "
            "finds anything in its texts.",
            joined(_check_schema, _check_state, _check_copy),
            compared=("findings", "redacted_files"),
        ),
    ),
    columns=REDACTIONS_SCHEMA,
)


def read_findings(folder: Path) -> list[dict[str, Any]]:
    """The rows of redactions.parquet."""
    return read_rows(folder / REDACTIONS_FILE, REDACTIONS_SCHEMA)
