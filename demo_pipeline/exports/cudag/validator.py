"""Validates CUDAG datasets, of this pipeline or of other generators.

This module compares records with each other, and checks directories and files. record_rules.py
checks single records.

Problems name their locations as in the CUDAG specification: `train.jsonl:42` is line 42 of the
file, `test.json:5` is the fifth entry of the array in `test/test.json`, and `test/` and `./` are
directories.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_pipeline.exports.cudag.models import (
    DIRECTORY_PATTERN,
    GENERATOR,
    HASHED,
    RECORD_FILES,
    REPORT_FILE,
    to_ru,
)
from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    CudagFault,
    Scope,
    eval_faults,
    json_fault,
    member,
    ours,
    picture_faults,
    picture_name,
    printable,
    shared,
    training_faults,
)
from demo_pipeline.exports.record_checks import NamedFiles, no_records
from demo_pipeline.exports.tool_calls import ToolCallError, is_number, is_pair, parse_tool_calls
from demo_pipeline.files.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.problems import Problem, Severity

_REMEDY = "build the dataset again"
_UNION_REMEDY = "make data.jsonl the union of train, val and held_out"
_OUR_FILES = (REPORT_FILE, "system_prompt.txt", "tools.json", "dataset_info.json")
_TESTS = RECORD_FILES["test"]  # test records as conversations; only in our datasets
# Required files and directories: the kind, the parent directory as shown in problems, and the name.
_REQUIRED = (
    ("directory", "./", "images/"),
    ("directory", "./", "test/"),
    ("directory", "test/", "images/"),
    ("file", "./", "config.json"),
    ("file", "./", "data.jsonl"),
    ("file", "./", "train.jsonl"),
    ("file", "./", "val.jsonl"),
    ("file", "test/", "test.json"),
)
_REMEDIES = {  # remedies for missing paths
    "test/images/": "save test images to test/images/, not to a directory of another name",
    "test/": "create test/ with test.json and images/",
}


def validate_cudag(path: Path) -> list[Problem]:
    """Returns the problems of a dataset, in the order of its files.

    A dataset of this pipeline (see `generator` in config.json) must follow all rules. For datasets
    of other generators, see `Scope`.
    """
    if not _is_kind(path, "directory"):
        remedy = "give the directory of a dataset"
        return [Problem("not_a_directory", "./", "is not a directory", remedy=remedy)]
    validation = _Validation(path)
    validation.check_layout()
    validation.check_config()
    for split in ("train", "val", "held_out"):
        validation.check_lines(f"{split}.jsonl", split)
    validation.check_tests()
    validation.check_data()
    validation.check_others()
    return validation.problems


def validate_cudag_file(path: Path) -> list[Problem]:
    """Returns the problems of a single file of records, without a comparison with other splits.

    Args:
        path: `train.jsonl` or another file next to `images/`, or `test/records.jsonl`. The latter
            is checked together with `test/test.json`.
    """
    in_test = path.parent.name == "test" and path.name == Path(_TESTS).name
    if in_test:
        validation = _Validation(path.parent.parent)
        validation.check_config()
        validation.check_tests()
        return validation.problems
    validation = _Validation(path.parent)
    validation.check_config()
    validation.check_lines(path.name, path.stem)
    if not validation.records and not validation.problems:
        return [no_records(path.name)]
    return validation.problems


class _RecordPlace(NamedTuple):
    """The location of a record.

    Attributes:
        split: the split of the record.
        file: name of the file as shown in problems.
        line: 1-based number of the line, or of the entry in test.json.
    """

    split: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _digest(content: str | bytes) -> bytes:
    """Returns a 16-byte hash of a content. A text may contain lone surrogates, as JSON allows."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


class _Validation:
    """Checks the parts of a dataset, and collects the problems.

    Attributes:
        root: directory of the dataset.
        files: reads the images of records.
        problems: all problems so far.
        records: number of records so far by split.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = NamedFiles.below(root)
        self.problems: list[Problem] = []
        self.records = Counter[str]()
        self._config: dict[str, Any] = {}
        self._ours = False  # whether this pipeline wrote the dataset
        # Maps a kind of value, such as "id", and a value to the first record with this value.
        self._first: dict[tuple[str, str | bytes], _RecordPlace] = {}
        # Maps the SHA-256 of an image to two records of different splits that have this image.
        self._shared: dict[str, tuple[_RecordPlace, _RecordPlace]] = {}
        # Maps the hash of each line of train, val and held_out to the record id in the line.
        self._lines: dict[bytes, object] = {}
        self._data: dict[str, int] = {}  # maps record ids to their first line in data.jsonl

    def _report(self, file: str, line: int | None, *faults: CudagFault) -> None:
        """Adds a problem for each fault whose rule applies to the dataset."""
        problems = (fault.problem(file, line, ours=self._ours) for fault in faults)
        self.problems += [problem for problem in problems if problem]

    def check_layout(self) -> None:
        """Checks the name of the directory, and that required files and directories exist."""
        if not DIRECTORY_PATTERN.fullmatch(self.root.absolute().name):
            text = "directory name is not {prefix}--{user}--{YYYYMMDD_HHMMSS}"
            self.problems.append(Problem("directory_name", "./", text, severity=Severity.WARNING))
        for kind, folder, name in _REQUIRED:
            where = f"{folder}{name}".removeprefix("./")
            if not _is_kind(self.root / where, kind):
                other = f" (not a {kind})" if (self.root / where).exists() else ""
                message = f"Missing required {kind}: {name}{other}"
                remedy = _REMEDIES.get(where, f"add {where}")
                self._report(folder, None, CudagFault(f"missing_{kind}", message, remedy))
        for path, kind, place, message in (
            ("held_out.jsonl", "file", "held_out.jsonl", "must be a file"),
            ("test/annotated", "directory", "test/", "annotated/ must be a directory"),
        ):
            if (self.root / path).exists() and not _is_kind(self.root / path, kind):
                self._report(place, None, CudagFault(f"not_a_{kind}", message))

    def check_config(self) -> None:
        """Checks config.json, which names the generator of the dataset."""
        value = self._load("config.json", "config.json")
        if isinstance(value, dict):
            self._ours = value.get("generator") == GENERATOR
            self._config = value
        elif value is not None:
            self._report("config.json", None, CudagFault("config", "must be a JSON object"))

    def _load(self, path: str, name: str, scope: Scope = Scope.FORMAT) -> Any:
        """Returns the value of a JSON file; None if it is missing or invalid.

        Args:
            path: path of the file in the dataset.
            name: name of the file in problems.
            scope: scope of the fault that is reported if the file is invalid.
        """
        if not _is_kind(self.root / path, "file"):
            return None
        try:
            value = load_json(self.root / path, name)
        except JsonFileError as error:
            self._report(name, error.line, json_fault(error, scope))
            return None
        if value is None:
            self._report(name, None, CudagFault("invalid_json", "must not be null", scope=scope))
        return value

    def _each_line(self, file: str) -> Iterator[tuple[int, bytes, bytes]]:
        """Yields number, bytes and hash of each non-blank line; nothing if the file is missing."""
        if _is_kind(self.root / file, "file"):
            with (self.root / file).open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if text := line.strip():
                        yield number, line, _digest(text)

    def _record(self, file: str, number: int, line: bytes) -> dict[str, Any] | None:
        """Reports the faults of a line; returns its JSON value, or None if it is not an object."""
        try:
            record = parse_json(line, file)
        except JsonFileError as error:
            self._report(file, number, json_fault(error))
            return None
        self._report(file, number, *training_faults(record))
        self._report(file, number, *picture_faults(record, "image", self.files, ""))
        return record if isinstance(record, dict) else None

    def check_lines(self, file: str, split: str) -> None:
        """Checks the records in the file of a split."""
        for number, line, digest in self._each_line(file):
            record = self._record(file, number, line)
            self._lines[digest] = record.get("id") if record else None
            if record is not None:
                here = _RecordPlace(split, file, number)
                self._report(file, number, *self._repeated(here, record, "id", "image"))

    def check_tests(self) -> None:
        """Checks the entries of test.json and, if the dataset is ours, test/records.jsonl."""
        file = "test.json"
        entries = self._load("test/test.json", file)
        if not isinstance(entries, list):
            if entries is not None:
                self._report(file, None, CudagFault("tests", "must be a JSON array"))
            return
        for number, entry in enumerate(entries, start=1):
            self._report(file, number, *eval_faults(entry))
            self._report(file, number, *picture_faults(entry, "screenshot", self.files, "test/"))
            if isinstance(entry, dict):
                here = _RecordPlace("test", file, number)
                repetitions = self._repeated(here, entry, "test_id", "screenshot")
                self._report(file, number, *repetitions)
        if self._ours and self._require(_TESTS):
            self._check_conversations(entries)

    def _require(self, name: str) -> bool:
        """Returns whether a file exists. In our datasets, a missing file is reported."""
        if not (self.root / name).is_file():
            fault = ours("missing_file", f"Missing required file: {name}", _REMEDY)
            self._report("./", None, fault)
        return (self.root / name).is_file()

    def _check_conversations(self, tests: Sequence[object]) -> None:
        """Checks test/records.jsonl against the entries of test.json.

        test/records.jsonl must have a line for each entry, in the same order, and a line for each
        action without a position.
        """
        remaining_tests = iter(tests)
        lines_with_place = 0
        with (self.root / _TESTS).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                test = None
                if _has_place(line):
                    test = next(remaining_tests, None)
                    lines_with_place += 1
                self._report(_TESTS, number, *_line_faults(line, test))
        if lines_with_place != len(tests):
            message = (
                f"has {lines_with_place} lines with a place for {len(tests)} entries of test.json"
            )
            self._report(_TESTS, None, ours("test_records", message, _REMEDY))

    def _repeated(
        self, here: _RecordPlace, record: Mapping[str, Any], id_key: str, image_key: str
    ) -> Iterator[CudagFault]:
        """Counts a record, and yields the faults that only a comparison with earlier records shows.

        Ids and image paths must be unique. All records of a trajectory must be in the same split.
        The same image with the same prompt must not be in two splits.

        Args:
            record: the record; its values may have any type.
            id_key: the key of the record's id.
            image_key: the key of the path of the record's image.
        """
        name = record.get(id_key)
        path = record.get(image_key)
        trajectory = member(record, "metadata", "trajectory_id")
        self.records[here.split] += 1
        if isinstance(name, str) and (first := self._seen("id", name, here)) != here:
            is_of_test = "test" in {first.split, here.split} and first.split != here.split
            scope = Scope.SHARED if is_of_test else Scope.FORMAT
            message = f"{id_key} '{printable(name)}' is not unique, first at {first}"
            yield CudagFault("duplicate_id", message, "rename one of them", scope)
        if isinstance(path, str) and (first := self._seen("path", path, here)) != here:
            message = f"image {printable(path)} is not unique, first at {first}"
            yield ours("duplicate_image", message, "give every record an image of its own")
        if isinstance(trajectory, str) and trajectory:
            first = self._seen("trajectory", trajectory, here)
            if first.split != here.split:
                split = f"{first.split} ({first})"
                message = f"trajectory '{printable(trajectory)}' is also in split {split}"
                remedy = "put all records of a trajectory into one split"
                yield shared("split_overlap", message, remedy)
        image = picture_name(record, image_key)
        folder = ""
        if here.split == "test":
            folder = "test/"
        if image is None or isinstance(self.files.picture(folder + image), str):
            return
        digest = self.files.digest(folder + image)
        first = self._seen("image", digest, here)
        if first.split != here.split:
            self._shared.setdefault(digest, (first, here))
        prompt = member(record, "conversations", 0, "value") or record.get("prompt")
        if isinstance(prompt, str):
            key = _digest(digest + prompt.removeprefix(HUMAN_START))
            first = self._seen("question", key, here)
            if first.split != here.split:
                message = f"same image and prompt as {first} in split {first.split}"
                yield shared("split_leak", message, "put all records of a task into one split")

    def _seen(self, kind: str, key: str | bytes, here: _RecordPlace) -> _RecordPlace:
        """Returns the first record with this key; `here` if no earlier record has the key."""
        return self._first.setdefault((kind, key), here)

    def check_data(self) -> None:
        """Checks that data.jsonl is the union of train, val and held_out.

        Lines that equal a line of these splits are not checked again.
        """
        file = "data.jsonl"
        for number, line, digest in self._each_line(file):
            is_same = digest in self._lines
            record = None if is_same else self._record(file, number, line)
            name = self._lines[digest] if is_same else record and record.get("id")
            if not isinstance(name, str):
                continue
            first = self._data.setdefault(name, number)
            place = self._first.get(("id", name))
            if first != number:
                message = f"id '{printable(name)}' is not unique, first at data.jsonl:{first}"
                self._report(file, number, CudagFault("duplicate_id", message))
            elif place is None or place.split == "test":
                message = f"record '{printable(name)}' is in no split"
                self._report(file, number, shared("data_union", message, _UNION_REMEDY))
            elif not is_same:
                message = f"record '{printable(name)}' differs from {place}"
                self._report(file, number, shared("data_union", message, _UNION_REMEDY))
        for (kind, key), place in self._first.items():
            if kind == "id" and place.split != "test" and key not in self._data:
                message = f"record '{printable(str(key))}' is missing from data.jsonl"
                fault = shared("data_union", message, _UNION_REMEDY)
                self._report(place.file, place.line, fault)

    def check_others(self) -> None:
        """Warns about images in two splits, and checks the files that only our datasets have."""
        # One warning covers all images, because many demonstrations start with the same desktop.
        if self._shared:
            count = len(self._shared)
            (first, other) = next(iter(self._shared.values()))
            subject = "1 image is"
            if count > 1:
                subject = f"{count} images are"
            message = f"{subject} in more than one split, first {other}, the same as {first}"
            remedy = "check that these images do not show the answers"
            self._report("./", None, CudagFault("shared_image", message, remedy, Scope.NOTE))
        if not self._ours:
            return
        for name in filter(self._require, _OUR_FILES):
            if not name.endswith(".json"):
                continue
            value = self._load(name, name, Scope.OURS)
            if name == REPORT_FILE and value is not None:
                self._report(name, None, *self._report_faults(value))

    def _report_faults(self, report: Any) -> Iterator[CudagFault]:
        """Yields the faults of the split report.

        The faults are:
        - A trajectory with records in a split is not listed for this split in the report.
        - A task group is in two splits.
        - A split with a ratio above 0 has no records, although the report lists task groups.
        """
        groups: dict[str, _RecordPlace] = {}
        members = member(report, "trajectories")
        for (kind, key), place in self._first.items():
            if kind != "trajectory":
                continue
            listed = member(members, key)
            if member(listed, "split") != place.split:
                message = f"trajectory '{printable(str(key))}' of {place} is not listed so"
                yield ours("split_report", message, _REMEDY)
            if isinstance(group := member(listed, "group"), str):
                other = groups.setdefault(group, place)
                if other.split != place.split:
                    both = f"{other.split} ({other}) and in {place.split} ({place})"
                    yield ours("split_overlap", f"group '{printable(group)}' is in {both}", _REMEDY)
        counts = {split: member(report, "splits", split, "groups") for split in RECORD_FILES}
        if not any(counts.values()):
            return
        for split in HASHED:
            ratio = member(self._config, "split_ratios", split)
            if self.records[split] or not is_number(ratio) or not ratio:
                continue
            reason = "there are too few task groups to give it one"
            if counts[split]:
                reason = (
                    f"every record of its {counts[split]} task groups was left out: see excluded"
                )
            message = f"{split} is empty: {reason}"
            remedy = f"record more tasks, or set datasets.{split}_ratio to 0"
            yield CudagFault("empty_split", message, remedy, Scope.NOTE)


def _is_kind(path: Path, wanted: str) -> bool:
    """Returns whether a path is a `file` or a `directory`; invalid paths are neither."""
    try:
        return path.is_file() if wanted == "file" else path.is_dir()
    except (OSError, ValueError):
        return False


def _has_place(line: bytes) -> bool:
    """Returns whether the action in a line has a position, and thus an entry in test.json."""
    try:
        return bool(member(parse_json(line, _TESTS), "metadata", "has_coordinate"))
    except JsonFileError:
        return False


def _person_place(metadata: object) -> list[int]:
    """Returns `person_coords` of a test's metadata in RU, or [] if it is missing or invalid."""
    pixel = member(metadata, "person_coords")
    size = member(metadata, "image_size")
    if not is_pair(pixel) or not is_pair(size) or min(size) <= 0:
        return []
    return [*to_ru(pixel[0], pixel[1], (size[0], size[1]))]


def _line_faults(line: bytes, test: object) -> Iterator[CudagFault]:
    """Yields the faults of a line of test/records.jsonl.

    If the line itself is valid, its differences from the entry of test.json are the faults.

    Args:
        test: the entry of test.json; None for an action without a test.
    """
    try:
        record = parse_json(line, _TESTS)
    except JsonFileError as error:
        yield json_fault(error, Scope.OURS)
        return
    if isinstance(image := member(record, "image"), str):
        record = {**record, "image": image.removeprefix("test/")}
    faults = list(training_faults(record))
    yield from faults
    if faults or not isinstance(test, dict):
        return
    human, answer = (turn["value"] for turn in record["conversations"])
    expected = test.get("expected_action")
    try:
        call = parse_tool_calls(answer)[-1].as_dict()
    except ToolCallError:
        call = {}
    place = member(call, "arguments", "coordinate")
    tested = test.get("metadata")
    # The person's position is accepted, because the test may expect the target's centre instead.
    if place and list(place) == _person_place(tested):
        call["arguments"]["coordinate"] = member(expected, "arguments", "coordinate")
    compared = {
        "id": (record["id"], test.get("test_id")),
        "image": (image, f"test/{test.get('screenshot')}"),
        "human turn": (human, f"{HUMAN_START}{test.get('prompt')}"),
        "last tool call": (call, expected),
        "task_type": (record["metadata"]["task_type"], member(tested, "task_type")),
    }
    for name, (value, value_of_test) in compared.items():
        if value != value_of_test:
            message = f"the {name} differs from this entry of test.json"
            yield ours("test_records", message, _REMEDY)
