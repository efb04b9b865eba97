"""Tests that the pages agree with the code, with each other and with the files that they name."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import demo_pipeline as dp
from demo_pipeline.cli.app import app
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.problems import errors
from demo_pipeline.runs.validation import validate_recording
from demo_pipeline.settings import CONFIG_VARIABLE, Section, Settings
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.named_stages import SFT_STAGE
from demo_pipeline_tests.pages import DOCS, generated_pages
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

ROOT = DOCS.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(DOCS.glob("**/*.md")),
    ROOT / "deploy" / "README.md",
    ROOT / "examples" / "README.md",
]
ACTUAL = [
    page for page in PAGES if page.name != "CHANGELOG.md"
]  # the changelog names removed things
SECTIONS = {
    name: type(field.default)
    for name, field in Settings.model_fields.items()
    if isinstance(field.default, Section)
}
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(
    r"`((?:demo_pipeline|demo_pipeline_tests|benchmarks|deploy|docs|examples|data)/[\w./-]+)`"
)
_BUILT = ("data/store", "data/.cache")  # written by runs


def setting_names() -> set[str]:
    """Returns the names of all settings in sections, such as `datasets.seed`."""
    names = set()
    for section, kind in SECTIONS.items():
        names |= {f"{section}.{field}" for field in kind.model_fields}
    return names


def named(pages: list[Path]) -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub makes for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code(text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(without_code(text_of(page))):
        if "://" not in target:
            yield target


@pytest.fixture(scope="module")
def store(real_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_of(real_root, tmp_path_factory.mktemp("pages") / "root")
    for stage in (SFT_STAGE, INDEX_STAGE):
        run_dataset_stage(open_workspace(root), stage)
    return root / "store"


@pytest.mark.parametrize("name", sorted(generated_pages()))
def test_a_generated_page_is_up_to_date(name):
    assert (DOCS / name).read_text(encoding="utf-8") == generated_pages()[name], "run `make docs`"


class TestReferences:
    @pytest.mark.parametrize("page", named(PAGES))
    def test_every_link_leads_to_a_file_and_a_heading(self, page):
        broken = []
        for target in links(page):
            file, _, anchor = target.partition("#")
            place = (page.parent / file).resolve() if file else page
            if not place.exists() or (anchor and anchor not in anchors(place)):
                broken.append(target)
        assert broken == []

    def test_every_page_can_be_reached_from_the_readme(self):
        reached = set()
        waiting = [ROOT / "README.md"]
        while waiting:
            page = waiting.pop()
            if page in reached or page.suffix != ".md":
                continue
            reached.add(page)
            waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
        assert set(PAGES) <= reached

    @pytest.mark.parametrize("page", named(ACTUAL))
    def test_every_path_that_is_named_exists(self, page):
        paths = [path for path in _PATH.findall(text_of(page)) if not path.startswith(_BUILT)]
        assert [path for path in paths if not (ROOT / path).exists()] == []

    @pytest.mark.parametrize("page", named(PAGES))
    def test_no_word_of_a_page_is_parsed_as_an_html_tag(self, page):
        """GitHub hides `<word>`, unless it is formatted as code."""
        code = re.compile(r"^```.*?^```|`[^`]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
        assert re.findall(r"<\w[^>]*>", code.sub("", text_of(page))) == []

    def test_a_picture_is_small(self):
        pictures = list((DOCS / "images").iterdir())
        assert pictures
        assert [p.name for p in pictures if p.stat().st_size > 120_000] == []


class TestCommands:
    @pytest.mark.parametrize("page", named(ACTUAL))
    def test_every_command_exists(self, page):
        commands = {command.name for command in app.registered_commands}
        commands |= {group.name for group in app.registered_groups}
        used = re.findall(r"demo-pipeline(?: -{1,2}[a-z]+)* ([a-z]+)", text_of(page))
        assert set(used) <= commands

    @pytest.mark.parametrize("page", named(ACTUAL))
    def test_every_target_of_make_exists(self, page):
        [phony] = re.findall(r"^\.PHONY: (.+)$", text_of(ROOT / "Makefile"), re.MULTILINE)
        used = re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", text_of(page), re.MULTILINE)
        assert set(used) <= set(phony.split())

    def test_every_command_is_explained(self):
        text = text_of(DOCS / "guides/operations.md") + text_of(DOCS / "guides/privacy.md")
        missing = [c.name for c in app.registered_commands if f"demo-pipeline {c.name}" not in text]
        assert set(missing) <= {
            "run",
            "stats",
        }  # `run` is only shown as `demo-pipeline -v run`, `stats` only in storage.md
        assert "demo-pipeline stats" in text_of(DOCS / "explanation/storage.md")


class TestSettings:
    @pytest.mark.parametrize("page", named(ACTUAL))
    def test_every_setting_that_is_named_exists(self, page):
        dotted = re.findall(rf"`({'|'.join(SECTIONS)})\.(\w+)", text_of(page))
        # Suffixes of files, and a function, which only look like settings.
        others = {"parquet", "mp4", "db", "json", "jsonl", "load_dataset", "md"}
        named_settings = {f"{name}.{field}" for name, field in dotted if field not in others}
        assert named_settings <= setting_names()

    @pytest.mark.parametrize("page", named(ACTUAL))
    def test_every_variable_that_is_named_exists(self, page):
        names = {*Settings.model_fields, *setting_names()}
        variables = {"DEMO_PIPELINE_" + name.replace(".", "__").upper() for name in names}
        used = set(re.findall(r"\bDEMO_PIPELINE_[A-Z_]*[A-Z]", text_of(page)))
        assert used - variables - {CONFIG_VARIABLE} == set()

    def test_the_example_of_a_settings_file_is_valid(self):
        examples = [block for page in PAGES for block in code_blocks(page, "toml")]
        assert examples
        for example in examples:
            assert Settings(**tomllib.loads(example)) != Settings()


class TestExamples:
    def test_the_step_of_the_readme_is_that_of_the_sample(self, store):
        [example] = code_blocks(ROOT / "README.md", "json")
        [place] = re.findall(r"`data/store/(trajectories/[\w/]+)/`", text_of(ROOT / "README.md"))
        assert json.loads((store / place / "action.json").read_bytes()) == json.loads(example)
        assert {path.name for path in (store / place).iterdir()} == {
            "screenshot.png",
            "ui_tree.json",
            "action.json",
        }

    def test_the_minimal_recording_of_the_page_lacks_only_the_video(self, tmp_path):
        page = DOCS / "guides/recorders.md"
        [meta] = code_blocks(page, "json")
        [log] = code_blocks(page, "jsonl")
        (tmp_path / "meta.json").write_text(meta)
        (tmp_path / "input_log.jsonl").write_text(log)
        problems = validate_recording(tmp_path, Settings())
        assert [problem.file for problem in errors(problems)] == ["recording.mp4"]

    def test_the_python_of_the_pages_runs(self, store, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_STORE", str(store))
        monkeypatch.setenv("DEMO_PIPELINE_UPLOADS", str(store.parent / "uploads"))
        blocks = [block for page in PAGES for block in code_blocks(page, "python")]
        assert blocks
        for block in blocks:
            exec(compile(block, "page", "exec"), {})  # noqa: S102 - our own pages

    def test_the_first_commands_of_scoring_end_in_a_table(self, store, tmp_path):
        """Runs the commands of the page as a person would, after `make demo` made the store."""
        block = code_blocks(DOCS / "guides/evaluation.md", "bash")[0].replace(
            " data/", f" {tmp_path}/"
        )
        first, *commands = block.splitlines()
        assert first == "make demo"
        assert len(commands) == 3
        for command in commands:
            name, *arguments = shlex.split(command)
            assert name == ".venv/bin/demo-pipeline"
            done = subprocess.run(
                [sys.executable, "-m", "demo_pipeline.cli.app", *arguments],
                env={**os.environ, "DEMO_PIPELINE_STORE": str(store), "COLUMNS": "120"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert "strict: all steps" in done.stdout
        assert re.search(r"predictions\W+1\.000", done.stdout)
        assert re.search(r"screen centre\W+0\.0", done.stdout)
        assert "history teacher-forced" in done.stdout

    def test_the_queries_of_the_pages_run(self, store):
        pattern = r'(?:stats |sql\()"(SELECT [^"]+)"'
        queries = [query for page in PAGES for query in re.findall(pattern, text_of(page))]
        assert queries
        for query in queries:
            assert len(dp.load_store(store).sql(query)) > 0
