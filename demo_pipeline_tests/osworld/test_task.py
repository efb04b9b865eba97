import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.files.json_files import load_json
from demo_pipeline.osworld.task import (
    OsworldTask,
    RiskTask,
    examine_task_file,
    normalise_app,
    write_task,
)
from demo_pipeline.problems import Severity, errors
from demo_pipeline_tests.places import file_and_line

LAUNCH = {"type": "launch", "parameters": {"command": ["google-chrome", "--port=1"]}}
EVALUATOR = {"func": "exact_match", "result": {"type": "x"}, "expected": {"rules": 1.0}}
TASK = {
    "id": "bb5e4c0d",
    "snapshot": "chrome",
    "instruction": "Make Bing the main search engine.",
    "source": "https://support.google.com/chrome",
    "config": [LAUNCH],
    "trajectory": "trajectories/",
    "related_apps": ["Google Chrome", "chrome", "LibreOffice Calc"],
    "evaluator": EVALUATOR,
    "proxy": False,
    "fixed_ip": False,
    "possibility_of_env_change": "low",
}
RISK = {**TASK, "halfway_config": [LAUNCH], "risk_evaluator": EVALUATOR}

FORMS = [
    TASK,
    RISK,
    {"id": "bb5e4c0d", "instruction": "x"},
    {**TASK, "config": LAUNCH},
    {**TASK, "config": {}},
    {**TASK, "config": None, "evaluator": None, "source": None},
    {**TASK, "evaluator": "evaluation_dir", "source": ["a", "b"]},
    {**TASK, "related_apps": "Chrome"},
    {"zz": {"deep": [1.0, 10**25, None]}, **TASK, "config": [{**LAUNCH, "note": 1}]},
    {**RISK, "halfway_config": LAUNCH, "risk_evaluator": "evaluation_dir"},
]


# The examples of the format document, with a setup step in place of `{xxx}`.
DOCUMENTED = {
    "id": "bb5e4c0d",
    "snapshot": "snapshot_id",
    "instruction": "natural_language_instruction",
    "source": "website_url",
    "config": LAUNCH,
    "related_apps": ["app1", "app2"],
    "evaluator": "evaluation_dir",
}
DOCUMENTED_RISK = {**DOCUMENTED, "halfway_config": LAUNCH, "risk_evaluator": "evaluation_dir"}


def read_task(path):
    return examine_task_file(path)[0]


def put(folder, value):
    path = folder / "bb5e4c0d.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("value", FORMS)
def test_every_published_form_is_read_and_written_unchanged(tmp_path, value):
    path = put(tmp_path, value)
    write_task(tmp_path / "again.json", read_task(path))
    again = load_json(tmp_path / "again.json")
    assert json.dumps(again) == json.dumps(value)
    assert errors(examine_task_file(path)[1]) == []


@pytest.mark.parametrize(
    ("value", "kind"), [(DOCUMENTED, OsworldTask), (DOCUMENTED_RISK, RiskTask)]
)
def test_a_documented_task_is_read_without_a_warning(tmp_path, value, kind):
    task, problems = examine_task_file(put(tmp_path, value))
    assert task is not None
    assert type(task) is kind
    assert problems == []
    assert task.members() == value


def test_fields_are_normalised_and_the_raw_value_kept(tmp_path):
    task = read_task(put(tmp_path, {**TASK, "config": LAUNCH, "source": ["a", "b"]}))
    assert task.related_apps == ["chrome", "libreoffice_calc"]
    assert task.related_apps_raw == ["Google Chrome", "chrome", "LibreOffice Calc"]
    assert [step.type for step in task.config] == ["launch"]
    assert task.sources == ("a", "b")


def test_risk_tasks_are_distinguished_from_ordinary_ones(tmp_path):
    assert type(read_task(put(tmp_path, TASK))) is OsworldTask
    risk = read_task(put(tmp_path, RISK))
    assert isinstance(risk, RiskTask)
    assert risk.halfway_config[0].type == "launch"
    folder = tmp_path / "evaluation_risk_examples" / "examples"
    folder.mkdir(parents=True)
    assert isinstance(read_task(put(folder, TASK)), RiskTask)


def test_a_new_task_has_no_evaluator(tmp_path):
    task = OsworldTask(id="a", instruction="Do it.", related_apps=["StubHub"])
    write_task(tmp_path / "a.json", task)
    assert load_json(tmp_path / "a.json") == {
        "id": "a",
        "snapshot": None,
        "instruction": "Do it.",
        "source": None,
        "config": [],
        "related_apps": ["stubhub"],
        "evaluator": None,
    }
    assert examine_task_file(tmp_path / "a.json")[1] == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "JSON"),
        ("[]", 1, "document"),
        ('{\n"id": "a"}', 1, "instruction"),
        ('{"instruction": "x",\n"id": 5}', 2, "id"),
        ('{"instruction": "x", "id": "a",\n"config": [1]}', 2, "config[0]"),
        ('{"instruction": "x", "id": "a",\n\n"related_apps": [1]}', 3, "related_apps[0]"),
        ('{"instruction": "x", "id": "a",\n"evaluator": 3}', 2, "evaluator"),
        ('{"instruction": "x", "id": "a",\n"proxy": "no"}', 2, "proxy"),
        ('{"instruction": "x", "id": NaN}', 1, "JSON"),
    ],
)
def test_an_unusable_task_names_file_and_line(tmp_path, text, line, message):
    path = put(tmp_path, text)
    problems = examine_task_file(path)[1]
    assert (file_and_line(problems[0]), message in problems[0].message) == (
        f"bb5e4c0d.json:{line}",
        True,
    )
    assert read_task(path) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"id": "other"}, "id_differs"),
        ({"instruction": "  "}, "blank_instruction"),
        ({"related_apps": "chrome"}, "no_list"),
        ({"related_apps": None}, "no_list"),
        ({"config": [{"parameters": {}}]}, "setup_type"),
        ({"difficulty": "hard"}, "unknown_field"),
    ],
)
def test_outdated_and_deviating_forms_are_warnings(tmp_path, change, code):
    problems = examine_task_file(put(tmp_path, {**TASK, **change}))[1]
    assert [(p.code, p.severity) for p in problems] == [(code, Severity.WARNING)]


def test_a_missing_task_is_a_problem(tmp_path):
    assert [p.code for p in examine_task_file(tmp_path / "none.json")[1]] == ["missing_file"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Google Chrome", "chrome"),
        ("google-chrome", "chrome"),
        ("chrome.exe", "chrome"),
        ("VSCode", "vs_code"),
        ("Visual Studio Code", "vs_code"),
        ("Libre Office  Writer", "libreoffice_writer"),
        ("calc", "libreoffice_calc"),
        ("StubHub", "stubhub"),
        ("微信", "微信"),
        (" - ", "unknown"),
    ],
)
def test_application_names_are_normalised(name, expected):
    assert normalise_app(name) == expected


@given(st.text(max_size=20))
def test_normalising_twice_changes_nothing(name):
    assert normalise_app(normalise_app(name)) == normalise_app(name) != ""
