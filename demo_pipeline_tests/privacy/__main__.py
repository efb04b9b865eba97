"""`make canaries`: searches all exported datasets for 300 invented secrets that must be redacted.

The secrets are in generated demonstrations, which type, show, cut off, split and misspell them in
several fonts. The search covers every byte of every exported file, and the text that OCR recognises
in every exported image.
"""

import argparse
import hashlib
import html
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import cv2
import numpy as np
import pyarrow.parquet as pq
from matplotlib import font_manager

from demo_pipeline.cli.console import print_line
from demo_pipeline.importers.import_recordings import find_recordings
from demo_pipeline.importers.upload_folder import Given
from demo_pipeline.privacy import screenshot_texts
from demo_pipeline.privacy.private_texts import folded
from demo_pipeline.review.review_store import subject_of
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.imported_trajectories import import_trajectory
from demo_pipeline.runs.stages import STAGE_BY_NAME, dataset_stages, is_built
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import BUILT_IN_EXPORTS
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.privacy.canaries import (
    KINDS,
    PRIVATE_EXPRESSION,
    PRIVATE_WORDS,
    Look,
    Moment,
    secrets_of,
    typing,
    write_trajectory,
)
from demo_pipeline_tests.sample_workspace import open_workspace

_FONTS = ("DejaVu Sans", "DejaVu Sans Mono", "DejaVu Serif", "Nimbus Sans", "C059", "URW Bookman")
_NEW_PICTURE = 5  # steps between screenshots with new lines; OCR of a new image takes seconds
_PAUSE = "wait", {"seconds": 1.0}


def looks() -> list[Look]:
    """Returns styles of text: this machine's fonts and Pillow's own font, 11 to 20 pixels high."""
    font_files = {font.name: font.fname for font in font_manager.fontManager.ttflist}
    files = ["", *(font_files[name] for name in _FONTS if name in font_files)]
    sizes = (11, 13, 12, 16, 14, 20, 18, 11)
    return [Look(files[n % len(files)], sizes[n % len(sizes)], n % 2 == 1) for n in range(24)]


def moments_of(secrets: Sequence[str]) -> tuple[list[Moment], list[str]]:
    """Returns steps that show secrets in different ways, and the lines of the last screenshot."""
    steps = list[Moment]()
    lines = list[str]()
    seen = list[str]()

    def do(action: tuple[str, dict[str, Any]], name: str = "") -> None:
        if len(steps) % _NEW_PICTURE == 0:
            seen[:] = lines[-24:]
        steps.append(Moment(action, [name] if name else [], list(seen)))

    for number, secret in enumerate(secrets):
        half = len(secret) // 2
        match number % 8:
            case 0:
                do(typing(f"Sent to {secret} now"))
                lines.append(f"Sent to {secret} now")
            case 1:
                do(typing(secret[:half]))
                lines.append(f"To: {secret[:half]}")
                do(typing(secret[half:]))
                lines[-1] += secret[half:]
            case 2:
                do(typing(f"{secret[:half]}xx"))
                do(("hotkey", {"keys": ["backspace"], "presses": 2}))
                do(typing(secret[half:]))
                lines.append(f"Name {secret} (3)")
            case 3:
                lines.append(f"{secret} wrote at noon")  # visible only in a screenshot
                do(_PAUSE)
            case 4:
                do(typing(secret), f"https://mail.test/?to={quote(secret, safe='')}&page=2")
                lines.append(f"Found: {secret}, two days ago")
            case 5:
                do(typing(f"{secret}\n"), f"{secret[:half]}\n   {secret[half:]}")
                lines += [f"Please look at {secret[:half]}", f"{secret[half:]} again", ""]
            case 6:
                do(typing(secret), f"{secret[: 3 * len(secret) // 4]}…")
                lines.append(f"[{secret[: 3 * len(secret) // 4]}...]")
            case 7:
                do(_PAUSE, f"Mail of {secret}: answered")  # visible in a tree and in a screenshot
                lines.append(f"Mail of {secret}: answered")
    return steps, lines[-24:]


def write_canaries(root: Path, count: int) -> dict[str, str]:
    """Writes demonstrations with `count` secrets below `root`.

    Returns:
        Secret → kind of the secret.
    """
    secrets_by_kind = {kind: list(secrets_of(kind, 1 + count // len(KINDS))) for kind in KINDS}
    queue: list[tuple[str, str]] = []
    for secrets_of_kinds in zip(*secrets_by_kind.values(), strict=True):
        queue += zip(secrets_of_kinds, KINDS, strict=True)
    # The secrets are taken with a stride of 7, so that each kind is shown in each way.
    order = sorted(range(count), key=lambda n: (n * 7) % count)
    secrets = [queue[n] for n in order]
    for number, (look, start) in enumerate(zip(cycle(looks()), range(0, count, 15), strict=False)):
        part = [secret for secret, _ in secrets[start : start + 15]]
        steps, last = moments_of(part)
        folder = root / f"canaries_{number:02d}"
        recipient = part[0].upper() if number % 2 else part[0]
        instruction = f"Write {recipient} to all."
        write_trajectory(folder, steps, look, instruction=instruction, last=last)
    return dict(secrets)


def say_more(workspace: Workspace, secrets: Sequence[str]) -> None:
    """Adds reviewers' decisions that quote secrets: notes, instructions, thoughts and actions."""
    store = workspace.store
    reviews = workspace.reviews
    for number, output in enumerate(sorted(store.outputs("trajectories"))):
        name = output.partition("/")[2]
        folder, version = store.open(output)
        subject = subject_of(version, name)
        first = json.loads((folder / "steps/000/action.json").read_text())
        for kind, value in (
            ("note", {"step": None, "text": f"see {secrets[number]}"}),
            ("instruction", {"text": f"Ask {secrets[number]} whether all is well."}),
            ("thought", {"step": 0, "text": f"I write to {secrets[number]} first."}),
            ("action", {"action": {**first, "parameters": first["parameters"]}}),
        ):
            reviews.make(subject, folder, "somebody", kind, value)


def build(root: Path, trajectories: Path, secrets: Sequence[str]) -> Workspace:
    """Imports the demonstrations, and builds every stage and every kind of dataset."""
    (root / "uploads").mkdir(parents=True, exist_ok=True)
    lists = {"words": PRIVATE_WORDS, "expressions": (PRIVATE_EXPRESSION,)}
    workspace = open_workspace(
        root,
        privacy={"policy": "redact", **lists},
        datasets={"exports": BUILT_IN_EXPORTS},
    )
    run_dataset_stage(workspace, TASKS_STAGE)
    for importer, recording in find_recordings([trajectories]):
        given = Given(status="completed", platform="linux")
        outcome = import_trajectory(workspace, importer, recording, given)
        print_line(str(outcome))
    say_more(workspace, secrets)
    for output in workspace.store.outputs("records"):
        for name in ("annotations", "records"):
            build_stage(workspace, STAGE_BY_NAME[name], output.partition("/")[2])
    for stage in dataset_stages():
        if is_built(stage, workspace.settings):
            result = run_dataset_stage(workspace, stage)
            failed = [check for check in result.checks if not check.passed]
            print_line(f"{stage.name}: {result.status} {failed or ''}")
    return workspace


# --- searching for the secrets

_ESCAPED = re.compile(r"\\\\?(?:u00|x)([0-9a-fA-F]{2})")


def plain(text: str) -> str:
    """Returns a text in lower case, with escapes decoded and spaces removed, for the search."""
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    return "".join(unquote(html.unescape(text)).split()).casefold().replace("\\n", "")


def texts_below(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the name and the searchable text of each file except images.

    The text of a table includes the text of the cells.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in {".png", ".jpg", ".jpeg"}:
            text = path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".parquet":
                text += str(pq.read_table(path).to_pylist())
            yield str(path.relative_to(folder)), plain(f"{path.relative_to(folder)}\n{text}")


def _pictures_in(path: Path) -> Iterator[bytes]:
    """Yields the bytes of an image, or of all images in the cells of a table."""
    if path.suffix in {".png", ".jpg", ".jpeg"} and "plots" not in path.parts:
        yield path.read_bytes()
    pending = []
    if path.suffix == ".parquet":
        pending = pq.read_table(path).to_pylist()
    while pending:
        value = pending.pop()
        if isinstance(value, bytes):
            yield value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def pictures_below(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yields each distinct image once, with the name of its file.

    Screenshots come before images that were made from screenshots.
    """
    seen = set[str]()
    for path in sorted(folder.rglob("*"), key=lambda path: ("steps" not in path.parts, path)):
        for data in _pictures_in(path):
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
            if picture is None:
                continue
            digest = hashlib.sha256(picture.tobytes()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield str(path.relative_to(folder)), picture


def read_again(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the name of each image with all text that OCR recognises in it.

    The final screenshot of a demonstration is also read at twice its size, because it shows nearly
    all lines of the other screenshots.
    """
    reader = screenshot_texts.ScreenshotReader()
    for name, picture in pictures_below(folder):
        lines = reader.lines(picture)
        if "final" in name:
            large = cv2.resize(picture, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
            lines = [*lines, *reader.lines(large)]
        yield name, folded(" ".join(line.text for line in lines))


def pieces(secret: str) -> set[str]:
    """Returns the parts that must not be found: the first and the last three fifths of a secret.

    For a private key, only the body of the key counts.
    """
    body = _body(secret)
    size = max(8, 3 * len(body) // 5)
    return {body[:size], body[-size:]}


def words(secret: str) -> set[str]:
    """Returns the parts that must not be recognised in images.

    These are the parts that `pieces` returns, and the single words of the secret.
    """
    return pieces(secret) | set(re.findall(r"[a-z0-9]{5,}", _body(secret)))


def _body(secret: str) -> str:
    return re.sub(r"-+[a-z]*-+", "", secret) if "-" * 5 in secret else secret


def look(folder: Path, secrets: dict[str, str]) -> Counter[str]:
    """Counts the secrets that are found below a folder, by kind of secret and name of the file."""
    leaks = Counter[str]()
    sought = [
        (pieces(plain(secret)), set(map(folded, words(plain(secret)))), kind)
        for secret, kind in secrets.items()
    ]
    for name, text in texts_below(folder):
        for parts, _, kind in sought:
            if any(part in text for part in parts):
                leaks[f"{kind} in {name}"] += 1
    for name, text in read_again(folder):
        for _, parts, kind in sought:
            if any(part in text for part in parts):
                leaks[f"{kind} in the picture {name}"] += 1
    return leaks


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--secrets", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        started = time.monotonic()
        secrets = write_canaries(root / "made", given.secrets)
        workspace = build(root, root / "made", list(secrets))
        print_line(f"built after {time.monotonic() - started:.0f} s")
        export_datasets(workspace.store, root / "exported")
        leaks = look(root / "exported", secrets)
        for what, count in sorted(leaks.items()):
            print_line(f"LEAK {what}: {count}")
        files = sum(path.is_file() for path in (root / "exported").rglob("*"))
        demonstrations = len(list((root / "made").iterdir()))
        left = len(list((root / "exported/dataset/trajectories").glob("*")))
        print_line(
            f"{len(secrets)} secrets in {demonstrations} demonstrations, {left} of them exported"
        )
        print_line(f"{files} files, {sum(leaks.values())} leaks")
        print_line(f"{time.monotonic() - started:.0f} s")
    return bool(leaks) or left < demonstrations


if __name__ == "__main__":
    sys.exit(main())
