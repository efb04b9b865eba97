"""Tests of reading folders of task files: places of tasks, test lists, and invalid files."""

import json
import os
from pathlib import Path

import pytest

from demo_pipeline.osworld import task_files
from demo_pipeline.osworld.task import RiskTask
from demo_pipeline.osworld.task_files import entries, read_task_folder, validate_task_folder
from demo_pipeline.problems import Severity, errors
from demo_pipeline.runs.validation import recognise
from demo_pipeline_tests.places import file_and_line
from demo_pipeline_tests.task_folders import RISKY, put_tasks, put_text, risk_task, task


@pytest.fixture
def root(tmp_path):
    """Writes two ordinary tasks in two domains, and a risk task."""
    folder = tmp_path / "tasks"
    put_tasks(folder, {"os": [task("a")], "chrome": [task("b")]})
    put_tasks(folder / RISKY, {"mail": [risk_task("c")]})
    return folder


def reported_problems(root):
    return [(p.severity.value, p.code, file_and_line(p)) for p in validate_task_folder(root)]


def read_files(root):
    return [entry.source.file for entry in entries(read_task_folder(root))]


def test_ordinary_and_risk_tasks_are_found_with_their_domains(root):
    got = [
        (
            entry.source.file,
            entry.source.domain,
            isinstance(entry.task, RiskTask),
            entry.source.listed,
        )
        for entry in entries(read_task_folder(root))
    ]
    assert got == [
        (f"{RISKY}/examples/mail/c.json", "mail", True, True),
        ("examples/chrome/b.json", "chrome", False, True),
        ("examples/os/a.json", "os", False, True),
    ]
    assert validate_task_folder(root) == []


def test_a_task_is_a_risk_task_by_its_folder_or_its_keys_and_not_by_parent_folders(tmp_path):
    inside = tmp_path / RISKY / "mine"
    put_tasks(inside, {"os": [task("plain"), risk_task("risky")]})
    put_tasks(inside / RISKY, {"os": [task("lies_there")]})
    kinds = {e.source.file: type(e.task).__name__ for e in entries(read_task_folder(inside))}
    assert kinds == {
        "examples/os/plain.json": "OsworldTask",
        "examples/os/risky.json": "RiskTask",
        f"{RISKY}/examples/os/lies_there.json": "RiskTask",
    }
    alone = entries(read_task_folder(inside / RISKY))
    assert [(e.source.file, type(e.task)) for e in alone] == [
        ("examples/os/lies_there.json", RiskTask)
    ]


def test_a_checkout_of_the_benchmark_is_a_folder_too(tmp_path):
    put_tasks(tmp_path / "evaluation_examples", {"os": [task("a")]})
    assert read_files(tmp_path) == ["evaluation_examples/examples/os/a.json"]
    assert validate_task_folder(tmp_path) == []


def test_a_missing_folder_is_empty(tmp_path):
    folder = read_task_folder(tmp_path / "none")
    assert (folder.files, folder.problems) == ((), ())
    assert reported_problems(tmp_path / "none") == [("error", "no_tasks", ".")]


def test_a_file_in_place_of_the_folder_is_a_problem(tmp_path):
    assert reported_problems(put_text(tmp_path, "tasks", "{}")) == [("error", "not_a_folder", ".")]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "invalid_json", 1),
        ("[1]", "invalid_field", 1),
        (b"\xff\xfe", "invalid_json", 1),
        ('{"id": "x",\n"instruction": 3}', "invalid_field", 2),
        ('{"id": "x", "instruction": NaN}', "invalid_json", 1),
        ('{"a":' * 3000 + "1" + "}" * 3000, "invalid_field", 1),
    ],
)
def test_a_bad_file_is_reported_with_its_line_and_does_not_affect_others(root, text, code, line):
    put_text(root, "examples/os/x.json", text)
    put_text(root, "test_all.json", '{"os": ["a", "x"], "chrome": ["b"]}')
    problems = errors(validate_task_folder(root))
    assert {(p.code, p.file, p.line) for p in problems} == {(code, "examples/os/x.json", line)}
    good = [
        entry.source.file for entry in entries(read_task_folder(root)) if entry.task is not None
    ]
    assert len(good) == 3


def test_the_list_and_the_files_are_compared(root):
    put_text(root, "examples/os/new.json", json.dumps(task("new")))
    put_text(root, "test_all.json", '{"os": ["a",\n"gone"],\n"chrome": ["b"]}')
    assert reported_problems(root) == [
        ("warning", "unlisted_task", "examples/os/new.json"),
        ("error", "missing_task", "test_all.json:2"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", [("error", "invalid_json", "test_all.json:1")]),
        ("[]", [("error", "invalid_list", "test_all.json:1")]),
        (
            '{"os": ["a"],\n"chrome": "b"}',
            [
                ("error", "invalid_list", "test_all.json:2"),
                ("warning", "unlisted_task", "examples/chrome/b.json"),
            ],
        ),
    ],
)
def test_a_bad_list_does_not_remove_tasks(root, text, expected):
    put_text(root, "test_all.json", text)
    assert reported_problems(root) == expected
    assert len(read_files(root)) == 3


def test_without_a_list_every_file_counts(root):
    (root / "test_all.json").unlink()
    assert reported_problems(root) == [("warning", "missing_list", "test_all.json")]
    assert len(read_files(root)) == 3


def test_two_files_with_one_id_are_both_kept_and_reported(root):
    put_text(root / RISKY, "examples/mail/a.json", json.dumps(risk_task("a")))
    put_text(root / RISKY, "test_all.json", '{"mail": ["a", "c"]}')
    [problem] = validate_task_folder(root)
    assert (problem.code, problem.severity) == ("duplicate_id", Severity.WARNING)
    assert f"{RISKY}/examples/mail/a.json" in problem.message
    assert len(read_files(root)) == 4


def test_other_files_are_ignored_or_reported(root, tmp_path):
    put_text(root, "examples/os/README.md", "notes")
    put_text(root, "examples/os/.hidden.json", "{")
    put_text(root, "examples/os/deep/d.json", json.dumps(task("d")))
    put_text(root, "examples/loose.json", json.dumps(task("loose")))
    (root / "examples/os/folder.json").mkdir()
    (root / "examples/os/link.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(root / "examples/os/pipe.json")
    (root / "examples/os/round").symlink_to(root / "examples")
    assert sorted(reported_problems(root)) == [
        ("error", "unreadable_file", "examples/os/folder.json"),
        ("error", "unreadable_file", "examples/os/link.json"),
        ("error", "unreadable_file", "examples/os/pipe.json"),
        ("warning", "nested_folder", "examples/os/deep"),
        ("warning", "nested_folder", "examples/os/round"),
        ("warning", "unlisted_task", "examples/loose.json"),
    ]
    assert "examples/loose.json" in read_files(root)


def test_a_file_that_is_too_large_is_not_read(root, monkeypatch):
    monkeypatch.setattr(task_files, "MAX_TASK_BYTES", 1000)
    put_text(root, "examples/os/huge.json", json.dumps(task("huge", pad="x" * 1000)))
    assert ("error", "unreadable_file", "examples/os/huge.json") in reported_problems(root)


def test_a_folder_that_may_not_be_listed_is_a_problem(root, monkeypatch):
    listing = Path.iterdir

    def refuse(path):
        if path.name == "os":
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    problems = reported_problems(root)
    assert ("error", "unreadable_folder", "examples/os") in problems
    assert "examples/chrome/b.json" in read_files(root)


def test_the_fingerprint_follows_everything_and_nothing_else(root, tmp_path):
    before = read_task_folder(root).fingerprint()
    put_text(root, "README.md", "notes")
    root.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere"
    assert read_task_folder(moved).fingerprint() == before
    prints = {before}
    put_text(moved, "examples/os/a.json", json.dumps(task("a", "Other.")))
    prints.add(read_task_folder(moved).fingerprint())
    put_text(moved, "test_all.json", '{"chrome": ["b"]}')
    prints.add(read_task_folder(moved).fingerprint())
    put_text(moved, "test_all.json", "{")
    prints.add(read_task_folder(moved).fingerprint())
    assert len(prints) == 4


def put_published_layouts(root):
    """Writes a checkout with tasks in all folders that the benchmarks publish, and a template."""
    examples = root / "evaluation_examples"
    put_tasks(examples, {"os": [task("ordinary")]})
    put_text(examples, "examples_windows/excel/w1.json", json.dumps(task("w1")))
    put_text(examples, "examples/Windows/ppt/w2.json", json.dumps(task("w2")))
    for name in ("r1", "r2"):
        put_text(root, f"{RISKY}/account/{name}.json", json.dumps(risk_task(name)))
    put_text(root, f"{RISKY}/account/template.json", '{"id": ""}')
    put_text(root, f"{RISKY}/test_risk.json", '{"account": ["r1",\n"r2"]}')


PUBLISHED = {
    "evaluation_examples/examples/os/ordinary.json": ("os", False, True),
    "evaluation_examples/examples_windows/excel/w1.json": ("excel", False, False),
    "evaluation_examples/examples/Windows/ppt/w2.json": ("Windows/ppt", False, False),
    f"{RISKY}/account/r1.json": ("account", True, True),
    f"{RISKY}/account/r2.json": ("account", True, True),
}
TEMPLATE = [
    ("warning", "unlisted_task", "account/template.json"),
    ("warning", "invalid_field", "account/template.json:1"),
]


def test_every_task_of_the_published_folders_is_found(tmp_path):
    put_published_layouts(tmp_path)
    got = {
        entry.source.file: (
            entry.source.domain,
            isinstance(entry.task, RiskTask),
            entry.source.listed,
        )
        for entry in entries(read_task_folder(tmp_path))
        if entry.task is not None
    }
    assert got == PUBLISHED
    problems = [
        (s, code, where.removeprefix(f"{RISKY}/")) for s, code, where in reported_problems(tmp_path)
    ]
    assert {problem[:2] for problem in problems} == {problem[:2] for problem in TEMPLATE}
    assert all(where.startswith("account/template.json") for _, _, where in problems)


@pytest.mark.parametrize(
    ("folder", "count"),
    [
        ("evaluation_examples", 3),
        (RISKY, 2),
        ("evaluation_examples/examples_windows", 1),
        ("evaluation_examples/examples", 2),
        ("evaluation_examples/examples/Windows", 1),
    ],
)
def test_a_part_of_a_checkout_is_recognised_and_read(tmp_path, folder, count):
    put_published_layouts(tmp_path)
    part = tmp_path / folder
    assert recognise(part) == "osworld"
    assert errors(validate_task_folder(part)) == []
    read = [entry for entry in entries(read_task_folder(part)) if entry.task is not None]
    assert len(read) == count


def test_the_list_of_risk_tasks_names_missing_files_with_their_line(tmp_path):
    put_published_layouts(tmp_path)
    (tmp_path / RISKY / "account" / "r2.json").unlink()
    assert ("error", "missing_task", f"{RISKY}/test_risk.json:2") in reported_problems(tmp_path)


@pytest.mark.parametrize("folder", ["examples", "examples_windows", RISKY, "evaluation_examples"])
def test_a_folder_of_examples_without_a_task_is_a_warning(root, folder):
    for path in [*root.glob(f"{folder}/*/*.json"), *root.glob(f"{folder}/*/*/*.json")]:
        path.unlink()
    (root / folder).mkdir(exist_ok=True)
    assert ("warning", "no_tasks", folder) in reported_problems(root)


def test_a_folder_without_any_task_is_a_warning_when_it_is_read(tmp_path):
    put_text(tmp_path, "notes/README.md", "")
    assert [p.code for p in read_task_folder(tmp_path).problems] == ["no_tasks"]
    assert reported_problems(tmp_path) == [("error", "no_tasks", ".")]


def test_absent_keys_of_a_task_are_named(tmp_path):
    bare = {"id": "bare", "instruction": "Do it."}
    put_tasks(tmp_path, {"os": [bare, bare | {"id": "risky", "halfway_config": []}]})
    messages = {p.file: p.message for p in validate_task_folder(tmp_path)}
    missing = "the documented keys snapshot, source, config, related_apps, evaluator"
    assert messages == {
        "examples/os/bare.json": f"{missing} are missing",
        "examples/os/risky.json": f"{missing}, risk_evaluator are missing",
    }
