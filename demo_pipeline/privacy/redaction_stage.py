"""Finds the private data of a trajectory, and redacts it by the policy (stage `redactions`).

If something is removed, the output contains a redacted copy of the trajectory, which all later
stages read instead of the original.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
from demo_pipeline.privacy.redaction import PIPELINE_KEYS, Marks, Redaction
from demo_pipeline.privacy.screenshot_texts import ScreenshotBox
from demo_pipeline.problems import Problem, errors
from demo_pipeline.recording.manifest import read_manifest
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.stage import Check, SourceInput, Stage, Summary, joined
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version

REDACTIONS = "redactions"
_REVIEW_MARKS = "reviews"  # name of the fingerprint of the boxes that people marked
REDACTIONS_FILE = "redactions.parquet"
STATE_FILE = "redactions.json"
# Packages with detectors. The output contains their versions.
_PACKAGES = ("detect-secrets", "phonenumbers", "python-stdnum", "rapidocr")

REDACTIONS_SCHEMA = described_schema(
    (
        (
            "step",
            pa.int32(),
            True,
            "0-based number of the step; null for files of the whole demonstration",
        ),
        (
            "place",
            pa.string(),
            False,
            "file of the trajectory, followed by # and the node or key in the file, if any",
        ),
        (
            "kind",
            pa.string(),
            False,
            "kind of private data, such as password, email or card; see docs/guides/privacy.md",
        ),
        ("detector", pa.string(), False, "name of the detector that found it"),
        ("confidence", pa.float64(), False, "confidence of the detector, from 0 to 1"),
        ("policy", pa.string(), False, "policy for this kind of data: flag, redact or drop"),
        (
            "secret",
            pa.string(),
            False,
            "hash of the private text; equal texts of a demonstration have equal hashes",
        ),
        (
            "start",
            pa.int32(),
            True,
            "index of the first private character in the text; null in a screenshot",
        ),
        (
            "end",
            pa.int32(),
            True,
            "index after the last private character in the text; null in a screenshot",
        ),
        (
            "x",
            pa.int32(),
            True,
            "left edge of the private area in a screenshot, canvas pixels; null in a text",
        ),
        (
            "y",
            pa.int32(),
            True,
            "top edge of the private area in a screenshot, canvas pixels; null in a text",
        ),
        (
            "width",
            pa.int32(),
            True,
            "width of the private area in a screenshot, canvas pixels; null in a text",
        ),
        (
            "height",
            pa.int32(),
            True,
            "height of the private area in a screenshot, canvas pixels; null in a text",
        ),
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
    """Whether an output of the stage contains a redacted copy of the trajectory."""
    return bool(version.manifest.summary["redacted_files"])


def privacy_summary(redactions: Path, settings: PrivacySettings) -> dict[str, Any]:
    """Returns the facts about privacy for the summary of a demonstration's records.

    Args:
        redactions: folder with the output of this stage.

    Returns:
        - `withheld`: why the demonstration must not be exported; empty if it may be exported.
        - `privacy`: the hash of the privacy settings.
        - `found`: number of findings for each kind and policy.
        - `detectors`: version of each package with detectors.
    """
    state = load_json(redactions / STATE_FILE)
    return {
        "withheld": state["withheld"],
        "privacy": hash_of_settings(settings),
        "found": state["found"],
        "detectors": state["detectors"],
    }


def is_shown_redacted(store: Store, demonstration: str) -> bool:
    """Whether the demonstration has a redacted copy. If so, its video must not be shown."""
    version = store.current(f"{REDACTIONS}/{demonstration}")
    return version is not None and is_redacted(version)


def privacy_sentence(settings: PrivacySettings, summaries: Sequence[Mapping[str, Any]]) -> str:
    """Describes the policy, the detectors and the numbers of findings for a dataset card.

    Returns an empty text if the policy is the default and nothing was found.

    Args:
        summaries: a result of `privacy_summary` for each demonstration.
    """
    places_found = Counter[str]()
    versions = dict[str, str]()
    for summary in summaries:
        places_found.update(summary.get("found", {}))
        versions |= summary.get("detectors", {})
    if not places_found and (settings.policy, settings.kinds) == ("flag", {}):
        return ""
    policies = [settings.policy, *(f"{kind}: {p}" for kind, p in sorted(settings.kinds.items()))]
    counts = [f"{kind} {count}" for kind, count in sorted(places_found.items())]
    detectors = [f"{name} {number}" for name, number in sorted(versions.items())]
    return (
        f"Private data: policy {', '.join(policies)}; detectors {', '.join(detectors)}; "
        f"places found: {', '.join(counts) or 'none'}. Redacted texts are replaced by placeholders "
        "such as `<email>`, and covered in screenshots; flagged texts are still in the data."
    )


def hash_of_settings(settings: PrivacySettings) -> str:
    """Returns a hash of the privacy settings."""
    return hashlib.sha256(json_bytes(settings)).hexdigest()[:16]


def open_shown(
    store: Store, demonstration: str, settings: PrivacySettings | None = None
) -> tuple[Path, Version]:
    """Opens the redacted copy of a trajectory, or the trajectory if it has no redacted copy.

    Args:
        settings: if these settings remove private data, the trajectory must have been searched with
            the same settings. None allows any settings.

    Returns:
        The folder that may be shown, and the version of the original trajectory.

    Raises:
        StorageError: the trajectory is missing, was not searched with these settings, or must not
            be exported.
    """
    output = f"{REDACTIONS}/{demonstration}"
    folder, version = store.open(f"trajectories/{demonstration}")
    redactions = store.current(output)
    if settings is not None and settings.reads_pictures:
        summary = redactions.manifest.summary if redactions else {}
        if summary.get("privacy") != hash_of_settings(settings) or summary["withheld"]:
            raise MissingOutput(output)
    if is_shown_redacted(store, demonstration):
        folder = store.open(f"{REDACTIONS}/{demonstration}")[0]
    return folder, version


class _RecordingSecrets(NamedTuple):
    """The facts about a recording that a search for private data needs (see `Redaction`)."""

    passwords: frozenset[str]  # typed into password fields
    country: str  # ISO 3166 code, assumed for telephone numbers without a country code
    key: bytes  # key of the HMAC hashes in the findings


_OpenRedaction = Callable[[Path, PrivacySettings], Redaction]
"""Prepares the search for private data, given the folder of a trajectory and the settings."""


def _review_source(
    workspace: Any, demonstration: str, versions: Mapping[str, Version]
) -> SourceInput:
    """Returns an input of the stage: a function that prepares the search for private data.

    The fingerprint of the input covers the boxes that people marked.
    """
    boxes_by_step = workspace.reviews.private_boxes(demonstration, versions["trajectories"])
    marks = Marks()
    for step, boxes in boxes_by_step.items():
        once_private = {box for box, is_private in boxes if is_private}
        added = list[ScreenshotBox]()
        kept = list[ScreenshotBox]()
        # `dict` keeps the last decision about each box. If a private mark was withdrawn, the box is
        # neither in `added` nor in `kept`, so detectors may still cover it.
        for box, is_private in dict(boxes).items():
            if is_private:
                added.append(box)
            elif box not in once_private:
                kept.append(box)
        marks.added[step] = added
        marks.kept[step] = kept
    fingerprint = dict[str, str]()
    if boxes_by_step:
        fingerprint[_REVIEW_MARKS] = hashlib.sha256(repr(marks).encode()).hexdigest()
    opener = _opener(workspace.store, demonstration, versions["trajectories"], marks)
    return SourceInput(opener, fingerprint)


def _opener(store: Store, demonstration: str, trajectory: Version, marks: Marks) -> _OpenRedaction:
    """Returns a function that prepares the search of a folder for private data.

    The function reads the recording only when it is called, because many such functions are created
    just to check whether outputs are up to date.
    """

    @cache
    def secrets() -> _RecordingSecrets:
        if "actions" not in trajectory.manifest.recipe.inputs:
            return _RecordingSecrets(frozenset(), "US", trajectory.content.encode())
        recording = read_manifest(store.open(f"recordings/{demonstration}", "manifest.json")[0])
        rows = read_tree_rows(store.open(f"ui_trees/{demonstration}", UI_TREES_FILE)[0])
        actions = read_actions(store.open(f"actions/{demonstration}")[0])
        country = recording.parsed_meta().locale.replace("_", "-").rpartition("-")[2].upper()
        if len(country) != 2:
            country = "US"
        key = bytes.fromhex(recording.file(LOG_FILE).sha256)
        return _RecordingSecrets(hide_passwords(actions, rows)[1], country, key)

    def open_redaction(folder: Path, settings: PrivacySettings) -> Redaction:
        passwords, country, key = secrets()
        return Redaction(folder, Detectors(settings, country), key, passwords, marks)

    return open_redaction


Statement = TypeVar("Statement", bound=BaseModel)


def cleaner(
    store: Store, settings: PrivacySettings, demonstration: str
) -> Callable[[Statement], Statement]:
    """Returns a function that redacts decisions and annotations about a demonstration.

    Raises:
        StorageError: the demonstration has no trajectory.
    """
    folder, version = store.open(f"trajectories/{demonstration}")
    redaction = _opener(store, demonstration, version, Marks())(folder, settings)
    redaction.learn()

    def clean(statement: Statement) -> Statement:
        document = statement.model_dump(mode="json")
        return statement.model_validate(
            mapped_texts(document, redaction.texts.clean, PIPELINE_KEYS)
        )

    return clean


def _run_redactions(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the findings and, if something is redacted, the redacted copy."""
    settings = inputs.settings.privacy
    redaction = inputs.source(inputs.folders["trajectories"], settings)
    redaction.find()
    reason = redaction.withheld(inputs.demonstration)
    files = redaction.write(out)
    write_rows(out / REDACTIONS_FILE, redaction.findings, REDACTIONS_SCHEMA)
    counts = _counts_by_kind(redaction.findings)
    state = {
        "withheld": reason,
        "policy": settings.policy,
        "kinds": settings.kinds,
        "pictures_read": redaction.pictures_read,
        "detectors": _detector_versions(),
        "found": counts,
    }
    dump_json(out / STATE_FILE, state)
    return {
        "findings": len(redaction.findings),
        "by_kind": counts,
        "pictures_read": redaction.pictures_read,
        "redacted_files": files,
        "withheld": reason,
        "privacy": hash_of_settings(settings),
    }


def _counts_by_kind(findings: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    """Counts findings by kind and policy. Keys look like `email (redact)` and are sorted."""
    counts = Counter[str]()
    for finding in findings:
        counts[f"{finding['kind']} ({finding['policy']})"] += 1
    return dict(sorted(counts.items()))


def _detector_versions() -> Mapping[str, str]:
    """Maps the name of each installed package with detectors to its version."""
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # the extra `privacy` is not installed
            continue
    return versions


def _check_schema(_inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks the columns and values of redactions.parquet."""
    return schema_problems(out / REDACTIONS_FILE, REDACTIONS_SCHEMA)


def _check_state(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks that redactions.json has the values of this build.

    If the output has no redacted copy, also checks that no unexpected files exist.
    """
    problems: list[Problem] = []
    if not _has_copy(out):
        problems += differing_files(out, {}, {REDACTIONS_FILE, STATE_FILE})
    if problems or _check_schema(inputs, out):
        return problems
    try:
        state = load_json(out / STATE_FILE)
    except JsonFileError as error:
        return [Problem("not_noted", STATE_FILE, error.message, remedy="build it again")]
    settings = inputs.settings.privacy
    expected = {
        "policy": settings.policy,
        "kinds": settings.kinds,
        "detectors": _detector_versions(),
        "found": _counts_by_kind(read_findings(out)),
    }
    for name, value in expected.items():
        if state.get(name) != json.loads(json_bytes({name: value}))[name]:
            message = f"{name} is not the value of this build"
            problems.append(Problem("not_noted", STATE_FILE, message, remedy="build it again"))
    return problems


def _check_copy(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks that the redacted copy is a valid trajectory, and that its texts have no secrets."""
    if not _has_copy(out):
        return []
    problems = errors(validate_trajectory(out, inputs.demonstration))
    redaction = inputs.source(out, inputs.settings.privacy)
    redaction.find_in_texts()
    for finding in redaction.findings:
        is_removed = finding["policy"] in {"redact", "drop"}
        # The detector `secret_field` reports only the placeholder `<password>`.
        if is_removed and finding["detector"] != "secret_field":
            message = f"a text of the kind {finding['kind']} was not removed"
            problems.append(Problem("not_redacted", finding["place"], message, remedy=_REPORT))
    return problems


def _has_copy(out: Path) -> bool:
    return (out / "task.json").is_file()


_REPORT = "report this error to the developers; name the kind, never the text"

REDACTIONS_STAGE: Stage[RecordingInputs] = Stage(
    name="redactions",
    folder="redactions",
    description="The kinds and places of private data in a trajectory, without the private "
    "text. If the policy redacts a kind, the output also contains the redacted "
    "trajectory, which all later stages read.",
    kinds=frozenset({"parquet", "json"}),
    code_version="7",
    inputs=("trajectories",),
    section=lambda settings: settings.privacy,
    source=_review_source,
    build=_run_redactions,
    checks=(
        Check(
            "nothing_private_left",
            "The table has the declared columns. The redacted trajectory is valid, and no "
            "detector finds anything in its texts.",
            joined(_check_schema, _check_state, _check_copy),
            compared=("findings", "redacted_files"),
        ),
    ),
    columns=REDACTIONS_SCHEMA,
)


def read_findings(folder: Path) -> list[dict[str, Any]]:
    """Reads the rows of redactions.parquet."""
    return read_rows(folder / REDACTIONS_FILE, REDACTIONS_SCHEMA)
