"""Validating a CUDAG dataset: the walk over its directories and files, and its extra files.

Belongs here: which directories and files must be there, and the extra files that this pipeline
writes: `system_prompt.txt`, `tools.json`, LLaMA-Factory's `dataset_info.json` and
`test/records.jsonl`, the entries of test.json as training records. Datasets of other generators
need not have them, and their config.json only has to be a JSON object. Rules for one record are in
record_rules.py, between records in cross_checks.py.

Locations are those of the CUDAG document: `train.jsonl:42` is line 42 of the file; `test.json:5` is
the fifth entry of the array in `test/test.json`, counted from 1; `test/` and `./` are directories.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from demo_pipeline.exports.cudag.cross_checks import (
    CudagInventory,
    RecordPlace,
    record_keys,
    report_faults,
    short_digest,
)
from demo_pipeline.exports.cudag.models import DIRECTORY_PATTERN, GENERATOR
from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    CudagFault,
    LocatedFault,
    Scope,
    eval_faults,
    json_fault,
    ours,
    picture_faults,
    picture_name,
    training_faults,
)
from demo_pipeline.exports.cudag.tool_calls import (
    ARGUMENTS,
    TOOL_NAME,
    ToolCallError,
    is_int,
    is_number,
    parse_tool_calls,
)
from demo_pipeline.exports.record_checks import NamedFiles
from demo_pipeline.exports.record_files import no_records
from demo_pipeline.files.json_files import (
    JsonFileError,
    decode_text,
    load_json,
    parse_json,
    read_bytes,
)
from demo_pipeline.problems import Problem, Severity

TEST_RECORDS = "test/records.jsonl"
"""The records of test.json as conversations, which trainers' loaders read."""
RECORD_FILES = {
    "train": "train.jsonl",
    "val": "val.jsonl",
    "test": TEST_RECORDS,
    "held_out": "held_out.jsonl",
}
_SPLITS = ("train", "val", "held_out")
_REMEDY = "build the dataset again"
_FILES = (
    ("./", "config.json"),
    ("./", "data.jsonl"),
    ("./", "train.jsonl"),
    ("./", "val.jsonl"),
    ("test/", "test.json"),
)
_FOLDERS = (("./", "images/"), ("./", "test/"), ("test/", "images/"))
_REMEDIES = {
    "test/images/": "save test images to test/images/, not to a directory of another name",
    "test/": "create test/ with test.json and images/",
}


def validate_cudag(path: Path) -> list[Problem]:
    """The problems of a dataset, in the order of its files.

    A dataset that this pipeline made (by `generator` in config.json) must follow all rules. Another
    one must follow the CUDAG document; breaking a rule of this pipeline is a warning or ignored
    (see `Scope`).

    Args:
        path: the dataset's directory, or a link to it.
    """
    if not _is_kind(path, "directory"):
        remedy = "give the directory of a dataset"
        return [Problem("not_a_directory", "./", "is not a directory", remedy=remedy)]
    validation = _Validation(path)
    validation.check_layout()
    validation.check_config()
    for split in _SPLITS:
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
    in_test = path.parent.name == "test" and path.name == Path(TEST_RECORDS).name
    validation = _Validation(path.parent.parent if in_test else path.parent)
    validation.check_config()
    if in_test:
        validation.check_tests()
        return validation.problems
    validation.check_lines(path.name, path.stem)
    has_any = validation.inventory.records or validation.problems
    return validation.problems if has_any else [no_records(path.name)]


@dataclass(slots=True)
class _Validation:
    """The state of one validation."""

    root: Path
    problems: list[Problem] = field(default_factory=list)
    inventory: CudagInventory = field(default_factory=CudagInventory)
    config: dict[str, Any] = field(default_factory=dict)
    ours: bool = False
    files: NamedFiles = field(init=False)

    def __post_init__(self) -> None:
        self.files = NamedFiles.below(self.root)

    def report(self, file: str, line: int | None, faults: Iterable[CudagFault]) -> None:
        found = (fault.problem(file, line, ours=self.ours) for fault in faults)
        self.problems += [problem for problem in found if problem]

    def report_all(self, faults: Iterable[LocatedFault]) -> None:
        for file, line, fault in faults:
            self.report(file, line, [fault])

    def check_layout(self) -> None:
        """Check required and optional files and directories."""
        if not DIRECTORY_PATTERN.fullmatch(self.root.absolute().name):
            text = "directory name is not {prefix}--{user}--{YYYYMMDD_HHMMSS}"
            self.problems.append(Problem("directory_name", "./", text, severity=Severity.WARNING))
        self.report_all(_layout_faults(self.root))

    def check_config(self) -> None:
        """Check the configuration, which names the generator of the dataset."""
        value = self._load("config.json", "config.json")
        if isinstance(value, dict):
            self.config, self.ours = value, value.get("generator") == GENERATOR
            self.report("config.json", None, _config_faults(value))
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
        found = self.inventory.add(place, record_keys(record), image)
        self.report(place.file, place.line, found)

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
        entries = self._load("test/test.json", "test.json")
        if not isinstance(entries, list):
            if entries is not None:
                self.report("test.json", None, [CudagFault("tests", "must be a JSON array")])
            return
        for number, entry in enumerate(entries, start=1):
            self.report("test.json", number, eval_faults(entry))
            pictures = picture_faults(entry, "screenshot", self.files, "test/")
            self.report("test.json", number, pictures)
            if isinstance(entry, dict):
                self._add(RecordPlace("test", "test.json", number), entry, "screenshot", "test/")
        if self.ours:
            self.report_all(_conversation_faults(self.root, entries))

    def check_all_records(self) -> None:
        """Check the rules that need all records."""
        self.report_all(self.inventory.missing_from_data())
        self.report("./", None, self.inventory.shared_image_warnings())
        if self.ours:
            counted = _count_faults(self.config, self.inventory.task_types)
            self.report("config.json", None, counted)
            self.report_all(_companion_faults(self.root, self.config))
            self.report_all(report_faults(self.root, self.config, self.inventory))


def _is_kind(path: Path, wanted: str) -> bool:
    """Whether a path is a `file` or a `directory`; one that the system rejects is neither."""
    try:
        return path.is_file() if wanted == "file" else path.is_dir()
    except (OSError, ValueError):
        return False


def _layout_faults(root: Path) -> Iterator[LocatedFault]:
    """Yield what is missing, or of another kind, in a dataset's directory."""
    required = {"directory": _FOLDERS, "file": _FILES}
    for kind, folder, name in ((k, *entry) for k, entries in required.items() for entry in entries):
        where = f"{folder}{name}".removeprefix("./")
        if not _is_kind(root / where, kind):
            other = f" (not a {kind})" if (root / where).exists() else ""
            remedy = _REMEDIES.get(where, f"add {where}")
            message = f"Missing required {kind}: {name}{other}"
            yield folder, None, CudagFault(f"missing_{kind}", message, remedy)
    if (optional := root / "held_out.jsonl").exists() and not _is_kind(optional, "file"):
        yield "held_out.jsonl", None, CudagFault("not_a_file", "must be a file")
    if (optional := root / "test" / "annotated").exists() and not _is_kind(optional, "directory"):
        yield "test/", None, CudagFault("not_a_directory", "annotated/ must be a directory")


_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_time(value: object) -> bool:
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


_TEXT, _NUMBERS = (_is_text, "a non-empty string"), (_is_numbers, "an object of numbers")
_CONFIG_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name_prefix": _TEXT,
    "user": _TEXT,
    "seed": (is_int, "an integer"),
    "task_types": (_is_names, "a list of names"),
    "task_counts": _NUMBERS,
    "train_split": (is_number, "a number"),
    "split_ratios": _NUMBERS,
    "system_prompt": _TEXT,
    "task_distributions": _NUMBERS,
    "generated_at": (_is_time, "YYYY-MM-DDTHH:MM:SSZ"),
    "scroll": (_is_object, "an object"),
    "tolerance": (_is_object, "an object"),
}


def _config_faults(config: Mapping[str, Any]) -> Iterator[CudagFault]:
    """Yield missing keys and wrong types of a configuration made by this pipeline."""
    for key, (accepts, wanted) in _CONFIG_KEYS.items():
        if key not in config:
            yield ours("config_key", f"{key} is missing")
        elif not accepts(config[key]):
            yield ours("config_type", f"{key} must be {wanted}")


def _count_faults(config: Mapping[str, Any], counted: Counter[str]) -> Iterator[CudagFault]:
    """Yield where the configuration differs from the counted records."""
    if config.get("task_counts") != dict(counted):
        message = f"task_counts differs from the records: {dict(sorted(counted.items()))}"
        yield ours("config_counts", message, "count the records of train, val, held_out and test")
    if config.get("task_types") != sorted(counted):
        message = "task_types must be the sorted task types of the records"
        yield ours("config_counts", message)


def _companion_faults(root: Path, config: Mapping[str, Any]) -> Iterator[LocatedFault]:
    """Yield the faults of the prompt, the tools and LLaMA-Factory's list of files."""
    checks: Mapping[str, Callable[[str], Iterator[str]]] = {
        "system_prompt.txt": lambda name: _prompt_faults(root / name, name, config),
        "tools.json": lambda name: _tool_faults(load_json(root / name, name)),
        "dataset_info.json": lambda name: _info_faults(root, load_json(root / name, name)),
    }
    for name, check in checks.items():
        if not (root / name).is_file():
            message = f"Missing required file: {name}"
            yield "./", None, ours("missing_file", message, _REMEDY)
            continue
        try:
            for message in check(name):
                yield name, None, ours("companion", message, _REMEDY)
        except JsonFileError as error:
            yield name, error.line, json_fault(error, Scope.OURS)


def _prompt_faults(path: Path, name: str, config: Mapping[str, Any]) -> Iterator[str]:
    text, wanted = decode_text(read_bytes(path, name), name), config.get("system_prompt")
    if isinstance(wanted, str) and text.removesuffix("\n") != wanted:
        yield "differs from system_prompt in config.json"


def _tool_faults(tools: object) -> Iterator[str]:
    """The file is a list of one function schema, with exactly the actions of `ARGUMENTS`."""
    tool = tools[0] if isinstance(tools, list) and len(tools) == 1 else None
    if _member(tool, "function", "name") != TOOL_NAME:
        yield f"must be a list of one function, {TOOL_NAME}"
        return
    names = _member(tool, "function", "parameters", "properties", "action", "enum")
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(ARGUMENTS):
        yield f"the action must be one of {', '.join(ARGUMENTS)}"


def _info_faults(root: Path, entries: object) -> Iterator[str]:
    """There is exactly one entry per file of records."""
    if not isinstance(entries, dict):
        yield "must be a JSON object"
        return
    files = [file for file in RECORD_FILES.values() if (root / file).is_file()]
    named = [str(_member(entry, "file_name")) for entry in entries.values()]
    if sorted(named) != sorted(files):
        yield f"must have one entry for each of {', '.join(files)}"


def _member(value: Any, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


_SAME = ("task_type", "trajectory_id", "step_index")


def _conversation_faults(root: Path, tests: Sequence[object]) -> Iterator[LocatedFault]:
    """Yield the faults of `test/records.jsonl`, whose lines are the entries of test.json."""
    path, count = root / TEST_RECORDS, 0
    if not path.is_file():
        message = f"Missing required file: {TEST_RECORDS}"
        yield "./", None, ours("missing_file", message, _REMEDY)
        return
    with path.open("rb") as lines:
        for line, test in zip_longest(lines, tests):
            count += line is not None
            for fault in _line_faults(line, test) if line is not None else ():
                yield TEST_RECORDS, count, fault
    if count != len(tests):
        message = f"has {count} lines for {len(tests)} entries of test.json"
        yield TEST_RECORDS, None, ours("test_records", message, _REMEDY)


def _line_faults(line: bytes, test: object) -> Iterator[CudagFault]:
    try:
        record = parse_json(line, TEST_RECORDS)
    except JsonFileError as error:
        yield json_fault(error, Scope.OURS)
        return
    image = record.get("image") if isinstance(record, dict) else None
    if isinstance(image, str):
        record = {**record, "image": image.removeprefix("test/")}
    faults = list(training_faults(record))
    yield from faults
    if not faults and isinstance(test, dict):
        for message in _differences(record, str(image), test):
            yield ours("test_records", message, _REMEDY)


def _differences(record: Mapping[str, Any], image: str, test: Mapping[str, Any]) -> Iterator[str]:
    if record["id"] != test.get("test_id"):
        yield "id differs from the test_id of this entry of test.json"
    if image != f"test/{test.get('screenshot')}":
        yield "image differs from the screenshot of this entry of test.json"
    human, answer = (turn["value"] for turn in record["conversations"])
    if human != f"{HUMAN_START}{test.get('prompt')}":
        yield "the human turn differs from the prompt of this entry of test.json"
    if _last_call(answer) != test.get("expected_action"):
        yield "the last tool call differs from the expected_action of this entry of test.json"
    known, wanted = record["metadata"], test.get("metadata")
    if isinstance(wanted, dict) and any(known.get(key) != wanted.get(key) for key in _SAME):
        yield f"metadata: one of {', '.join(_SAME)} differs from this entry of test.json"


def _last_call(answer: str) -> dict[str, Any] | None:
    try:
        return parse_tool_calls(answer)[-1].as_dict()
    except ToolCallError:
        return None
