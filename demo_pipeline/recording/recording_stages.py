"""Declares the stages `raw_recordings` and `events`, and the inputs of all demonstration stages."""

from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording import events, manifest
from demo_pipeline.recording.input_log import EVENTS_SCHEMA
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.settings import RecordingSettings
from demo_pipeline.stage import Check, Inputs, Need, Stage, Summary, joined


@dataclass(frozen=True, kw_only=True)
class RecordingInputs(Inputs):
    """The inputs of every stage that processes a demonstration.

    Attributes:
        demonstration: id of the demonstration, which is the name of the uploaded folder.
        upload: folder with the uploaded files, or, for later stages of a downloaded recording, the
            output of `raw_recordings`.
        manifest: manifest of the recording; None in the stage `raw_recordings`, which writes it.
        downloaded: whether the uploaded files were downloaded from a bucket. If so, the stage
            `raw_recordings` copies them to its output.
    """

    demonstration: str
    upload: Path
    manifest: RecordingManifest | None
    downloaded: bool = False

    @property
    def recording(self) -> RecordingManifest:
        """The manifest of the recording, which exists in every stage after `raw_recordings`.

        Raises:
            ValueError: the stage is `raw_recordings`.
        """
        if self.manifest is None:
            raise ValueError("raw_recordings has no manifest yet")
        return self.manifest

    def file(self, name: str) -> Path:
        """Returns the path of an uploaded file after comparing it with the manifest."""
        return manifest.verified_file(self.upload, name, self.recording, kept=self.downloaded)


def _run_raw_recordings(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the manifest. If the recording was downloaded, also stores its files."""
    summary = manifest.build_manifest(inputs.upload, inputs.demonstration, out)
    if inputs.downloaded:
        manifest.keep_files(inputs.upload, out)
    return summary


def _verify_files(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Compares the manifest with the uploaded files, or with the stored files of a download."""
    folder = inputs.upload
    if inputs.downloaded:
        folder = out
    return manifest.check_manifest(out, folder, inputs.demonstration)


def _run_events(inputs: RecordingInputs, out: Path) -> Summary:
    """Parses the input log and writes the event tables.

    Raises:
        DemonstrationError: the log has no readable event, or its times are a day or more away from
            the time in meta.json.
    """
    log = inputs.file(LOG_FILE)
    recorded_at = inputs.recording.recorded_at
    video_s = inputs.recording.video.last_pts_s
    summary = events.build_events(log, out, recorded_at=recorded_at, video_s=video_s)
    problems = [
        *events.require_events(summary),
        *events.check_recording_time(out, recorded_at),
    ]
    if problems:
        raise DemonstrationError(problems)
    return summary


RAW_RECORDINGS_STAGE: Stage[RecordingInputs] = Stage(
    name="raw_recordings",
    folder="recordings",
    description="Checks the three uploaded files of a demonstration, and writes "
    "`recordings/<id>/manifest.json` with their SHA-256, the content of meta.json "
    "and the properties of the video.",
    kinds=frozenset({"json", "video"}),
    code_version="4",
    inputs=(),
    section=lambda _: RecordingSettings(),
    build=_run_raw_recordings,
    checks=(
        Check(
            "files_verified",
            "The manifest is valid, and the three uploaded files still have the SHA-256 "
            "in the manifest.",
            _verify_files,
            compared=("bytes",),
        ),
    ),
    needs=frozenset({Need.UPLOADS}),
)


def _check_tables(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks the files, then the tables, then the lines, and finally both row order and values.

    If one of these checks finds problems, the later checks are skipped.
    """
    log = inputs.upload / LOG_FILE
    return (
        differing_files(out, {}, events.EVENT_SCHEMAS)
        or events.check_event_tables(out)
        or events.check_line_accounting(out, log)
        or [*events.check_order(out), *events.check_event_values(out)]
    )


EVENTS_STAGE: Stage[RecordingInputs] = Stage(
    name="events",
    folder="events",
    description="The lines of input_log.jsonl as tables: a typed row for each readable line, "
    "the reason for each rejected line, the place and time of each accessibility "
    "scan, and each change of the recorder's clock.",
    kinds=frozenset({"parquet"}),
    code_version="11",
    inputs=("raw_recordings",),
    section=lambda _: RecordingSettings(),
    build=_run_events,
    checks=(
        Check(
            "events_schema",
            "The tables have exactly the declared columns, types and values. Every line "
            "of the log is either an event or a rejected line, and the rows are in the "
            "order of the log.",
            _check_tables,
            compared=("lines", "events", "rejected_lines"),
        ),
        Check(
            "no_rejected_lines",
            "No line was rejected. The times are in epoch milliseconds, so that no unit "
            "had to be converted, and the recorder's clock was not set during the "
            "recording.",
            joined(
                lambda _, out: events.rejected_lines(out),
                lambda _, out: events.check_clock_steps(out),
                lambda inputs, _: events.check_time_unit(inputs.upload / LOG_FILE),
            ),
            blocking=False,
            compared=("lines", "events"),
        ),
    ),
    columns=EVENTS_SCHEMA,
    needs=frozenset({Need.UPLOADS}),
)
