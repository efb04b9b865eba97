"""`make doors`: runs the commands that the pages mark as taking minutes, each page in a new clone.

A clone has only committed files. Its environment has only the packages that the page's commands
install.
"""

import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

from demo_pipeline_tests.doors.checkout import Checkout, plain_environment
from demo_pipeline_tests.doors.page_lines import PAGES, ROOT, ShellLine, lines_of

# Marked commands that are left out: the first takes half an hour, the second runs until Ctrl-C, and
# the third would start this command again.
NOT_HERE = (
    ".venv/bin/python benchmarks/demonstration_runs.py",
    "make demo-s3 KEEP=1",
    "make doors",
)
SUITE = "make test"  # the whole suite runs only once, for the first page with this command
LONG = ShellLine("tests of minutes", ".venv/bin/python -m pytest -m minutes")


def main() -> int:
    """Runs all commands, and returns the number of failed ones as exit code."""
    lines = []
    for page in PAGES:
        marked = [line for line in lines_of(page) if line.when == "minutes"]
        lines += [line for line in marked if not line.text.startswith(NOT_HERE)]
    suites = [line for line in lines if line.text.startswith(SUITE)]
    lines = [line for line in lines if line not in suites[1:]]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        for page, chosen in groupby([*lines, LONG], lambda line: line.page):
            print(f"{page}, in a fresh clone", flush=True)
            clone = Path(folder) / page.removesuffix(".md").replace("/", "-").replace(" ", "-")
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            failed += walk(Checkout(clone, plain_environment()), [line.text for line in chosen])
    return failed


def walk(checkout: Checkout, lines: list[str]) -> int:
    """Runs lines in a checkout, shows the output of failed ones, and returns their number."""
    if lines[0].startswith(".venv/"):
        lines = ["make setup-dev", *lines]
    failed = 0
    for line in lines:
        begin = time.monotonic()
        answer = checkout.type(line)
        print(f"  {answer.code:3} {time.monotonic() - begin:6.0f} s  {line}", flush=True)
        if answer.code:
            failed += 1
            print(answer.output[-5000:], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
