"""Validating a CUDAG dataset: the walk over its directories and files.

Not here: rules for one record (record_rules.py, coordinates.py), between records (cross_checks.py)
and for extra files (config.py, sidecars.py, split_checks.py).

Locations are those of the CUDAG document: `train.jsonl:42` is line 42 of the file; `test.json:5` is
the fifth entry of the array in `test/test.json`, counted from 1; `test/` and `./` are directories.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_array import LineArray
from demo_pipeline.common.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.common.known_lines import KnownLines
from demo_pipeline.common.line_index import index_lines
from demo_pipeline.formats.cudag.config import config_faults, count_faults, is_ours
from demo_pipeline.formats.cudag.cross_checks import (
    CudagInventory,
    RecordPosition,
    missing_record,
)
from demo_pipeline.formats.cudag.fault import CudagFault, json_fault, printable
from demo_pipeline.formats.cudag.images import image_faults, is_kind, open_image
from demo_pipeline.formats.cudag.models import DIRECTORY_PATTERN
from demo_pipeline.formats.cudag.record_keys import (
    RecordKeys,
    record_keys,
    record_line_keys,
    test_keys,
    test_line_keys,
)
from demo_pipeline.formats.cudag.record_rules import eval_faults, training_faults
from demo_pipeline.formats.cudag.required_files import required_file_faults
from demo_pipeline.formats.cudag.sidecars import TEST_RECORDS, sidecar_faults
from demo_pipeline.formats.cudag.split_checks import report_faults
from demo_pipeline.formats.cudag.tests_as_records import conversation_faults
from demo_pipeline.problems import Problem, Severity

SPLITS = ("train", "val", "held_out")


def validate_cudag(path: Path, known: KnownLines | None = None) -> list[Problem]:
    """The problems of a dataset, in the order of its files.

    A dataset that this pipeline made (by `generator` in config.json) must follow all rules. Another
    one must follow the CUDAG document; breaking a rule of this pipeline is a warning or ignored
    (see `Scope`).

    Args:
        path: the dataset's directory, or a link to it.
        known: lines of splits that were found valid before, with their images.
    """
    if not is_kind(path, "dir"):
        return [
            Problem(
                "not_a_directory",
                "./",
                "is not a directory",
                remedy="give the directory of a dataset",
            )
        ]
    validation = _Validation(path, known or KnownLines())
    validation.check_layout()
    validation.check_config()
    for split in SPLITS:
        validation.check_lines(f"{split}.jsonl", split)
    validation.check_tests()
    validation.check_lines("data.jsonl", None)
    validation.check_all_records()
    return validation.problems


def validate_cudag_file(path: Path) -> list[Problem]:
    """The problems of one file of records in a dataset; nothing is compared with other files.

    Args:
        path: `train.jsonl` or another one beside `images/`, or `test/records.jsonl`.
    """
    in_test = path.parent.name == "test" and path.name == Path(TEST_RECORDS).name
    validation = _Validation(path.parent.parent if in_test else path.parent)
    validation.check_config()
    if in_test:
        validation.check_tests()
    else:
        validation.check_lines(path.name, path.stem)
        if not validation.inventory.records and not validation.problems:
            message = "the file has no record"
            validation.problems.append(
                Problem("no_records", path.name, message, severity=Severity.WARNING)
            )
    return validation.problems


@dataclass(slots=True)
class _Validation:
    """The state of one validation."""

    root: Path
    known: KnownLines = field(default_factory=KnownLines)
    problems: list[Problem] = field(default_factory=list)
    inventory: CudagInventory = field(default_factory=CudagInventory)
    configuration: dict[str, Any] = field(default_factory=dict)
    ours: bool = False

    def report(self, file: str, line: int | None, faults: Iterable[CudagFault]) -> None:
        for fault in faults:
            if problem := fault.problem(file, line, ours=self.ours):
                self.problems.append(problem)

    def check_layout(self) -> None:
        """Check required and optional files and directories."""
        name = self.root.absolute().name
        if not DIRECTORY_PATTERN.fullmatch(name):
            text = "directory name is not {prefix}--{user}--{YYYYMMDD_HHMMSS}"
            self.problems.append(Problem("directory_name", "./", text, severity=Severity.WARNING))
        for file, line, fault in required_file_faults(self.root):
            self.report(file, line, [fault])

    def check_config(self) -> None:
        """Check the configuration, which names the generator of the dataset."""
        value = self._load("config.json", "config.json")
        if isinstance(value, dict):
            self.configuration, self.ours = value, is_ours(value)
            self.report("config.json", None, config_faults(value))
        elif value is not None:
            self.report("config.json", None, [CudagFault("config", "must be a JSON object")])

    def _load(self, path: str, name: str) -> Any:
        """The value of a JSON file; None if it is missing or, as reported, cannot be read."""
        if not is_kind(self.root / path, "file"):
            return None
        try:
            value = load_json(self.root / path, name)
        except JsonFileError as error:
            self.report(name, error.line, [json_fault(error)])
            return None
        if value is None:
            self.report(name, None, [CudagFault("invalid_json", "must not be null")])
        return value

    def check_lines(self, file: str, split: str | None) -> None:
        """Check a file of records; `split` None: data.jsonl, which is compared with the splits."""
        if not is_kind(self.root / file, "file"):
            return
        _, digests = index_lines(self.root / file)
        if split is None:
            self.inventory.is_union = self.inventory.has_lines(digests)
            are_valid = all(known is not None for known in self.known.any_facts(digests))
            if self.inventory.is_union and are_valid:
                return
        # Lines of data.jsonl that a split has were found valid there.
        facts = self.known.any_facts(digests) if split is None else self.known.facts(digests)
        with (self.root / file).open("rb") as source:
            lines = zip(source, digests, facts, strict=True)
            for number, (raw, digest, known) in enumerate(lines, start=1):
                if raw.strip():
                    self._line((file, number), split, (raw, digest, known))

    def _line(
        self, position: RecordPosition, split: str | None, line: tuple[bytes, bytes, bytes | None]
    ) -> None:
        """Check a line, given with its digest and what is known of it."""
        raw, digest, image = line
        keys = record_line_keys(raw) if image is not None and split is not None else None
        if keys is None:
            try:
                record = parse_json(raw, position[0])
            except JsonFileError as error:
                self.report(*position, [json_fault(error)])
                return
            if image is None:
                image = self._training_record(position, split, record, digest)
            if not isinstance(record, dict):
                return
            keys = record_keys(record)
        if split is None:
            self.report(*position, self.inventory.add_data_line(position, keys.name, digest))
        else:
            faults = self.inventory.add(split, position, keys, image or None, digest)
            self.report(*position, faults)

    def _training_record(
        self, position: RecordPosition, split: str | None, record: Any, digest: bytes
    ) -> bytes | None:
        """Check a record by itself; returns the digest of its image."""
        before = len(self.problems)
        self.report(*position, training_faults(record))
        if not isinstance(record, dict):
            return None
        image = self._image(position, "", record.get("image"), record.get("metadata"))
        if split is not None and len(self.problems) == before:
            self.known.add_found(digest, image or b"")
        return image

    def check_tests(self) -> None:
        """Check the tests; the line of a problem is the 1-based number of the entry."""
        path = self.root / "test" / "test.json"
        lines = LineArray.of(path, self.known) if is_kind(path, "file") else None
        entries = self._load("test/test.json", "test.json") if lines is None else lines
        if not isinstance(entries, list | LineArray):
            if entries is not None:
                self.report("test.json", None, [CudagFault("tests", "must be a JSON array")])
            return
        for number, (entry, line) in enumerate(self._tests(entries), start=1):
            self._test(("test.json", number), entry, line)
        if self.ours:
            for file, place, fault in conversation_faults(self.root, entries, self.known):
                self.report(file, place, [fault])

    def _tests(
        self, entries: "list[Any] | LineArray"
    ) -> Iterator[tuple[Any, tuple[bytes, bytes | None]]]:
        """Yield the tests, each with the digest of its line, if it has one, and what is known.

        Of a test that is known to be valid its keys.
        """
        if not isinstance(entries, LineArray):
            yield from ((entry, (b"", None)) for entry in entries)
            return
        found = (entries.lines(), entries.digests, self.known.facts(entries.digests))
        for line, digest, known in zip(*found, strict=True):
            keys = test_line_keys(line) if known is not None else None
            yield keys or parse_json(line, "test.json"), (digest, known)

    def _test(self, position: RecordPosition, entry: Any, line: tuple[bytes, bytes | None]) -> None:
        """Check an entry of test.json, or take its keys."""
        digest, image = line
        if not isinstance(entry, RecordKeys):
            before = len(self.problems)
            self.report(*position, eval_faults(entry))
            if not isinstance(entry, dict):
                return
            if image is None:
                name, metadata = entry.get("screenshot"), entry.get("metadata")
                image = self._image(position, "test/", name, metadata)
            if digest and len(self.problems) == before:
                self.known.add_found(digest, image or b"")
            entry = test_keys(entry)
        self.report(*position, self.inventory.add("test", position, entry, image or None))

    def _image(
        self, position: RecordPosition, folder: str, name: object, metadata: object
    ) -> bytes | None:
        """Check that the image exists, opens and has the declared size; returns its digest."""
        if not isinstance(name, str) or not name.startswith("images/") or ".." in name.split("/"):
            return None
        key = folder + name
        image = open_image(self.root / folder, name)
        if image.info is None:
            self.report(*position, [CudagFault("image", f"{image.fault}: {printable(key)}")])
        else:
            self.report(*position, image_faults(image.info, name, metadata))
        return image.digest

    def check_all_records(self) -> None:
        """Check the rules that need all records."""
        for position, name in self._missing_from_data():
            self.report(*position, [missing_record(name)])
        self.report("./", None, self.inventory.shared_image_warnings())
        if self.ours:
            counted = self.inventory.task_types
            self.report("config.json", None, count_faults(self.configuration, counted))
            for file, line, fault in sidecar_faults(self.root, self.configuration):
                self.report(file, line, [fault])
            for file, line, fault in report_faults(self.root, self.configuration, self.inventory):
                self.report(file, line, [fault])

    def _missing_from_data(self) -> Iterator[tuple[RecordPosition, str]]:
        """Yield position and id of the records that data.jsonl does not have."""
        for file, positions in groupby(self.inventory.missing_from_data(), key=itemgetter(0)):
            lines = {line for _, line in positions}
            with (self.root / file).open("rb") as source:
                for number, raw in enumerate(source, start=1):
                    if number in lines:
                        yield (file, number), parse_json(raw, file)["id"]
