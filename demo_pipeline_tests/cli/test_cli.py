"""The commands of the console script, with real roots and a real Dagster home."""

import hashlib
import inspect
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo_pipeline.cli.app import app, main
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.run_locks import lock_folder
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.datasets.builders import snapshot
from demo_pipeline_tests.sample_workspace import open_workspace, variables_of
from demo_pipeline_tests.task_folders import put_tasks, task
from demo_pipeline_tests.uploads import TYPED, lose_video, spoil_log, upload

COMMANDS = sorted(
    command.name or (command.callback.__name__ if command.callback else "")
    for command in app.registered_commands
)
_LOADED = """
import sys
from demo_pipeline.cli.app import main
for words in sys.argv[1].splitlines():
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit as ended:
        loaded = {name.partition(".")[0] for name in sys.modules}
        print(words, ended.code or 0, *sorted(loaded & {"dagster"}), file=sys.stderr)
"""
_LIGHT = (
    "--version",
    "--help",
    "stats",
    "stats --views",
    "quarantine",
    "inspect one",
    "validate uploads/one",
    "validate store/sft",
    "revalidate",
    "prune",
    "export copies",
    "run",
    "run one --retry",
    "run --dry-run --force",
    "diff sft sft",
)
DRY_COMMANDS = {
    str(command.name)
    for command in app.registered_commands
    if command.callback and "dry_run" in inspect.signature(command.callback).parameters
}
# Command with `--dry-run` → part of its output, which shows that there was something to do.
DRY_RUNS = {
    "run --dry-run": "three: raw_recordings, events",
    "run --dry-run --force --retry --verify --record": "to build: 4 demonstrations",
    "forget one two --dry-run": "nothing was removed: 2 demonstrations listed",
    "forget --field platform=windows --dry-run": "nothing was removed: ",
    "annotate --provider rule --dry-run": "would be written, 0 known before",
    "annotate --provider import --file ROOT/lines.jsonl --dry-run": "1 would be written, 0 known",
    "annotate --provider openai --endpoint http://127.0.0.1:9/v1 --model m --dry-run": "requests",
}


def places_and_contents(root: Path) -> dict[str, tuple[str, int]]:
    """Returns path → SHA-256 and modification time of all files, folders and links."""
    places = {}
    for path in sorted(root.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        digest = hashlib.sha256(data).hexdigest()
        places[path.relative_to(root).as_posix()] = (digest, path.lstat().st_mtime_ns)
    return places


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Place:
    """A folder with uploads, a store and a Dagster home."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return variables_of(self.root) | {"COLUMNS": "160"}

    @property
    def workspace(self) -> Workspace:
        return open_workspace(self.root)

    def start(self, *arguments: str) -> Answer:
        """Runs the command in a process of its own, so that it can start workers."""
        done = subprocess.run(
            [sys.executable, "-m", "demo_pipeline.cli.app", *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Ran:
    """The outputs of two runs with two valid demonstrations and an invalid one."""

    place: Place
    first: Answer
    second: Answer
    files: tuple[dict[str, bytes], dict[str, bytes]]


Command = Callable[..., Answer]


def make_place(root: Path) -> Place:
    for name in ("uploads", "home"):
        (root / name).mkdir(parents=True)
    (root / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return Place(root)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> Ran:
    place = make_place(tmp_path_factory.mktemp("ran"))
    for name in ("bad", "one", "two"):
        upload(recording, place.root / "uploads", name)
    spoil_log(place.root / "uploads" / "bad")
    first = place.start("run", "--workers", "2")
    before = snapshot(place.root / "store")
    second = place.start("run", "--strict")
    return Ran(place, first, second, (before, snapshot(place.root / "store")))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path / "place")


@pytest.fixture
def copied(ran: Ran, tmp_path: Path) -> Place:
    shutil.copytree(ran.place.root, tmp_path / "copied", symlinks=True)
    return Place(tmp_path / "copied")


@pytest.fixture
def quiet(copied: Place) -> Place:
    (copied.root / "home" / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    return copied


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Returns a function that runs a command in this process, with the folders of a `Place`."""

    def call(place: Place, *arguments: str, **settings: str) -> Answer:
        for name, value in (place.environment | settings).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["demo-pipeline", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Answer(int(ended.value.code or 0), captured.out, captured.err)

    return call


class TestHelp:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_explains_itself(self, place, command, name):
        answer = command(place, name, "--help")
        assert answer.code == 0
        assert f"demo-pipeline {name}" in answer.out
        assert len(answer.out.split()) > 12

    def test_the_help_names_every_command_and_the_two_roots(self, place, command):
        help_text = command(place, "--help").out
        assert len(COMMANDS) >= 7
        assert [name for name in COMMANDS if name not in help_text] == []
        assert "DEMO_PIPELINE_UPLOADS" in help_text
        assert "DEMO_PIPELINE_STORE" in help_text


class TestImport:
    def test_import_of_an_upload_says_that_it_must_be_copied(
        self, place, command, recording, tmp_path
    ):
        upload(recording, tmp_path, "mine")
        answer = command(place, "import", str(tmp_path / "mine"))
        assert answer.code == 1
        assert "this is an upload already: copy it to the inbox: cp -R" in answer.err
        assert f"cp -R {tmp_path / 'mine'} {place.root / 'uploads'}/" in answer.err
        upload(recording, tmp_path, "another")
        answer = command(place, "import", str(tmp_path))
        assert "these 2 recordings are uploads already" in answer.err
        assert list((place.root / "uploads").iterdir()) == []


class TestWithoutDagster:
    """These commands do not import Dagster, because the import would take longer than the rest."""

    def test_dagster_is_not_imported(self, copied):
        assert copied.start("register").code == 0
        done = subprocess.run(
            [sys.executable, "-c", _LOADED, "\n".join(_LIGHT)],
            cwd=copied.root,
            env={**os.environ, **copied.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr.splitlines()[-len(_LIGHT) :] == [f"{words} 0" for words in _LIGHT]

    def test_a_run_that_a_dead_process_left_open_is_closed(self, copied, command):
        with closing(sqlite3.connect(copied.root / "home/history/runs.db")) as database, database:
            [run_id] = database.execute(
                "UPDATE runs SET status = 'STARTED',"
                " run_body = replace(run_body, '\"SUCCESS\"', '\"STARTED\"')"
                " WHERE run_id = (SELECT max(run_id) FROM runs"
                " WHERE pipeline_name = 'build_datasets') RETURNING run_id"
            ).fetchone()
        locks = lock_folder(copied.root / "home")
        locks.mkdir(parents=True, exist_ok=True)
        (locks / f"{run_id}.run").touch()  # a lock file that no process holds, as after a kill
        answer = command(copied, "run")
        assert "0 done, 0 quarantined, 2 up to date" in answer.out, answer.err
        with closing(sqlite3.connect(copied.root / "home/history/runs.db")) as database:
            statuses = {row[0] for row in database.execute("SELECT status FROM runs")}
        assert "STARTED" not in statuses

    def test_a_missing_dataset_is_built_again(self, copied, command):
        copied.workspace.store.remove("messages")
        assert command(copied, "run").code == 0
        assert copied.workspace.store.current("messages") is not None

    def test_a_new_upload_is_registered(self, copied, command, recording):
        upload(recording, copied.root / "uploads", "three")
        assert "registered three\n" in command(copied, "register").out
        assert "4 demonstrations in" in command(copied, "register").out


class TestRegister:
    def test_a_missing_dagster_home_is_reported(self, place, command):
        shutil.rmtree(place.root / "home")
        answer = command(place, "register")
        assert answer.code == 2
        assert "no such directory" in answer.err


class TestRun:
    def test_valid_demonstrations_are_processed_next_to_an_invalid_one(self, ran):
        assert ran.first.code == 0, ran.first.err
        assert "2 done, 1 quarantined, 0 up to date" in ran.first.out
        store = ran.place.workspace.store
        assert store.outputs("trajectories") == ["trajectories/one", "trajectories/two"]
        assert store.outputs("dataset") == ["dataset"]
        assert store.outputs("osworld") == ["osworld/quests", "osworld/tasks"]

    def test_the_invalid_demonstration_is_reported_with_file_line_and_remedy(self, ran):
        [line] = [line for line in ran.first.err.splitlines() if line.startswith("bad ")]
        assert line.startswith("bad events: input_log.jsonl:1: ")
        assert line.endswith("(upload the log again)")

    def test_the_tables_show_the_datasets_and_their_paths(self, ran):
        for word in ("one", "two", "quarantined", "notes", "trajectory_index", "2 trajectories"):
            assert word in ran.first.out

    def test_a_second_run_does_nothing_and_strict_fails_for_the_quarantined(self, ran):
        assert "0 done, 0 quarantined, 2 up to date" in ran.second.out
        assert "1 more still quarantined" in ran.second.out
        assert ran.second.code == 1
        assert ran.files[0] == ran.files[1]
        assert "Traceback" not in ran.first.err + ran.second.err

    def test_an_added_task_file_the_recorded_outcome_and_what_is_left_out_are_shown(
        self, quiet, command
    ):
        put_tasks(quiet.root / "tasks", {"os": [task("t-1", "PLEASE do what one says")]})
        meta = quiet.root / "uploads/two/meta.json"
        meta.write_text(meta.read_text().replace('"completed"', '""').replace('"done"', "null"))
        with (quiet.root / "uploads/two/recording.mp4").open("ab") as video:
            video.write(b"\x00\x00\x00\x08free")
        with (quiet.root / "uploads/two/input_log.jsonl").open("ab") as log:
            log.write(b"\n")  # otherwise `two` would be a duplicate of `one`
        first = command(quiet, "run")
        second = command(quiet, "run")
        linked = (quiet.root / "store" / "trajectories" / "one" / "task.json").read_bytes()
        assert json.loads(linked)["osworld_task_id"] == "t-1"
        table, _, _ = first.out.partition("Datasets")
        rows = {tuple(line.split()[:3]) for line in table.splitlines() if " done " in line}
        assert rows == {("one", "done", "done"), ("two", "done", "unknown")}
        assert "two: the outcome is unknown, because meta.json has no `status` and no" in first.out
        for answer in (first, second):
            left_out = [line for line in answer.out.splitlines() if line.startswith("left out of")]
            exports, everything = sorted(left_out, key=lambda line: "trajectory_index" in line)
            assert exports.startswith("left out of sft_samples, messages_dataset, cudag_dataset: ")
            assert "1 demonstration of unknown outcome (judge it with `demo-pipeline" in exports
            assert "1 demonstration of a benchmark task" in exports
            assert everything.endswith("trajectory_index: 1 quarantined demonstration")

    def test_retry_runs_the_quarantined_demonstration_again(self, quiet, command):
        again = command(quiet, "run", "--retry")
        assert "0 done, 1 quarantined, 2 up to date" in again.out
        assert "still quarantined" not in again.out

    def test_the_tags_that_people_see_of_the_runs_are_few_and_short(self, ran):
        with closing(sqlite3.connect(ran.place.root / "home/history/runs.db")) as runs:
            seen = runs.execute("SELECT key, value FROM run_tags WHERE key NOT LIKE '.dagster/%'")
            ours = {(key, value) for key, value in seen if not key.startswith("dagster/")}
            listed = runs.execute(
                "SELECT count(*) FROM run_tags WHERE key = ? AND value = ?",
                (".dagster/repository", "__repository__@demo_pipeline"),
            ).fetchone()
            assert listed == runs.execute("SELECT count(*) FROM runs").fetchone()
        assert ours == {("user", "demo-pipeline")}

    def test_an_unknown_id_is_a_usage_error(self, place, command):
        answer = command(place, "run", "nobody")
        assert answer.code == 2
        assert "no recording nobody in" in answer.err

    def test_a_folder_whose_name_cannot_be_an_id_is_reported(self, place, command, recording):
        upload(recording, place.root / "uploads", "two words")
        for words in (("run",), ("register",), ("quarantine",)):
            answer = command(place, *words)
            assert answer.code == 0
            assert "refused: two words in" in answer.err
            assert "a folder's name is the demonstration id" in answer.err
        assert command(place, "run", "--strict").code == 1

    def test_archives_and_loose_files_in_the_inbox_are_named_with_a_remedy(self, place, command):
        for name in ("week.zip", "screen.mp4", "meta.json", "notes.txt", ".hidden.mp4"):
            (place.root / "uploads" / name).touch()
        for words in (("run",), ("register",), ("quarantine",)):
            answer = command(place, *words)
            assert answer.code == 0
            assert "ignored: week.zip in" in answer.err
            assert "archives are not read; unpack each" in answer.err
            assert "ignored: meta.json, screen.mp4 in" in answer.err
            assert "a recording is a folder with input_log.jsonl, meta.json" in answer.err
            assert "notes.txt" not in answer.err
            assert "hidden" not in answer.err
        assert command(place, "run", "--strict").code == 0

    def test_without_any_upload_there_is_nothing_to_do(self, place, command):
        answer = command(place, "run")
        assert answer.code == 0
        inbox = place.root / "uploads"
        assert f"no recording in {inbox}: copy a folder with input_log.jsonl" in answer.out
        assert "no trajectory is committed yet" in answer.out
        assert "0 done, 0 quarantined, 0 up to date" in answer.out
        assert "no recording in" in command(place, "run").out  # decided without importing Dagster


class TestDryRun:
    def test_a_dry_run_lists_the_outputs_to_build_with_their_reasons(self, copied, command):
        nothing = command(copied, "run", "--dry-run")
        assert "to build: 0 demonstrations, 0 datasets; 1 stay quarantined, 2 are" in nothing.out
        shutil.copytree(copied.root / "uploads" / "two", copied.root / "uploads" / "three")
        before = snapshot(copied.root / "store")
        sign = {"DEMO_PIPELINE_ACTIONS__WHEEL_SIGN": "positive_up"}
        answer = command(copied, "run", "--dry-run", **sign)
        changed = 'one, two: actions (setting actions.wheel_sign: "auto" → "positive_up"); scr'
        assert changed in answer.out
        assert "three: raw_recordings, events, actions, screenshots, ui_trees, tra" in answer.out
        assert "datasets: sft_samples, " in answer.out
        assert snapshot(copied.root / "store") == before

    def test_every_command_with_dry_run_is_tested_here(self):
        assert {words.split()[0] for words in DRY_RUNS} == DRY_COMMANDS

    @pytest.mark.parametrize("words", DRY_RUNS)
    def test_a_dry_run_writes_nothing(self, copied, command, words):
        """Store, uploads, Dagster's home and cache are unchanged, with any options."""
        line = {"demonstration": "one", "step": 0, "kind": "thought", "value": "Go."}
        line |= {"source": "human", "author": "ann"}
        (copied.root / "lines.jsonl").write_text(json.dumps(line))
        shutil.copytree(copied.root / "uploads" / "two", copied.root / "uploads" / "three")
        before = places_and_contents(copied.root)
        answer = command(copied, *words.replace("ROOT", str(copied.root)).split())
        assert answer.code == 0, answer.err
        assert DRY_RUNS[words] in answer.out
        assert places_and_contents(copied.root) == before


class TestInspect:
    def test_inspect_shows_actions_and_accounting_without_typed_text(self, ran, command):
        answer = command(ran.place, "inspect", "one")
        assert answer.code == 0
        assert "Event accounting:" in answer.out
        assert f"type({len(TYPED)} chars)" in answer.out
        assert TYPED not in answer.out

    def test_inspect_shows_each_step_with_its_screenshot_and_its_datasets(self, ran, command):
        lines = command(ran.place, "inspect", "one").out.splitlines()
        [head] = [line for line in lines if line.startswith("Steps: ")]
        number, folder = head.removeprefix("Steps: ").split(", in ")
        start = lines.index(head) + 2
        steps = [line.split(maxsplit=5) for line in lines[start : start + int(number)]]
        assert [int(step) for step, *_ in steps] == list(range(int(number)))
        assert all(Path(folder, picture).is_file() for _, _, picture, *_ in steps)
        assert {leak for _, _, _, leak, *_ in steps} <= {"no", "leak", "unavoidable"}
        assert any(re.fullmatch(r"  sft +\d+ records in \w+", line) for line in lines)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("bad", "bad is quarantined in events:\n  bad: input_log.jsonl"),
            ("nobody", "no recording nobody in "),
            ("ones", "the nearest id is one; copy its folder there, then `demo-pipeline run ones`"),
        ],
    )
    def test_inspect_says_why_a_demonstration_is_missing(self, ran, command, name, message):
        answer = command(ran.place, "inspect", name)
        assert answer.code == 2
        assert message in answer.out + answer.err


class TestVerbose:
    def test_the_log_of_workers_and_datasets_goes_to_standard_error(self, quiet):
        answer = quiet.start("-vv", "run", "one", "--force", "--workers", "2")
        assert answer.code == 0
        for line in (
            r"INFO +\d+ demo_pipeline\.runs: screenshots: screenshots/one made in \d+\.\d s: ",
            r"DEBUG +\d+ demo_pipeline\.actions: action 0: click",
            r"INFO +\d+ demo_pipeline\.runs: sft_samples: sft made in ",
        ):
            assert re.search(line, answer.err), line
        assert TYPED not in answer.err
        assert "made in" not in answer.out

    def test_without_verbose_nothing_is_logged_and_once_logs_no_decisions(self, ran):
        assert "demo_pipeline." not in ran.first.err
        answer = ran.place.start("--verbose", "run", "one", "two")
        assert "INFO" in answer.err
        assert "DEBUG" not in answer.err


class TestPrivacy:
    def test_typed_text_is_in_the_training_data(self, ran):
        assert any(TYPED.encode() in data for data in ran.files[0].values())

    def test_console_quarantine_and_manifests_contain_no_typed_text(self, ran, command):
        outputs = [ran.first.out, ran.first.err, ran.second.out, ran.second.err]
        bad = ran.place.root / "uploads" / "bad"
        for arguments in (("quarantine",), ("validate", str(bad)), ("revalidate",)):
            answer = command(ran.place, *arguments)
            outputs += [answer.out, answer.err]
        outputs += [
            record.model_dump_json() for record in list_quarantine(ran.place.workspace.store)
        ]
        outputs += [
            data.decode() for name, data in ran.files[0].items() if name.endswith("manifest.json")
        ]
        assert [text for text in outputs if TYPED in text] == []


class TestQuarantine:
    def test_the_quarantine_lists_demonstrations_with_location_and_remedy(self, ran, command):
        answer = command(ran.place, "quarantine")
        assert answer.code == 0
        line, closing = answer.out.splitlines()
        assert line.startswith("bad events input_log.jsonl:1: ")
        assert "upload the log again" in line
        assert closing == "1 quarantined"

    def test_the_quarantine_lists_uploads_that_lack_a_file(self, ran, copied, command):
        """The daemon waits for the file, so that there is neither a run nor a quarantine record."""
        shutil.copytree(ran.place.root / "uploads/one", copied.root / "uploads/three")
        (copied.root / "uploads/three/recording.mp4").unlink()
        lines = command(copied, "quarantine").out.splitlines()
        assert lines[1:] == [
            "1 quarantined",
            "three incomplete: recording.mp4 is missing",
            "1 incomplete: the daemon processes each when it has its files",
        ]


class TestExport:
    def test_export_writes_plain_files_that_are_valid(self, ran, command, tmp_path):
        dest = tmp_path / "out"
        answer = command(ran.place, "export", str(dest))
        assert answer.code == 0
        assert f"{dest}/dataset\n" in answer.out
        assert [path for path in dest.rglob("*") if path.is_symlink()] == []
        for name in ("dataset", "sft", f"datasets/{next((dest / 'datasets').iterdir()).name}"):
            assert command(ran.place, "validate", str(dest / name)).code == 0

    def test_a_folder_that_is_not_empty_is_refused(self, ran, command, tmp_path):
        (tmp_path / "mine").touch()
        answer = command(ran.place, "export", str(tmp_path))
        assert answer.code == 2
        assert "is not empty" in answer.err

    def test_the_layout_for_the_hub_needs_a_license_and_says_how_to_share_it(
        self, ran, command, tmp_path
    ):
        dest = tmp_path / "out"
        refused = command(ran.place, "export", "--hub-layout", str(dest))
        assert refused.code == 2
        assert "DEMO_PIPELINE_DATASETS__LICENSE" in refused.err
        assert "DEMO_PIPELINE_HUB__LANGUAGE" in refused.err
        assert not dest.exists()
        named = {"DEMO_PIPELINE_HUB__LANGUAGE": '["en"]'}
        license_ = {"DEMO_PIPELINE_DATASETS__LICENSE": "cc-by-4.0"}
        answer = command(ran.place, "export", "--hub-layout", str(dest), **named, **license_)
        assert answer.code == 0
        assert f"hf upload NAME {dest} --repo-type dataset" in answer.out
        assert {path.name for path in dest.iterdir()} == {"README.md", "data"}
        assert {path.name for path in (dest / "data").iterdir()} == {"sft", "messages"}

    def test_an_export_without_outputs_is_reported(self, place, command, tmp_path):
        answer = command(place, "export", str(tmp_path / "out"))
        assert answer.code == 2
        assert "trajectory_index" in answer.err


class TestKeepingTheStore:
    def test_one_changed_byte_is_reported(self, copied, command):
        file = copied.root / "store" / "trajectories" / "one" / "steps" / "000" / "screenshot.png"
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        answer = command(copied, "revalidate")
        assert answer.code == 1
        assert "trajectories/one/steps/000/screenshot.png" in answer.out
        assert "`demo-pipeline run --verify` builds it again" in answer.out

    def test_old_versions_are_deleted_and_current_ones_kept(self, copied, command):
        copied.workspace.store.remove("sft")
        kept = command(copied, "prune")
        assert kept.out == "0 old versions removed\n"
        pruned = command(copied, "prune", "--grace-hours", "0")
        assert (pruned.code, pruned.out) == (0, "1 old versions removed\n")
        assert command(copied, "revalidate").code == 0


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


BROKEN: dict[str, Callable[[Path], None]] = {
    "recording": lose_video,
    "trajectory": lambda path: cut(path / "result.json"),
    "dataset": lambda path: cut(path / "index.json"),
    "cudag": lambda path: cut(path / "data.jsonl"),
    "sft": lambda path: cut(path / "samples.jsonl"),
    "osworld": cut,
}


class TestValidate:
    @pytest.fixture
    def good(self, ran: Ran, tmp_path: Path) -> dict[str, Path]:
        """Returns format → copy of a valid file or folder in this format."""
        store = ran.place.root / "store"
        [cudag] = (store / "datasets").iterdir()
        sources = {
            "recording": ran.place.root / "uploads" / "one",
            "trajectory": store / "trajectories" / "one",
            "dataset": store / "dataset",
            "cudag": cudag,
            "sft": store / "sft",
        }
        copies = {kind: tmp_path / kind / path.name for kind, path in sources.items()}
        for kind, path in sources.items():
            shutil.copytree(path, copies[kind])
        copies["osworld"] = tmp_path / "a_task.json"
        copies["osworld"].write_text(json.dumps(task("a_task")), encoding="utf-8")
        return copies

    @pytest.mark.parametrize("kind", sorted(BROKEN))
    def test_the_exit_code_is_0_for_valid_and_1_for_invalid_paths(self, place, command, good, kind):
        path = good[kind]
        answer = command(place, "validate", str(path), "--json")
        report = json.loads(answer.out)
        assert (answer.code, report["kind"], report["valid"]) == (0, kind, True)
        BROKEN[kind](path)
        answer = command(place, "validate", str(path))
        assert answer.code == 1
        assert answer.out.startswith("error: ")
        assert f"{kind} invalid: " in answer.out
        answer = command(place, "validate", str(path), "--json")
        report = json.loads(answer.out)
        assert (answer.code, report["valid"]) == (1, False)
        assert {"code", "file", "line", "message", "remedy"} <= report["problems"][0].keys()

    def test_the_exit_code_is_2_for_paths_that_cannot_be_checked(self, place, command, tmp_path):
        missing = command(place, "validate", str(tmp_path / "nothing"))
        assert (missing.code, missing.out) == (2, "")
        assert "does not exist" in missing.err
        (tmp_path / "[notes]").mkdir()
        unknown = command(place, "validate", str(tmp_path / "[notes]"))
        assert unknown.code == 2
        assert "[notes]: not recognised as sft," in unknown.err
        assert command(place, "validate").code == 2
        assert command(place, "validate", str(tmp_path), "--kind", "song").code == 2

    def test_verbose_prints_every_problem_with_its_code_and_byte(self, place, command, good):
        log = good["recording"] / "input_log.jsonl"
        data = log.read_bytes()
        log.write_bytes(data + b"{oops\n" * 23)
        short = command(place, "validate", str(good["recording"]))
        assert sum(line.startswith("error: ") for line in short.out.splitlines()) == 20
        assert "invalid_json: 3 more; -v shows them" in short.out
        assert "recording invalid: 23 errors" in short.out
        long = command(place, "validate", str(good["recording"]), "-v")
        assert sum(line.startswith("error: ") for line in long.out.splitlines()) == 23
        assert f"[invalid_json, byte {len(data)}]" in long.out
        assert "invalid_json: 23" in long.out


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("DATASETS__TRAIN_RATIO", "0.95", "add up to at most 1"),
            ("DISCOVERY", '{"wide":', "is not valid JSON; for example DEMO_PIPELINE_DISCOVERY__ST"),
            ("DATASETS__EXPORTS", "sft", '; for example DEMO_PIPELINE_DATASETS__EXPORTS=\'["sft"'),
            ("DATASETS__SFT_KEYS", "s3://key:secret@bucket/x", "_KEYS: Input should be 'ext"),
            ("STORE", "s3://key:secret@bucket/store", "remove them, and set AWS_ACCESS_KEY_ID"),
            ("UPLOADS", "gs://key:secret@bucket/in", "give a path"),
            ("OSWORLD_TASKS", "s3://key:secret@bucket/tasks", "give a path"),
            ("EXECUTION_WORKERS", "secret", "DEMO_PIPELINE_EXECUTION__WORKERS"),
        ],
    )
    def test_an_unusable_setting_is_a_usage_error_that_shows_no_secret(
        self, place, command, name, value, message
    ):
        answer = command(place, "run", **{f"DEMO_PIPELINE_{name}": value})
        assert answer.code == 2
        assert message in answer.err
        assert f"{value}:" not in answer.err
        assert "secret" not in answer.err

    def test_an_unusable_number_is_named_with_its_value_and_an_example(self, place, command):
        name = "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS"
        answer = command(place, "run", **{name: "wide"})
        assert f"setting {name}=wide: Input should be a valid number" in answer.err
        assert answer.err.endswith(f"; for example {name}=20\n")

    @pytest.mark.parametrize(
        ("text", "message"), [("stor = 'x'", "DEMO_PIPELINE_STOR"), ("store = ", "not valid TOML")]
    )
    def test_an_unusable_file_is_a_usage_error(self, place, command, text, message):
        file = place.root / "mine.toml"
        file.write_text(text)
        answer = command(place, "quarantine", DEMO_PIPELINE_CONFIG=str(file))
        assert answer.code == 2
        assert message in answer.err

    def test_missing_uploads_are_reported_with_a_remedy(self, place, command):
        (place.root / "uploads").rmdir()
        answer = command(place, "run")
        assert answer.code == 2
        assert "DEMO_PIPELINE_UPLOADS" in answer.err
