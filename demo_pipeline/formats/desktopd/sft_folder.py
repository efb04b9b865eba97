"""Validating a folder of SFT samples: every file that a trainer loads.

Belongs here: `samples.jsonl`, the splits, and the same as Parquet. Not here: one sample
(sft_validator.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.known_lines import KnownLines
from demo_pipeline.common.table_rows import table_problems
from demo_pipeline.formats.desktopd.sft_validator import SftReader, validate_sft
from demo_pipeline.problems import Problem

SAMPLES_STEM = "samples"
SPLIT_STEMS = ("train", "val", "test")
HELD_OUT_STEM = "held_out"
_REMEDY = "build the export again"
_PLAIN = ("instruction", "screenshot", "ui_tree", "reasoning")
_JSON = ("history", "action")


def validate_sft_folder(
    root: Path, dataset: Path | None = None, known: KnownLines | None = None
) -> list[Problem]:
    """The problems of a folder of samples.

    `samples.jsonl` is the union of the splits, if there are any, and a Parquet file has the samples
    of the JSON Lines of the same name. Files are relative to `root`.

    Args:
        root: the folder.
        dataset: the dataset that paths in samples are relative to, as for `validate_sft`.
        known: lines that were found valid before, with their rows and the files that they name.
    """
    stems = (SAMPLES_STEM, *SPLIT_STEMS, HELD_OUT_STEM)
    present = [stem for stem in stems if (root / f"{stem}.jsonl").is_file()]
    if not present:
        return validate_sft(root / f"{SAMPLES_STEM}.jsonl", dataset)
    problems: list[Problem] = []
    reader = SftReader(root / f"{present[0]}.jsonl", dataset, known)
    for stem in present:
        problems += reader.read(root / f"{stem}.jsonl", new=stem == SAMPLES_STEM)
    splits = [stem for stem in present if stem != SAMPLES_STEM]
    if splits:
        problems += _missing(root, SPLIT_STEMS, ".jsonl")
        if SAMPLES_STEM in present:
            problems += reader.in_no_split(f"{SAMPLES_STEM}.jsonl")
    if any((root / f"{stem}.parquet").is_file() for stem in stems):
        problems += _missing(root, present, ".parquet")
        for stem in present:
            name, table = f"{stem}.jsonl", root / f"{stem}.parquet"
            problems += table_problems(reader.lines[name], table, _differing, reader.fresh[name])
    return problems


def _missing(root: Path, stems: Sequence[str], suffix: str) -> list[Problem]:
    return [
        Problem("missing_file", f"{stem}{suffix}", "the file is missing", remedy=_REMEDY)
        for stem in stems
        if not (root / f"{stem}{suffix}").is_file()
    ]


def _differing(line: Any, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a row that differ from its line; a line of another form has none."""
    given, answer = _part(line, "input"), _part(line, "output")
    values = {**given, **answer}
    for name in _PLAIN:
        if isinstance(values.get(name), str) and row.get(name) != values[name]:
            yield name
    for name in _JSON:
        text = row.get(name)
        try:
            same = isinstance(text, str) and parse_json(text, name) == values.get(name)
        except JsonFileError:
            same = False
        if not same:
            yield name


def _part(line: Any, key: str) -> Mapping[str, Any]:
    value = line.get(key) if isinstance(line, dict) else None
    return value if isinstance(value, dict) else {}
