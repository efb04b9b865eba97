"""`make same`: checks whether everything that people see is unchanged; `record` stores it again.

The record is expected.json, with a hash for every name, published file, exported file and command.
`--keep FOLDER` keeps the texts and files, so that two checkouts can be compared by `diff -r`.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from demo_pipeline_tests.same.names import visible_names
from demo_pipeline_tests.same.outputs import (
    Home,
    bucket_hashes,
    command_results,
    grouped,
    make_home,
    tree_hashes,
)
from demo_pipeline_tests.simulator.s3_server import seaweed_server

EXPECTED = Path(__file__).parent / "expected.json"
_SHORT = 12  # length of a recorded hash
_MOST = 60  # maximum number of differences that are printed


def main() -> int:
    """Compares with the record, or records; returns the exit code: 1 if something differs."""
    parser = argparse.ArgumentParser(prog="make same", description=__doc__)
    parser.add_argument("command", choices=("check", "record"), nargs="?", default="check")
    parser.add_argument("--keep", type=Path, help="an empty folder for what was made")
    chosen = parser.parse_args()
    expected = read_expected()
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        current = everything(chosen.keep.resolve(), expected)
    else:
        with tempfile.TemporaryDirectory(prefix="same-") as folder:
            current = everything(Path(folder), expected)
    if chosen.command == "record":
        EXPECTED.write_text(json.dumps(current, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    lines = differences(expected, current)
    sys.stdout.writelines(f"{line}\n" for line in lines[:_MOST])
    sys.stdout.write(f"{len(current)} things that people see, {len(lines)} differ\n")
    return int(bool(lines) and chosen.command == "check")


def read_expected() -> dict[str, str]:
    """Returns the record: name → hash."""
    return dict(json.loads(EXPECTED.read_text("utf-8"))) if EXPECTED.is_file() else {}


def everything(folder: Path, expected: Mapping[str, str]) -> dict[str, str]:
    """Returns name → hash for the names, commands, published files and exported files."""
    home = Home(make_home(folder / "folder"), str(folder / "folder" / "store"))
    texts = visible_names(expected) | command_results(home)
    stored = tree_hashes(folder / "folder" / "store")
    for prefix, hashes in (
        ("published", stored),
        ("exported", tree_hashes(folder / "folder" / "plain")),
        ("hub", tree_hashes(folder / "folder" / "hub")),
    ):
        texts |= grouped(hashes, prefix)
    with seaweed_server(folder / "s3") as server, server.connected():
        remote = Home(make_home(folder / "bucket"), server.make_bucket(), server)
        texts["bucket run"] = str(remote.run("run"))
        in_bucket = bucket_hashes(server, remote.store)
    texts |= {f"in the bucket {line}": "" for line in differences(stored, in_bucket)}
    (folder / "texts.json").write_text(json.dumps(texts, indent=1, sort_keys=True), "utf-8")
    return hashed(texts)


def hashed(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns name → shortened SHA-256 of its text."""
    return {
        name: hashlib.sha256(text.encode()).hexdigest()[:_SHORT] for name, text in texts.items()
    }


def differences(expected: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Returns a line for each name that is new, gone or changed."""
    lines = [f"new: {name}" for name in sorted(set(current) - set(expected))]
    lines += [f"gone: {name}" for name in sorted(set(expected) - set(current))]
    both = sorted(set(expected) & set(current))
    return lines + [f"changed: {name}" for name in both if expected[name] != current[name]]


if __name__ == "__main__":
    sys.exit(main())
