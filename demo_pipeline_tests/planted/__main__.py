"""`make planted`: whether the suite still catches each planted fault.

The package and its tests are copied; the checkout is only read. Every fault has a process of its
own, forked before anything of the package is imported, so that none sees another one.
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

_HEAVY = (  # of other authors; every child would import it
    *("numpy", "pyarrow.parquet", "pyarrow.compute", "av", "cv2", "pydantic", "msgspec", "typer"),
    *("dagster", "duckdb", "s3fs", "botocore.session", "hypothesis", "moto"),
)
_OPTIONS = ("-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def main() -> int:
    """Plant each; the exit code is 1 when the list is out of date or a fault is not caught."""
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
        ids = dict.fromkeys(one for fault in faults for one in ids_of_tests()[fault.test])
        code, output = run_tests(copy, ids, patience_s=15 * 60)
        if code:
            sys.stdout.write(f"{output}\nThese tests fail without a fault.\n")
            return 1
        missed = [fault for fault in faults if not is_caught(fault, copy)]
    sys.stdout.write(f"{len(faults)} faults planted, {len(missed)} not caught\n")
    return int(bool(missed))


def copy_project(folder: Path) -> None:
    """The package and its tests as copies, compiled; what lies beside them as links."""
    for path in ROOT.iterdir():
        if path in {PACKAGE, TESTS}:
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            compileall.compile_dir(folder / path.name, quiet=2)
        elif not path.name.startswith("."):
            (folder / path.name).symlink_to(path)


def is_caught(fault: Fault, folder: Path) -> bool:
    """Whether the fault's test fails in the copy, with the fault in it."""
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
    """The module with the fault in it; afterwards as it was, so that its bytecode fits again."""
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
    """Exit code and output of pytest over tests of the copy, in a process forked for them."""
    for name in _HEAVY:
        importlib.import_module(name)
    log = folder / ".log"
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(patience_s)  # a fault may let a loop never end
        code = -1
        try:
            code = _run_in_child(folder, [f"{TESTS.name}/{one}" for one in ids], log)
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
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
