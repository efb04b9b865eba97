"""`make truth`: how right the labels are, against what the person really did.

The recordings in benchmarks/truth/recordings are of a real desktop, with a list of what was meant.
Without a command the figures are compared with the recorded ones: the exit code is 1 when fewer are
right or more are wrong; better figures are recorded. `record` records them even if they are worse.
README.md gets the table in both cases. `--store FOLDER` keeps the store.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.truth.figures import (
    Figures,
    better_figures,
    markdown_table,
    worse_figures,
)
from benchmarks.truth.measuring import (
    RECORDINGS,
    measure,
    read_figures,
    write_figures,
)
from benchmarks.truth.page import write_table


def main() -> int:
    """Measures, compares and records; the exit code is 1 when a figure is worse."""
    parser = argparse.ArgumentParser(prog="make truth", description=__doc__)
    parser.add_argument("command", choices=("check", "record"), nargs="?", default="check")
    parser.add_argument("--store", type=Path, help="an empty folder that keeps the store")
    arguments = parser.parse_args()
    if arguments.store:
        scores = measure(RECORDINGS, arguments.store.resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="truth-") as folder:
            scores = measure(RECORDINGS, Path(folder))
    recorded = read_figures()
    measured = {name: score.figures for name, score in scores.items()}
    worse = []
    better = False
    for name, score in scores.items():
        print(f"{name}: {len(score.faults)} faults")
        print("".join(f"  {fault}\n" for fault in score.faults), end="")
        before = recorded.get(name, Figures())
        if name in recorded:
            worse += [f"{name} {line}" for line in worse_figures(before, score.figures)]
        better = better or name not in recorded or bool(better_figures(before, score.figures))
    print(f"\n{markdown_table(measured)}", end="")
    if worse:
        print("\nWorse than recorded:")
        print("".join(f"  {line}\n" for line in worse), end="")
    if arguments.command == "record" or (better and not worse):
        write_figures(scores)
        write_table(measured)
        print("Recorded in benchmarks/truth/figures.json and README.md.")
        return 0
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
