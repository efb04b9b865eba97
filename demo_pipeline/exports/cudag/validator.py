"""Validating a CUDAG dataset: its directories and files, and the rules between its records.

Belongs here: which directories and files must be there; what must not repeat over records, splits
and images; and the extra files that this pipeline writes: `system_prompt.txt`, `tools.json`,
LLaMA-Factory's `dataset_info.json` and `test/records.jsonl`, the entries of test.json as training
records. Datasets of other generators need not have them, and their config.json only has to be a
JSON object. Rules for one record are in record_rules.py, for splits.json in split_report.py.

Locations are those of the CUDAG document: `train.jsonl:42` is line 42 of the file; `test.json:5` is
the fifth entry of the array in `test/test.json`, counted from 1; `test/` and `./` are directories.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from demo_pipeline.exports.cudag.inventory import CudagInventory, RecordPlace, short_digest
from demo_pipeline.exports.cudag.models import DIRECTORY_PATTERN, GENERATOR, RECORD_FILES
from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    Accepts,
    CudagFault,
    Scope,
    eval_faults,
    json_fault,
    ours,
    picture_faults,
    picture_name,
    training_faults,
    typed,
)
from demo_pipeline.exports.cudag.split_report import report_faults
from demo_pipeline.exports.cudag.tool_calls import (
    ARGUMENTS,
    TOOL_NAME,
    ToolCallError,
    is_int,
    is_number,
    parse_tool_calls,
)
from demo_pipeline.exports.record_checks import NamedFiles, no_records
from demo_pipeline.files.json_files import (
    JsonFileError,
    decode_text,
    load_json,
    parse_json,
    read_bytes,
)
from demo_pipeline.problems import Problem, Severity

_REMEDY = "build the dataset again"
_TESTS = RECORD_FILES["test"]
_REQUIRED = (  # kind, the directory that problems name, name
    ("directory", "./", "images/"),
    ("directory", "./", "test/"),
    ("directory", "test/", "images/"),
    ("file", "./", "config.json"),
    ("file", "./", "data.jsonl"),
    ("file", "./", "train.jsonl"),
    ("file", "./", "val.jsonl"),
    ("file", "test/", "test.json"),
)
_REMEDIES = {
    "test/images/": "save test images to test/images/, not to a directory of another name",
    "test/": "create test/ with test.json and images/",
}


def validate_cudag(path: Path) -> list[Problem]:
    """The problems of a dataset, in the order of its files.

    A dataset that this pipeline made (by `generator` in config.json) must follow all rules. Another
    one must follow the CUDAG document; breaking a rule of this pipeline is a warning or ignored
    (see `Scope`).
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
    validation.check_all_records()
    return validation.problems


def validate_cudag_file(path: Path) -> list[Problem]:
    """The problems of one file of records in a dataset; nothing is compared with other files.

    Args:
        path: `train.jsonl` or another one beside `images/`, or `test/records.jsonl`.
    """
    in_test = path.parent.name == "test" and path.name == Path(_TESTS).name
    validation = _Validation(path.parent.parent if in_test else path.parent)
    validation.check_config()
    if in_test:
        validation.check_tests()
        return validation.problems
    validation.check_lines(path.name, path.stem)
    has_any = validation.inventory.records or validation.problems
    return validation.problems if has_any else [no_records(path.name)]


class _Validation:
    """The state of one validation."""

    def __init__(self, root: Path) -> None:
        self.root, self.files, self.inventory = root, NamedFiles.below(root), CudagInventory()
        self.problems: list[Problem] = []
        self.config: dict[str, Any] = {}
        self.ours = False

    def report(self, file: str, line: int | None, faults: Iterable[CudagFault]) -> None:
        found = (fault.problem(file, line, ours=self.ours) for fault in faults)
        self.problems += [problem for problem in found if problem]

    def require(self, name: str) -> bool:
        """Report a file of ours that is missing; returns whether it is there."""
        if there := (self.root / name).is_file():
            return there
        self.report("./", None, [ours("missing_file", f"Missing required file: {name}", _REMEDY)])
        return False

    def check_layout(self) -> None:
        """Check required and optional files and directories."""
        if not DIRECTORY_PATTERN.fullmatch(self.root.absolute().name):
            text = "directory name is not {prefix}--{user}--{YYYYMMDD_HHMMSS}"
            self.problems.append(Problem("directory_name", "./", text, severity=Severity.WARNING))
        for kind, folder, name in _REQUIRED:
            where = f"{folder}{name}".removeprefix("./")
            if not _is_kind(self.root / where, kind):
                other = f" (not a {kind})" if (self.root / where).exists() else ""
                message = f"Missing required {kind}: {name}{other}"
                remedy = _REMEDIES.get(where, f"add {where}")
                self.report(folder, None, [CudagFault(f"missing_{kind}", message, remedy)])
        for path, kind, place, message in (
            ("held_out.jsonl", "file", "held_out.jsonl", "must be a file"),
            ("test/annotated", "directory", "test/", "annotated/ must be a directory"),
        ):
            if (self.root / path).exists() and not _is_kind(self.root / path, kind):
                self.report(place, None, [CudagFault(f"not_a_{kind}", message)])

    def check_config(self) -> None:
        """Check the configuration, which names the generator of the dataset."""
        value = self._load("config.json", "config.json")
        if isinstance(value, dict):
            self.config, self.ours = value, value.get("generator") == GENERATOR
            self.report("config.json", None, typed(value, _CONFIG_KEYS, "config"))
        elif value is not None:
            self.report("config.json", None, [CudagFault("config", "must be a JSON object")])

    def _load(self, path: str, name: str) -> Any:
        """The value of a JSON file; None if it is missing or, as reported, cannot be read."""
        if not _is_kind(self.root / path, "file"):
            return None
        try:
            value = load_json(self.root / path, name)
        except JsonFileError as error:
            self.report(name, error.line, [json_fault(error)])
            return None
        if value is None:
            self.report(name, None, [CudagFault("invalid_json", "must not be null")])
        return value

    def _lines(self, file: str) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield number, content and digest of the lines of a file, if there is one."""
        if _is_kind(self.root / file, "file"):
            with (self.root / file).open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if text := line.strip():
                        yield number, line, short_digest(text)

    def _record(self, file: str, number: int, line: bytes) -> dict[str, Any] | None:
        """The record in a line, whose faults are reported; None: there is none."""
        try:
            record = parse_json(line, file)
        except JsonFileError as error:
            self.report(file, number, [json_fault(error)])
            return None
        self.report(file, number, training_faults(record))
        self.report(file, number, picture_faults(record, "image", self.files, ""))
        return record if isinstance(record, dict) else None

    def _add(self, place: RecordPlace, record: dict[str, Any], key: str, folder: str) -> None:
        """Compare a record with those before; `key` names its picture, below `folder`."""
        name = picture_name(record, key)
        opens = name is not None and not isinstance(self.files.picture(folder + name), str)
        image = self.files.digest(f"{folder}{name}") if opens else None
        self.report(place.file, place.line, self.inventory.add(place, record, image))

    def check_lines(self, file: str, split: str) -> None:
        """Check the records of a split."""
        for number, line, digest in self._lines(file):
            record = self._record(file, number, line)
            self.inventory.lines[digest] = record.get("id") if record else None
            if record is not None:
                self._add(RecordPlace(split, file, number), record, "image", "")

    def check_data(self) -> None:
        """Check data.jsonl; a line that a split has was checked there."""
        file, known = "data.jsonl", self.inventory.lines
        for number, line, digest in self._lines(file):
            is_same = digest in known
            record = None if is_same else self._record(file, number, line)
            name = known[digest] if is_same else record and record.get("id")
            self.report(file, number, self.inventory.add_data_line(number, name, is_same=is_same))

    def check_tests(self) -> None:
        """Check the tests; the line of a problem is the 1-based number of the entry."""
        file = "test.json"
        entries = self._load("test/test.json", file)
        if not isinstance(entries, list):
            if entries is not None:
                self.report(file, None, [CudagFault("tests", "must be a JSON array")])
            return
        for number, entry in enumerate(entries, start=1):
            self.report(file, number, eval_faults(entry))
            self.report(file, number, picture_faults(entry, "screenshot", self.files, "test/"))
            if isinstance(entry, dict):
                self._add(RecordPlace("test", file, number), entry, "screenshot", "test/")
        if self.ours and self.require(_TESTS):
            self._check_conversations(entries)

    def _check_conversations(self, tests: Sequence[object]) -> None:
        """Check `test/records.jsonl`, whose lines are the entries of test.json."""
        count = 0
        with (self.root / _TESTS).open("rb") as lines:
            for line, test in zip_longest(lines, tests):
                count += line is not None
                if line is not None:
                    self.report(_TESTS, count, _line_faults(line, test))
        if count != len(tests):
            message = f"has {count} lines for {len(tests)} entries of test.json"
            self.report(_TESTS, None, [ours("test_records", message, _REMEDY)])

    def check_all_records(self) -> None:
        """Check the rules that need all records, and the extra files."""
        for place, fault in self.inventory.missing_from_data():
            self.report(place.file, place.line, [fault])
        self.report("./", None, self.inventory.shared_image_warnings())
        if not self.ours:
            return
        counted = _count_faults(self.config, self.inventory.task_types)
        self.report("config.json", None, counted)
        for name in filter(self.require, ("system_prompt.txt", "tools.json", "dataset_info.json")):
            try:
                found = list(_companion_faults(self.root, name, self.config))
                self.report(name, None, [ours("companion", one, _REMEDY) for one in found])
            except JsonFileError as error:
                self.report(name, error.line, [json_fault(error, Scope.OURS)])
        for file, line, fault in report_faults(self.root, self.config, self.inventory):
            self.report(file, line, [fault])


def _is_kind(path: Path, wanted: str) -> bool:
    """Whether a path is a `file` or a `directory`; one that the system rejects is neither."""
    try:
        return path.is_file() if wanted == "file" else path.is_dir()
    except (OSError, ValueError):
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_TEXT: tuple[Accepts, str] = (_is_text, "a non-empty string")
_NUMBERS: tuple[Accepts, str] = (
    lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
    "an object of numbers",
)
_OBJECT: tuple[Accepts, str] = (lambda value: isinstance(value, dict), "an object")
_CONFIG_KEYS: Mapping[str, tuple[Accepts, str]] = {
    "name_prefix": _TEXT,
    "user": _TEXT,
    "seed": (is_int, "an integer"),
    "task_types": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "a list of names",
    ),
    "task_counts": _NUMBERS,
    "train_split": (is_number, "a number"),
    "split_ratios": _NUMBERS,
    "system_prompt": _TEXT,
    "task_distributions": _NUMBERS,
    "generated_at": (
        lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
        "YYYY-MM-DDTHH:MM:SSZ",
    ),
    "scroll": _OBJECT,
    "tolerance": _OBJECT,
}


def _count_faults(config: Mapping[str, Any], counted: Counter[str]) -> Iterator[CudagFault]:
    """Yield where the configuration differs from the counted records."""
    if config.get("task_counts") != dict(counted):
        message = f"task_counts differs from the records: {dict(sorted(counted.items()))}"
        yield ours("config_counts", message, "count the records of train, val, held_out and test")
    if config.get("task_types") != sorted(counted):
        message = "task_types must be the sorted task types of the records"
        yield ours("config_counts", message)


def _companion_faults(root: Path, name: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of the prompt, the list of one tool, or LLaMA-Factory's list of files."""
    if name == "system_prompt.txt":
        text, wanted = decode_text(read_bytes(root / name, name), name), config.get("system_prompt")
        if isinstance(wanted, str) and text.removesuffix("\n") != wanted:
            yield "differs from system_prompt in config.json"
        return
    value = load_json(root / name, name)
    if name == "tools.json":
        tool = value[0] if isinstance(value, list) and len(value) == 1 else None
        function = _member(tool, "function")
        if _member(function, "name") != TOOL_NAME:
            yield f"must be a list of one function, {TOOL_NAME}"
            return
        actions = _member(function, "parameters", "properties", "action", "enum")
        if not isinstance(actions, list) or sorted(map(str, actions)) != sorted(ARGUMENTS):
            yield f"the action must be one of {', '.join(ARGUMENTS)}"
    elif not isinstance(value, dict):
        yield "must be a JSON object"
    else:
        files = [file for file in RECORD_FILES.values() if (root / file).is_file()]
        named = [str(_member(entry, "file_name")) for entry in value.values()]
        if sorted(named) != sorted(files):
            yield f"must have one entry for each of {', '.join(files)}"


def _member(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


_SAME = ("task_type", "trajectory_id", "step_index")


def _line_faults(line: bytes, test: object) -> Iterator[CudagFault]:
    """Yield the faults of a line of `test/records.jsonl`, and where it differs from its test."""
    try:
        record = parse_json(line, _TESTS)
    except JsonFileError as error:
        yield json_fault(error, Scope.OURS)
        return
    image = record.get("image") if isinstance(record, dict) else None
    if isinstance(image, str):
        record = {**record, "image": image.removeprefix("test/")}
    faults = list(training_faults(record))
    yield from faults
    if faults or not isinstance(test, dict):
        return
    human, answer = (turn["value"] for turn in record["conversations"])
    try:
        call = parse_tool_calls(answer)[-1].as_dict()
    except ToolCallError:
        call = {}
    known, wanted = record["metadata"], test.get("metadata")
    for message, differs in (
        ("id differs from the test_id of", record["id"] != test.get("test_id")),
        ("image differs from the screenshot of", image != f"test/{test.get('screenshot')}"),
        (
            "the human turn differs from the prompt of",
            human != f"{HUMAN_START}{test.get('prompt')}",
        ),
        (
            "the last tool call differs from the expected_action of",
            call != test.get("expected_action"),
        ),
        (
            f"metadata: one of {', '.join(_SAME)} differs from",
            isinstance(wanted, dict) and any(known.get(key) != wanted.get(key) for key in _SAME),
        ),
    ):
        if differs:
            yield ours("test_records", f"{message} this entry of test.json", _REMEDY)
