"""Renders an output folder as text that is the same on every machine and readable as a diff."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq

from demo_pipeline import __version__

DECIMALS = 4
LONGEST_TEXT = 240  # characters; a longer text is shown by its beginning and its hash
LONGEST_VALUE = 600  # characters; a longer nested JSON value is shown by its hash
MOST_ROWS = 120  # rows; a longer table is shown by counts and a hash
PICTURES = {".png", ".jpg"}
# The package's version is replaced, so that a release does not change the golden outputs.
OWN_VERSION = {
    f"demo_pipeline {__version__}": "demo_pipeline VERSION",
    f'"name": "demo_pipeline", "version": "{__version__}"': '"name": "demo_pipeline"',
}


def render_folder(folder: Path) -> str:
    """Renders all files of an output, ordered by path.

    Pictures are shown by hashes of their pixels, trees by a hash and a summary, and rows as compact
    JSON. A long row that an earlier file also contains is shown as a reference to that file.
    """
    seen: dict[str, str] = {}
    lines = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            lines.append(f"{name} -> a link")
        elif path.is_file():
            lines += _render_file(path, name, seen)
    return "\n".join(lines) + "\n"


def render_values(values: Mapping[str, Any]) -> str:
    """Renders a JSON object with a line for each key."""
    return "".join(f"{key} {_compact(value)}\n" for key, value in sorted(values.items()))


def _render_file(path: Path, name: str, seen: dict[str, str]) -> list[str]:
    if path.suffix in PICTURES:
        return [f"{name} {_pixels(path.read_bytes())}"]
    if path.suffix == ".sha256":  # hashes of image files, whose bytes depend on the encoder
        return [f"{name} {len(path.read_text('utf-8').splitlines())} lines"]
    if path.suffix == ".parquet":
        body = list(_table(path))
    elif path.suffix == ".jsonl":
        body = [_compact(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    elif path.suffix == ".json":
        body = list(_document(json.loads(path.read_text("utf-8"))))
    else:
        lines = _without_version(path.read_text("utf-8")).splitlines()
        return [f"{name}:", *(f"  {line}".rstrip() for line in lines)]
    if len(body) == 1:
        return [f"{name} {body[0]}"]
    return [f"{name}:", *_without_repeats(body, name, seen)]


def _without_repeats(body: list[str], name: str, seen: dict[str, str]) -> Iterator[str]:
    for number, line in enumerate(body, 1):
        place = f"{name}:{number}"
        first_place = place
        if len(line) > LONGEST_TEXT:
            first_place = seen.setdefault(line, place)
        if first_place == place:
            yield f"  {line}"
        else:
            yield f"  = {first_place}"


def _without_version(text: str) -> str:
    for own, neutral in OWN_VERSION.items():
        text = text.replace(own, neutral)
    return text


@cache
def _pixels(data: bytes) -> str:
    """Returns size and hash of the decoded picture, which do not depend on its compression."""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert picture is not None
    height, width, *channels = picture.shape
    size = f"{width}x{height}x{channels[0] if channels else 1}"
    return f"{size} pixels {_short_hash(picture.tobytes())}"


def _table(path: Path) -> Iterator[str]:
    """Yields the columns with their types, and a line for each row.

    For a long table, counts and a hash of the rows replace the rows.
    """
    table = pq.read_table(path)
    for field in table.schema:
        yield f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"
    rows = table.to_pylist()
    yield f"{len(rows)} rows"
    if len(rows) <= MOST_ROWS:
        yield from (_compact(_without_nulls(row)) for row in rows)
        return
    for field in table.schema:
        yield f"{field.name}: {_spread([row[field.name] for row in rows])}"
    yield f"rows {_short_hash(''.join(map(_canonical, rows)).encode())}"


def _spread(values: list[Any]) -> str:
    """Summarizes a long column: its most common values or its range, and the number of nulls."""
    present = [value for value in values if value is not None]
    nulls = f", {len(values) - len(present)} null" if len(present) < len(values) else ""
    numbers = present and all(isinstance(value, int | float) for value in present)
    if numbers and len(set(present)) > len(present) // 8:
        return f"{_compact(min(present))} to {_compact(max(present))}{nulls}"
    counts = sorted(Counter(map(_compact, present)).items(), key=lambda item: (-item[1], item[0]))
    commonest = ", ".join(f"{value} x{count}" for value, count in counts[:12])
    rest = f", {len(counts) - 12} more" if len(counts) > 12 else ""
    return f"{commonest}{rest}{nulls}"


def _document(value: Any) -> Iterator[str]:
    """Yields the lines of a JSON file: a summary of a UI tree, otherwise a line for each entry."""
    if isinstance(value, dict) and "root" in value and "screen" in value:
        yield _tree_summary(value)
    elif isinstance(value, dict):
        yield from (f"{json.dumps(key)}: {_compact(entry)}" for key, entry in value.items())
    elif isinstance(value, list):
        yield from map(_compact, value)
    else:
        yield _compact(value)


def _tree_summary(tree: Mapping[str, Any]) -> str:
    roles: Counter[str] = Counter()
    windows = []
    deepest = 0
    pending = [(tree["root"], 1)]
    while pending:
        node, depth = pending.pop()
        roles[node["role"]] += 1
        deepest = max(deepest, depth)
        if node["role"] == "window":
            windows.append(node["name"])
        pending += [(child, depth + 1) for child in node.get("children", ())]
    counts = " ".join(f"{role}={count}" for role, count in sorted(roles.items()))
    return (
        f"{tree.get('timestamp')} tree {_short_hash(_canonical(tree).encode())} "
        f"{roles.total()} nodes, {deepest} deep, {counts}, windows {_compact(sorted(windows))}"
    )


def _compact(value: Any) -> str:
    short = _shortened(_rounded(value), outermost=True)
    return _without_version(json.dumps(short, ensure_ascii=False))


def _canonical(value: Any) -> str:
    return json.dumps(_rounded(value), sort_keys=True, separators=(",", ":"))


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0  # adding 0.0 turns a negative zero into zero
    if isinstance(value, Mapping):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _shortened(value: Any, *, outermost: bool = False) -> Any:
    """Replaces long texts, and the innermost long lists and objects, by hashes."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:80]}… {len(value)} characters {_short_hash(value.encode())}"
    if not isinstance(value, dict | list):
        return value
    if isinstance(value, dict):
        short: Any = {key: _shortened(entry) for key, entry in value.items()}
    else:
        short = [_shortened(entry) for entry in value]
    if outermost or len(_canonical(short)) <= LONGEST_VALUE:
        return short
    return f"… {len(value)} entries {_short_hash(_canonical(value).encode())}"


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
