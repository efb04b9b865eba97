"""`make doors`: runs the commands that the pages mark as taking minutes, each page in a new clone.

A clone has only committed files. If the commands of a page install packages, the environment of the
clone has only these packages. Other pages use the packages of this environment.
`python -m demo_pipeline_tests.doors PAGE …` runs only the commands of the named pages.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from demo_pipeline_tests.distributed.services import MissingProgramError
from demo_pipeline_tests.doors.checkout import Checkout, lend_environment, plain_environment
from demo_pipeline_tests.doors.page_lines import PAGES, ROOT, ShellLine, lines_of
from demo_pipeline_tests.doors.situations import situation

THIS = "make doors"  # not run, because it would start this command again
SUITE = "make test"  # the whole suite runs only once, for the first page with this command
LONG = (
    ShellLine("tests of minutes", "make setup-dev"),
    ShellLine("tests of minutes", ".venv/bin/python -m pytest -m minutes"),
)


def main(pages: Sequence[str]) -> int:
    """Runs the commands of pages, and returns the number of failed ones as exit code."""
    # In the background of a shell, SIGINT is ignored, and servers would not end by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lines = []
    for page in PAGES:
        marked = [line for line in lines_of(page) if line.when == "minutes"]
        lines += [line for line in marked if not line.text.startswith(THIS)]
    suites = [line for line in lines if line.text.startswith(SUITE)]
    lines = [line for line in [*LONG, *lines] if line not in suites[1:]]
    unknown = set(pages) - {line.page for line in lines}
    if unknown:
        sys.exit(f"no line to walk in {', '.join(sorted(unknown))}; name pages such as README.md")
    if pages:
        lines = [line for line in lines if line.page in pages]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        for page, chosen in groupby(lines, lambda line: line.page):
            print(f"{page}, in a fresh clone", flush=True)
            clone = Path(folder) / page.removesuffix(".md").replace("/", "-").replace(" ", "-")
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            checkout = Checkout(clone, plain_environment())
            texts = [line.text for line in chosen]
            if not any(line.startswith("make ") or "install" in line for line in texts):
                lend_environment(clone / ".venv", clone)
            elif texts[0].startswith((".venv/", "export ")):
                failed += walk(checkout, ["make setup-dev"])
            try:
                with situation(page, checkout):
                    failed += walk(checkout, texts)
            except (AssertionError, MissingProgramError, TimeoutError) as error:
                failed += 1
                print(error, flush=True)
    return failed


def walk(checkout: Checkout, lines: Sequence[str]) -> int:
    """Runs lines in a checkout, shows the output of failed ones, and returns their number."""
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
    sys.exit(main(sys.argv[1:]))
