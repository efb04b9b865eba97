"""`make old-stores COMMIT=…`: checks that the current code changes no store of an older commit.

The code of the older commit builds the samples with every export, in a folder and in a bucket of a
real S3 server. Then the current code runs `run --dry-run`, `run`, and `run --record` (which takes
every output through Dagster) on the store. Every output must be up to date, and no file or object
may be written, moved or removed.

If code versions were raised since the older commit, outputs are stale. Each stale output is listed
with its reason, and nothing is built. With `--raised`, the command succeeds if raised code versions
explain all stale outputs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.cli.console import print_line
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.demonstration_outputs import demonstration_outputs
from demo_pipeline.runs.graph import (
    SETTINGS_CHANGED,
    Cause,
    Current,
    Graph,
    Output,
    Stale,
    recipe_differences,
)
from demo_pipeline.runs.stages import built_stages
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import BUILT_IN_EXPORTS, Settings
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.names import is_bucket
from demo_pipeline_tests.sample_workspace import variables_of
from demo_pipeline_tests.simulator.s3_server import seaweed_server

ROOT = Path(__file__).resolve().parents[1]
_SAMPLES = ROOT / "data" / "samples"
_LOOKS = (("run", "--dry-run"), ("run",), ("run", "--record"))
_SHOWN = 10  # maximum number of changed entries whose names are printed
_NOTHING = "to build: 0 demonstrations, 0 datasets; 0 stay quarantined"

Entries = Mapping[str, object]
"""Name of a file or an object → its content and metadata, which any write would change."""


@dataclass(frozen=True)
class StaleOutput:
    """An output of the older code that the current code would build again.

    Attributes:
        name: name of the output in the store.
        why: the reason, as shown to people.
        is_explained: whether the reason is a raised code version of the output's stage or of an
            input.
    """

    name: str
    why: str
    is_explained: bool


@contextmanager
def code_of(commit: str, folder: Path) -> Iterator[Path]:
    """Checks out a commit into `folder`, without changing the working tree of this repository."""
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run((*git, "add", "--quiet", "--detach", str(folder), commit), check=True)
    try:
        yield folder
    finally:
        subprocess.run((*git, "remove", "--force", str(folder)), check=True)


def run_command(code: Path, *arguments: str) -> str:
    """Runs `demo-pipeline` with the code in a folder, and returns the printed text.

    Raises:
        RuntimeError: the command failed.
    """
    done = subprocess.run(
        (sys.executable, "-m", "demo_pipeline.cli.app", *arguments),
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(code), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        command = " ".join(("demo-pipeline", *arguments))
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def entries_of(store: str) -> Entries:
    """Returns all files, folders and links of a store, or all objects of a store in a bucket."""
    if is_bucket(store):
        with tempfile.TemporaryDirectory() as cache:
            return {info.key: info for info in Bucket(store, Path(cache)).listing()}
    return {str(path.relative_to(store)): _entry(path) for path in Path(store).rglob("*")}


def _entry(path: Path) -> object:
    status = path.lstat()
    if path.is_symlink():
        return path.readlink(), status.st_mtime_ns
    if path.is_dir():
        return status.st_mtime_ns
    return read_digest(path), status.st_mtime_ns, status.st_ino


def stale_outputs(workspace: Workspace) -> list[StaleOutput]:
    """Returns the outputs that the current code would build again."""
    graph = Graph(workspace)
    stale: list[StaleOutput] = []
    for upload in workspace.uploads.list_demonstrations():
        for output in demonstration_outputs(graph, upload.id):
            stale += _if_stale(output, reads_raised=False)
    for stage in built_stages(workspace.settings):
        reads_raised = any(output.is_explained for output in stale)
        stale += _if_stale(DatasetOutput(graph, stage), reads_raised=reads_raised)
    return stale


def _if_stale(output: Output[Any], *, reads_raised: bool) -> Iterator[StaleOutput]:
    """Yields the output if it is not current.

    `reads_raised` says whether the output reads outputs that are stale because of a raised code
    version.
    """
    state = output.graph.state(output)
    if not isinstance(state, Current):
        is_explained = isinstance(state, Stale) and _is_explained(output, state, reads_raised)
        yield StaleOutput(output.name, state.why, is_explained)


def _is_explained(output: Output[Any], state: Stale, reads_raised: bool) -> bool:
    """Returns whether raised code versions explain all differences in a stale output's recipe.

    If the recipe does not differ at all, the output is stale only because an input is stale. This
    input is judged separately.
    """
    differences = recipe_differences(state.version.manifest.recipe, output.plan().recipe)
    for cause, why in differences.items():
        is_form = cause is Cause.SETTINGS and why != SETTINGS_CHANGED
        if not (cause is Cause.CODE or is_form or (cause is Cause.INPUTS and reads_raised)):
            return False
    return Cause.FILES not in state.causes


def judge_store(code: Path, store: str, root: Path, *, accepts_raised: bool) -> bool:
    """Builds a store with the older code, runs the current code on it, and prints the result.

    Returns whether the current code leaves the store unchanged.
    """
    os.environ |= variables_of(root) | {
        "DEMO_PIPELINE_CONFIG": str(root / "none.toml"),
        "DEMO_PIPELINE_STORE": store,
        "DEMO_PIPELINE_DATASETS__EXPORTS": json.dumps(BUILT_IN_EXPORTS),
    }
    shutil.copytree(_SAMPLES, root / "uploads")
    (root / "home").mkdir()
    run_command(code, "run")
    before = entries_of(store)
    print_line(f"{store}: {len(before)} entries")
    stale = stale_outputs(Workspace.open(Settings()))
    for output in stale:
        unexplained = "" if output.is_explained else "  NOT A RAISED CODE VERSION"
        print_line(f"  {output.name}: {output.why}{unexplained}")
    if stale:
        explained = sum(output.is_explained for output in stale)
        print_line(f"  {len(stale)} outputs are stale, {explained} because of raised code versions")
        return accepts_raised and explained == len(stale)
    verdicts = [_leaves_alone(store, before, look) for look in _LOOKS]
    return all(verdicts)


def _leaves_alone(store: str, before: Entries, look: tuple[str, ...]) -> bool:
    """Runs a command of the current code, and prints and returns whether the store is unchanged."""
    printed = run_command(ROOT, *look)
    after = entries_of(store)
    changed = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    plans_nothing = "--dry-run" not in look or _NOTHING in printed
    command = " ".join(("demo-pipeline", *look))
    print_line(f"  {command}: {len(changed)} entries differ; {printed.strip().splitlines()[-1]}")
    for name in sorted(changed)[:_SHOWN]:
        print_line(f"    {name}")
    return plans_nothing and not changed


def main() -> int:
    """Checks a store in a folder and a store in a bucket, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="such as the last release")
    parser.add_argument("--raised", action="store_true", help="accept raised code versions")
    arguments = parser.parse_args()
    for name in list(os.environ):
        if name.startswith("DEMO_PIPELINE_"):
            del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="old-stores-") as text, ExitStack() as stack:
        folder = Path(text)
        code = stack.enter_context(code_of(arguments.commit, folder / "code"))
        server = stack.enter_context(seaweed_server(folder / "server"))
        stack.enter_context(server.connected())
        stores = {"folder": str(folder / "folder" / "store"), "bucket": server.make_bucket()}
        verdicts = [
            judge_store(code, store, folder / kind, accepts_raised=arguments.raised)
            for kind, store in stores.items()
        ]
    accepted = "left alone, or stale by raised code versions" if arguments.raised else "left alone"
    print_line(accepted if all(verdicts) else "FAILED: see above")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
