"""The pieces of work that benchmarks/stages.py measures, each called in a process of its own.

Belongs here: what is done, and reading the clock around it. Their order is in stages.py.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.child import Spent, spent
from demo_pipeline_tests.distributed.processes import adopt_orphans, end_descendants

_ROOT = Path(__file__).resolve().parents[1]


def decode_piece(video: Path, times: int = 1) -> Spent:
    """Every frame, one thread, nothing kept; `times` at once, each in a process."""
    if times == 1:
        import av  # noqa: F401, PLC0415 - imports are not measured

        return spent(lambda: _decode(video))

    def all_of_them() -> None:
        with ProcessPoolExecutor(times) as pool:
            for future in [pool.submit(_decode, video) for _ in range(times)]:
                future.result()

    return spent(all_of_them)


def _decode(video: Path) -> None:
    import av  # noqa: PLC0415 - only what this piece needs, for the memory's sake

    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        for _ in container.decode(stream):
            pass


def stages_piece(uploads: Path, store: Path, name: str) -> list[tuple[str, Spent]]:
    """Every stage of one demonstration; the memory is the most that was held by its end."""
    from demo_pipeline.runs.stages import STAGES  # noqa: PLC0415
    from demo_pipeline.runs.workspace import Workspace  # noqa: PLC0415
    from demo_pipeline.settings import Settings  # noqa: PLC0415
    from demo_pipeline_tests.building import build_stage  # noqa: PLC0415

    workspace = Workspace.open(Settings(uploads=str(uploads), store=str(store)))
    return [
        (stage.name, spent(lambda stage=stage: build_stage(workspace, stage, name)))
        for stage in STAGES
    ]


def straightforward_piece(recording: Path, store: Path, out: Path) -> Spent:
    """The same frames and trees by OpenCV, json and pydantic."""
    from benchmarks.straightforward import make_steps  # noqa: PLC0415 - as above
    from demo_pipeline.files.parquet import read_rows  # noqa: PLC0415

    name = recording.name
    shown = list(read_rows(store / "screenshots" / name / "frames.parquet"))
    actions = list(read_rows(store / "actions" / name / "actions.parquet"))
    steps = sorted(
        (row["frame"], actions[row["action_index"]]["press_ms"])
        for row in shown
        if row["frame"] is not None
    )
    out.mkdir()
    frames = [step[0] for step in steps]
    times = [step[1] for step in steps]
    return spent(lambda: make_steps(recording, out, frames, times))


def run_piece(recording: Path, copies: int) -> Spent:
    """The command `demo-pipeline run` for copies of one recording, as many processes as copies."""
    with tempfile.TemporaryDirectory() as scratch:
        uploads = Path(scratch) / "uploads"
        home = Path(scratch) / "home"
        home.mkdir()
        shutil.copy(_ROOT / "dagster.yaml", home)
        for number in range(copies):
            (uploads / f"copy-{number}").mkdir(parents=True)
            for file in recording.iterdir():
                shutil.copy(file, uploads / f"copy-{number}")
        environment = {
            **os.environ,
            "DEMO_PIPELINE_UPLOADS": str(uploads),
            "DEMO_PIPELINE_STORE": f"{scratch}/store",
            "DAGSTER_HOME": str(home),
            "PYTHONPATH": str(_ROOT),
        }
        command = [sys.executable, "-m", "demo_pipeline.cli.app", "run", "--workers", str(copies)]
        adopt_orphans()  # the command does not wait for the process from which it forked workers

        def work() -> None:
            subprocess.run(command, env=environment, check=True, capture_output=True)
            end_descendants()

        return spent(work)
