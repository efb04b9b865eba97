"""Fixtures that several folders of tests share.

They provide a clean environment, S3 servers, and recordings and stores that are made only once.
"""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore import session as botocore_session
from botocore.loaders import create_loader
from hypothesis import settings

from demo_pipeline.store.store import Store, open_store
from demo_pipeline_tests.browser import HOW, NEEDED, find_chromium
from demo_pipeline_tests.golden.outputs import REAL_RECORDINGS, copy_recordings
from demo_pipeline_tests.made_once import made_once
from demo_pipeline_tests.sample_workspace import DEMOS, open_workspace, run_all_stages, write_demos
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.s3_server import S3Server, moto_server, seaweed_server
from demo_pipeline_tests.simulator.script import click, type_text
from demo_pipeline_tests.uploads import TYPED

settings.register_profile("any machine", deadline=None)  # a busy machine must not fail a test
settings.load_profile("any machine")


MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes its own folders below it
# Bytes that must be free in memory. The tests take less than 2 GB, and the pipeline warns below 5
# GB of free space.
ROOM = 7 * 10**9


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Puts temporary files into memory if it has room.

    SQLite waits for the disk at every event. In memory, the tests of Dagster and of the ledger take
    half as long. To use another place, set `TMPDIR`.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    runs_programs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    [kilobytes] = re.findall(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())
    room = min(shutil.disk_usage(MEMORY).free, 1024 * int(kilobytes))
    if runs_programs and room > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


@pytest.fixture(autouse=True, scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hides settings, settings file, DAGSTER_HOME and colours of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("DEMO_PIPELINE_") or name in {"DAGSTER_HOME", "FORCE_COLOR"}:
                patch.delenv(name)
        patch.setenv("DEMO_PIPELINE_CONFIG", str(tmp_path_factory.getbasetemp() / "none.toml"))
        yield


@pytest.fixture(autouse=True, scope="session")
def answered_interrupts() -> None:
    """Restores the handling of Ctrl-C, which background jobs of a shell script ignore.

    Otherwise Dagster and its `tail` processes would ignore SIGTERM, too, and Dagster would wait a
    minute for them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_loader() -> Iterator[None]:
    """Lets all S3 clients of a process share botocore's data files.

    Reading these files takes most of the time of making a client.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore_session, "create_loader", cache(create_loader))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that need a browser if no browser is installed."""
    if find_chromium() is None:
        left_out = [item for item in items if item.get_closest_marker(NEEDED)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports that tests were left out, and how to install the browser for them."""
    if find_chromium() is None:
        terminalreporter.write_line(f"The tests that need a browser were left out. {HOW}")


def take_to_trajectories(root: Path, names: Iterable[str]) -> None:
    workspace = open_workspace(root)
    for name in names:
        assert set(run_all_stages(workspace, name).values()) == {"made"}


@pytest.fixture(scope="session")
def made_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `uploads/` and `store/`: two small demonstrations that all stages processed."""

    def make(root: Path) -> None:
        write_demos(root / "uploads")
        take_to_trajectories(root, DEMOS)

    return made_once(tmp_path_factory, "made", make)


@pytest.fixture(scope="session")
def real_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like `made_root`, with the two recordings of a real desktop."""

    def make(root: Path) -> None:
        copy_recordings(root)
        take_to_trajectories(root, REAL_RECORDINGS)

    return made_once(tmp_path_factory, "real", make)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of seven seconds in which somebody ticks a box and types `TYPED`."""
    acts = (click("Agree"), click("Name"), type_text(TYPED))

    def make(root: Path) -> None:
        write_recording(root / "recording", script(*acts), SMALL)

    return made_once(tmp_path_factory, "recorded", make) / "recording"


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """An S3 server in this process. Its method `connected` sets the variables of S3 clients."""
    with moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A SeaweedFS server in another process, with the same methods as `moto`."""
    with seaweed_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Hugging Face's package `datasets`, offline and with its own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        import datasets

        datasets.disable_progress_bars()
        yield datasets


@pytest.fixture
def moto_url(moto: S3Server) -> Iterator[str]:
    """The URL of a new bucket on moto. The environment variables of S3 clients point to moto."""
    with moto.connected():
        yield moto.make_bucket()


@pytest.fixture
def seaweedfs_url(seaweedfs: S3Server) -> Iterator[str]:
    """The URL of a new bucket on SeaweedFS. The variables of S3 clients point to SeaweedFS."""
    with seaweedfs.connected():
        yield seaweedfs.make_bucket()


@pytest.fixture(params=["local", "bucket"])
def either(request, tmp_path):
    """An empty store, first in a folder and then in a bucket, for tests of both kinds."""
    if request.param == "local":
        return Store(tmp_path / "store")
    return open_store(f"{request.getfixturevalue('moto_url')}/store", tmp_path / "cache")
