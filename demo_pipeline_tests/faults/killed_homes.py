"""Kills processes that create a DAGSTER_HOME, and checks that the home can be used afterwards.

`python -m demo_pipeline_tests.faults.killed_homes [--times N]` creates N homes. Each process is
killed before a different SQL statement. `make kills` runs this module.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from demo_pipeline.cli.console import print_line

MAKE_HOME = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from demo_pipeline.defs.local_instance import opened_instance

home, last, statements = Path(sys.argv[1]), int(sys.argv[2]), 0
os.environ["DAGSTER_HOME"] = str(home)

@event.listens_for(Engine, "before_cursor_execute")
def count(*_):
    global statements
    statements += 1
    if statements == last:
        os.kill(os.getpid(), signal.SIGKILL)

with opened_instance(home):
    pass
print(statements)
"""


def make_home(home: Path, statement: int = 0) -> subprocess.CompletedProcess[str]:
    """Creates a home in a new process, which prints its number of SQL statements.

    If `statement` is not 0, the process is killed before the SQL statement with this number.
    """
    command = [sys.executable, "-c", MAKE_HOME, str(home), str(statement)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Creates `--times` homes. Returns the exit code, 0 if every home can be used afterwards."""
    parser = argparse.ArgumentParser(prog="make kills", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    wrong = list[str]()
    with tempfile.TemporaryDirectory(prefix="killed-homes-") as temporary:
        folder = Path(temporary)
        statements = int(make_home(folder).stdout)
        for number in range(1, times + 1):
            home = folder / f"home{number}"
            home.mkdir()
            at = max(1, statements * number // (times + 1))
            make_home(home, at)
            if (again := make_home(home)).returncode:
                wrong.append(f"killed at {at} of {statements}: {again.stderr[-500:]}")
    print_line(f"{times} homes killed while they were made; wrong: {wrong or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
