"""`make planted`: checks that the test suite still catches each planted fault.

The package and its tests are copied, and the faults are planted in the copy. Each fault is tested
in its own process. The process is forked before any module of the package is imported, so that
faults cannot affect each other.
"""

import argparse
import compileall
import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from demo_pipeline_tests.planted.faults import (
    PACKAGE,
    ROOT,
    TESTS,
    Fault,
    ids_of_tests,
    outdated,
    place,
    read_faults,
)

# Slow third-party modules, imported once before the forks so that no child process imports them.
_HEAVY = (
    *("numpy", "pyarrow.parquet", "pyarrow.compute", "av", "cv2", "pydantic", "msgspec", "typer"),
    *("dagster", "duckdb", "s3fs", "botocore.session", "hypothesis", "moto"),
)
_OPTIONS = ("-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def main() -> int:
    """Plants each fault, and returns the exit code.

    The exit code is 1 if the list of faults is out of date, if a test fails without a fault, or if
    a fault is not caught.
    """
    parser = argparse.ArgumentParser(prog="make planted", description=__doc__)
    parser.add_argument("words", nargs="*", help="only faults whose name has one of these words")
    words = parser.parse_args().words
    faults = [
        fault for fault in read_faults() if not words or any(word in fault.name for word in words)
    ]
    if old := outdated(faults):
        sys.stdout.writelines(f"out of date: {line}\n" for line in old)
        return 1
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder).resolve()
        copy_project(copy)
        ids: dict[str, None] = {}
        for fault in faults:
            ids |= dict.fromkeys(ids_of_tests()[fault.test])
        code, output = run_tests(copy, ids, patience_s=15 * 60)
        if code:
            sys.stdout.write(f"{output}\nThese tests fail without a fault.\n")
            return 1
        missed = [fault for fault in faults if not is_caught(fault, copy)]
    sys.stdout.write(f"{len(faults)} faults planted, {len(missed)} not caught\n")
    return int(bool(missed))


def copy_project(folder: Path) -> None:
    """Copies and compiles the package and its tests, and links the other files of the project."""
    for path in ROOT.iterdir():
        if path in {PACKAGE, TESTS}:
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            compileall.compile_dir(folder / path.name, quiet=2)
        elif not path.name.startswith("."):
            (folder / path.name).symlink_to(path)


def is_caught(fault: Fault, folder: Path) -> bool:
    """Returns whether the fault's test fails in the copy after the fault was planted."""
    begun = time.monotonic()
    with planted(folder / PACKAGE.name / place(fault), fault):
        code, output = run_tests(folder, ids_of_tests()[fault.test], patience_s=120)
    caught = code == pytest.ExitCode.TESTS_FAILED
    mark = "caught" if caught else "NOT CAUGHT"
    sys.stdout.write(f"{mark} {time.monotonic() - begun:5.1f} s  {fault.name}  ({fault.test})\n")
    if not caught and code != pytest.ExitCode.OK:
        sys.stdout.write(f"{output}\nexit code {code}\n")
    sys.stdout.flush()
    return caught


@contextlib.contextmanager
def planted(path: Path, fault: Fault) -> Iterator[None]:
    """Plants a fault in a module, and restores the module afterwards.

    The modification time is restored, too, so that the compiled bytecode stays valid.
    """
    before = path.read_bytes()
    times = path.stat()
    path.write_bytes(before.replace(fault.find.encode(), fault.replace.encode()))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**10))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(folder: Path, ids: Iterable[str], *, patience_s: int) -> tuple[int, str]:
    """Runs pytest on tests of the copy in a forked process; returns its exit code and output."""
    for name in _HEAVY:
        importlib.import_module(name)
    log = folder / ".log"
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(patience_s)  # a fault may cause an endless loop
        code = -1
        try:
            code = _run_in_child(folder, [f"{TESTS.name}/{node_id}" for node_id in ids], log)
        except BaseException:  # noqa: BLE001 - a child must not continue with the parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, log.read_text("utf-8", "replace")


def _run_in_child(folder: Path, ids: list[str], log: Path) -> int:
    for number in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in {"", str(ROOT)})]
    for name in [name for name in sys.modules if name.partition(".")[0].startswith(PACKAGE.name)]:
        del sys.modules[name]
    code = int(pytest.main([*_OPTIONS, *ids]))
    sys.stdout.flush()
    package = importlib.import_module(PACKAGE.name)
    return code if Path(str(package.__file__)).is_relative_to(folder) else -1


if __name__ == "__main__":
    sys.exit(main())
