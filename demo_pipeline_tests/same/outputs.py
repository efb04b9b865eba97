"""Builds outputs of eight demonstrations by the command line, and hashes what readers see.

The store is in a folder or in a bucket. The outputs of the commands are hashed, too. Manifests,
recipes, caches and code versions are not read.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import s3fs

from demo_pipeline_tests.golden.outputs import RECORDINGS
from demo_pipeline_tests.same.names import EVERY_EXPORT, TERMINAL
from demo_pipeline_tests.sample_workspace import write_demos
from demo_pipeline_tests.simulator.form import ACTS, SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.s3_server import S3Server
from demo_pipeline_tests.simulator.video import VideoOptions

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 900.0  # longest time of a command, in seconds
_KEPT = ("PATH", "HOME", "PYTHONPATH")  # environment variables that commands inherit
_VARIED = {  # pattern of a text that differs from run to run → replacement
    r"\b[0-9]+(\.[0-9]+)? (s|ms|min|GB)\b": "TIME",
    r"\b[0-9]+:[0-9]{2}:[0-9]{2}\b": "TIME",
    r"\b[0-9a-f]{16}\b": "VERSION",
    r"^ok +versions: .*$": "ok versions",
}


@dataclass(frozen=True)
class Home:
    """The folder of an exercise, and its store.

    Attributes:
        folder: contains uploads, cache and Dagster's home.
        store: the path or URL of the store.
        server: the S3 server, if the store is in a bucket.
    """

    folder: Path
    store: str
    server: S3Server | None = None

    def run(self, *arguments: str) -> tuple[int, str]:
        """Runs `demo-pipeline`; returns the exit code and the output.

        Texts in the output that vary from run to run are replaced.
        """
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        places = {
            "DAGSTER_HOME": str(self.folder / "home"),
            "DEMO_PIPELINE_UPLOADS": str(self.folder / "uploads"),
            "DEMO_PIPELINE_STORE": self.store,
            "DEMO_PIPELINE_CACHE": str(self.folder / "cache"),
            "DEMO_PIPELINE_OSWORLD_TASKS": str(ROOT / "data" / "osworld"),
            "DEMO_PIPELINE_CONFIG": str(self.folder / "none.toml"),
            "DEMO_PIPELINE_DATASETS__EXPORTS": json.dumps(EVERY_EXPORT),
        }
        remote = self.server.environment() if self.server else {}
        done = subprocess.run(
            [f"{sysconfig.get_path('scripts')}/demo-pipeline", *arguments],
            cwd=self.folder,
            env=kept | places | remote | TERMINAL | {"COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        return done.returncode, self._neutral(done.stdout + done.stderr)

    def _neutral(self, text: str) -> str:
        text = text.replace(self.store, "STORE").replace(str(self.folder), "FOLDER")
        text = text.replace(str(ROOT), "CHECKOUT")
        for pattern, word in _VARIED.items():
            text = re.sub(pattern, word, text, flags=re.MULTILINE)
        return re.sub(r"[ ━─]{2,}", " ", text)  # the widths of columns depend on the paths


def make_home(folder: Path) -> Path:
    """Creates uploads of four samples and four synthetic demonstrations, one of them broken.

    Returns the folder.
    """
    uploads = folder / "uploads"
    for sample in sorted(RECORDINGS.iterdir()):
        shutil.copytree(sample, uploads / sample.name)
    write_demos(uploads)
    varied = VideoOptions(preset="ultrafast", fps=15, variable=True, video_start_s=0.8)
    options = replace(SMALL, platform="macos", xy_on_buttons=False, wheel="recorder", video=varied)
    write_recording(uploads / "form", replace(script(*ACTS), title="Fill in the form"), options)
    shutil.copytree(uploads / "first", uploads / "torn")
    film = uploads / "torn" / "recording.mp4"
    film.write_bytes(film.read_bytes()[:2000])
    (folder / "home").mkdir()
    shutil.copyfile(ROOT / "dagster.yaml", folder / "home" / "dagster.yaml")
    return folder


def command_lines() -> Iterator[tuple[str, ...]]:
    """Yields every command as people type it, from an empty store to a pruned store."""
    yield from (("doctor",), ("stats",), ("quarantine",), ("inspect", "first"), ("run",))
    yield from (("run",), ("run", "--strict"), ("run", "second", "--force"), ("run", "unknown"))
    yield from (("quarantine",), ("register",), ("revalidate",), ("doctor",))
    yield from (("inspect", name) for name in ("first", "form", "20261121_212358", "torn", "nix"))
    yield from (("stats",), ("stats", "--json"), ("stats", "--views"))
    yield ("stats", "SELECT action_type, count(*) AS n FROM steps GROUP BY ALL ORDER BY ALL")
    yield ("stats", "SELECT nothing FROM nowhere")
    yield from (("export", "plain"), ("export", "plain"), ("export", "--hub-layout", "hub"))
    yield from (("validate", f"uploads/{name}") for name in ("first", "torn"))
    yield from (("validate", f"plain/{name}") for name in ("sft", "messages", "dataset"))
    yield from (("validate", f"plain/{name}") for name in EVERY_EXPORT if name != "cudag")
    yield from (("validate", "plain/sft", "--json"), ("validate", "nowhere"))
    yield from (("eval", "requests", "asked.jsonl"), ("eval", "truth", "answers.jsonl"))
    yield from (("eval", "score", "answers.jsonl"), ("eval", "score", "nowhere.jsonl"))
    yield ("prune", "--grace-hours", "0")


def command_results(home: Home) -> dict[str, str]:
    """Runs all commands; returns number and words of a command → exit code and output."""
    results = {}
    for place, words in enumerate(command_lines()):
        code, output = home.run(*words)
        results[f"output {place:02} {' '.join(words)}"] = f"{code}\n{output}"
    return results


def tree_hashes(folder: Path) -> dict[str, str]:
    """Returns path → SHA-256 for every file that a reader of the folder sees."""
    hashes = {}
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(parent) / name
            hashes[str(path.relative_to(folder))] = _digest(path.read_bytes())
    return hashes


def bucket_hashes(server: S3Server, url: str) -> dict[str, str]:
    """Returns path → SHA-256 for every file that a reader of a store in a bucket sees.

    These are the files of the versions to which pointers lead, and of the versions that they link
    to.
    """
    bucket = url.removeprefix("s3://")
    reader = s3fs.S3FileSystem(
        key=server.access_key,
        secret=server.secret_key,
        endpoint_url=server.endpoint,
        use_listings_cache=False,
    )
    data = {key.removeprefix(f"{bucket}/"): reader.cat_file(key) for key in reader.find(bucket)}
    hashes = {key: _digest(data[key]) for key in data if key.startswith("quarantine/")}
    for key, value in data.items():
        if key.startswith("pointers/"):
            output = key.removeprefix("pointers/")
            for path, digest in _version_hashes(data, output, value.decode().strip()):
                hashes[f"{output}/{path}"] = digest
    return hashes


def _version_hashes(data: dict[str, bytes], output: str, version: str) -> Iterator[tuple[str, str]]:
    begin = f"versions/{output}/{version}"
    end = "/manifest.json"
    # The name of a version's folder may have a random ending. All folders of a version have the
    # same content.
    folder = next(
        key.removesuffix(end)
        for key in sorted(data)
        if key.startswith((f"{begin}-", f"{begin}/")) and key.endswith(end)
    )
    content = f"{folder}/content/"
    yield from (
        (key.removeprefix(content), _digest(data[key])) for key in data if key.startswith(content)
    )
    links = json.loads(data[folder + end]).get("links", {})
    for path, link in links.items():
        for rest, digest in _version_hashes(data, link["output"], link["version"]):
            yield f"{path}/{rest}", digest


def grouped(hashes: dict[str, str], prefix: str) -> dict[str, str]:
    """Returns `<prefix> <path>` → hashes.

    The images of a folder share an entry, and the steps of a trajectory share an entry.
    """
    groups: dict[str, list[str]] = {}
    for path, digest in sorted(hashes.items()):
        name = re.sub(r"(/steps/|[^/]+\.(png|jpg)$).*", "", path)
        groups.setdefault(f"{prefix} {name}", []).append(f"{path} {digest}")
    return {name: "\n".join(lines) for name, lines in groups.items()}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
