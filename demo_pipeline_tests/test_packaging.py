"""Tests that the top-level files of the checkout fit the code, each other and Dagster."""

import ast
import logging
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config_schema
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKSPACE = yaml.safe_load((ROOT / "workspace.yaml").read_text())
SOURCES = (
    "demo_pipeline",
    "demo_pipeline_tests",
    "benchmarks",
    "deploy",
    "docs",
    "examples",
    ".ci",
)
TEXTS = {".ipynb", ".md", ".py", ".toml", ".txt", ".yaml", ".yml", ".json", ".sh", ""}
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(home|root|work|Users)/\w"),
    "a package registry's host": re.compile(r"\bpypi\.\w+\b|\bpythonhosted\b"),
    "a task marker": re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b"),
    "a postponed annotation": re.compile(r"^from __future__ import annotation[s]", re.MULTILINE),
}


def requirements(*extras: str) -> dict[str, Requirement]:
    project = PROJECT["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {canonicalize_name((parsed := Requirement(line)).name): parsed for line in lines}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def lock_pins() -> dict[str, str]:
    """Returns package → version in requirements.lock."""
    text = (ROOT / "requirements.lock").read_text()
    entries = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in entries}


def imported_packages(folder: str) -> dict[str, str]:
    """Returns imported third-party package → path of one of our files that imports it."""
    importers = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if {"consumers", "recorder", "replay"} & set(
            path.parts
        ):  # these have their own environments
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                importers[name.partition(".")[0]] = str(path.relative_to(ROOT))
    ours = {"demo_pipeline", "demo_pipeline_tests", "benchmarks"}
    known_names = ours | sys.stdlib_module_names
    return {name: path for name, path in importers.items() if name not in known_names}


def committed_texts() -> Iterator[Path]:
    yield from (
        path
        for path in ROOT.iterdir()
        if path.is_file() and path.suffix in TEXTS and path.name not in {".git", ".coverage"}
    )
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXTS and "__pycache__" not in path.parts:
                yield path


def make(
    *arguments: str, directory: Path = ROOT, python: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs make as in a plain shell, even if make itself runs these tests."""
    environment = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL"}}
    chosen = (f"PYTHON={python}",) if python else ()
    return subprocess.run(
        ["make", "--no-print-directory", *arguments, *chosen],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a folder with the files that make reads, but without an environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def stand_in_python(directory: Path, failing: str) -> str:
    """Returns the path of a fake `python3`, which does nothing.

    It exits with 1 if its code contains `failing`.
    """
    script = directory / "stand-in"
    script.write_text(f'#!/bin/sh\ncase "$2" in *{failing}*) exit 1;; esac\n')
    script.chmod(0o755)
    return str(script)


class TestDagsterInstance:
    def test_dagster_loads_the_configuration_without_a_warning(self, tmp_path, caplog):
        shutil.copy(ROOT / "dagster.yaml", tmp_path)
        with (
            caplog.at_level(logging.WARNING),
            dg.DagsterInstance.from_config(str(tmp_path)) as instance,
        ):
            queue = instance.get_concurrency_config().run_queue_config
            assert queue is not None
            assert queue.max_concurrent_runs == 10
            assert not instance.telemetry_enabled
            assert not instance.nux_enabled
            assert instance.run_monitoring_start_timeout_seconds == 600
            assert instance.run_retries_enabled
            assert not instance.run_retries_retry_on_asset_or_op_failure
        assert [record.message for record in caplog.records] == []

    def test_what_an_instance_writes_beside_its_configuration_is_ignored_by_git(self, tmp_path):
        shutil.copy(ROOT / "dagster.yaml", tmp_path)
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            instance.add_dynamic_partitions("demonstrations", ["one"])
        ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
        written = {path.name for path in tmp_path.iterdir()} - {"dagster.yaml"}
        assert written
        assert written <= ignored

    def test_the_documented_postgres_entry_is_one_that_dagster_takes(self):
        text = (ROOT / "dagster.yaml").read_text()
        block = re.search(r"^# storage:\n(?:#   .*\n)+", text, re.MULTILINE)
        assert block is not None
        entry = yaml.safe_load(re.sub(r"^# ", "", block.group(), flags=re.MULTILINE))
        assert set(entry["storage"]) == {"postgres"}
        result = validate_config(dagster_instance_config_schema(), entry)
        assert result.success, result.errors


class TestCodeLocation:
    def test_both_kinds_of_tool_load_the_same_module_under_the_same_name(self):
        [location] = WORKSPACE["load_from"]
        project = PROJECT["tool"]["dg"]["project"]
        assert location["python_module"] == {
            "module_name": project["code_location_target_module"],
            "location_name": project["code_location_name"],
        }
        assert "dagster" not in PROJECT["tool"]  # would override both sources


class TestDependencies:
    @pytest.mark.parametrize(
        ("folder", "extras"),
        [
            ("demo_pipeline", ("notebook", "owamcap", "privacy")),
            ("demo_pipeline_tests", ("dev",)),
            ("benchmarks", ("dev",)),
        ],
    )
    def test_what_is_imported_is_declared(self, folder, extras):
        declared = set(requirements(*extras))
        providers = packages_distributions()
        undeclared = {
            name: path
            for name, path in imported_packages(folder).items()
            if not declared & {canonicalize_name(dist) for dist in providers.get(name, [name])}
        }
        assert undeclared == {}

    def test_every_declared_dependency_is_pinned_within_its_bounds(self):
        pinned = pins()
        wanted = requirements(*PROJECT["project"]["optional-dependencies"])
        assert [name for name in wanted if name not in pinned] == []
        assert [str(r) for name, r in wanted.items() if pinned[name] not in r.specifier] == []

    def test_constraints_are_plain_sorted_pins(self):
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        entries = [line for line in lines if not line.startswith("#")]
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in entries)
        assert entries == sorted(entries, key=str.upper)
        assert len(pins()) == len(entries)

    def test_the_lock_holds_the_pinned_versions_of_what_the_project_needs_with_hashes(self):
        pinned = pins()
        locked = lock_pins()
        assert set(requirements()) <= set(locked)
        assert {name: v for name, v in locked.items() if pinned.get(name) != v} == {}
        entries = re.split(r"^(?=\w)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
        assert [e.split("==")[0] for e in entries if e and "--hash=sha256:" not in e] == []

    def test_every_package_that_an_installed_one_asks_for_is_locked(self):
        locked = lock_pins()
        unlocked = {}
        for name in locked:
            for requirement in map(Requirement, distribution(name).requires or []):
                if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                    continue
                required = canonicalize_name(requirement.name)
                if required not in locked:
                    unlocked[required] = name
        assert locked
        assert unlocked == {}


@pytest.fixture
def samples_checkout(checkout: Path) -> Path:
    """Returns a checkout with a sample, whose `demo-pipeline` only prints its subcommand."""
    bin_folder = checkout / ".venv/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").touch()
    command = bin_folder / "demo-pipeline"
    command.write_text(f"#!/bin/sh\n# {bin_folder}/\necho ran $1\n")
    command.chmod(0o755)
    (checkout / ".venv/.installed").touch()
    (checkout / "data/samples/one").mkdir(parents=True)
    (checkout / "data/samples/one/meta.json").write_text("the sample")
    return checkout


class TestInbox:
    def test_the_demo_copies_the_samples_into_it_and_overwrites_nothing(self, samples_checkout):
        printed = make("demo", directory=samples_checkout).stdout
        assert printed.startswith("Copied data/samples/one to data/recordings/one\nran run\n")
        copy = samples_checkout / "data/recordings/one/meta.json"
        copy.write_text("changed")
        assert "Copied" not in make("demo", directory=samples_checkout).stdout
        assert copy.read_text() == "changed"
        assert (samples_checkout / "data/samples/one/meta.json").read_text() == "the sample"
        shutil.rmtree(copy.parent)
        assert "Copied" in make("demo", directory=samples_checkout).stdout
        assert copy.read_text() == "the sample"

    def test_a_configured_inbox_gets_no_samples(self, samples_checkout, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_UPLOADS", "s3://mine/recordings")
        printed = make("demo", directory=samples_checkout).stdout
        assert "not the samples" in printed
        assert "ran run" in printed
        assert not (samples_checkout / "data/recordings").exists()

    def test_the_inbox_is_in_a_fresh_clone_and_git_ignores_its_content(self, tmp_path):
        inbox = tmp_path / "data/recordings"
        inbox.mkdir(parents=True)
        for name in (".gitignore", "data/recordings/.gitignore"):
            shutil.copy(ROOT / name, tmp_path / name)

        def git(*words: str) -> str:
            command = ("git", "-c", "safe.directory=*", *words)
            return subprocess.run(
                command, cwd=tmp_path, check=True, capture_output=True, text=True
            ).stdout

        git("init", "--quiet")
        (inbox / "mine").mkdir()
        (inbox / "mine/meta.json").write_text("{}")
        (inbox / "archive.zip").write_bytes(b"")
        git("add", "--all")
        assert git("ls-files").split() == [".gitignore", "data/recordings/.gitignore"]


class TestMakefile:
    def test_plain_make_explains_every_target(self):
        printed = make().stdout + make("help-dev").stdout
        assert make().stdout.count("  make ") == 10
        [phony] = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for target in set(phony.split()) - {"help", "browser"}:
            assert f"  make {target} " in printed

    def test_an_old_python_is_named_before_anything_is_made(self, checkout):
        old = stand_in_python(checkout, "version_info")
        result = make("setup", directory=checkout, python=old)
        assert result.returncode != 0
        assert "older than Python 3.11" in result.stderr
        assert not (checkout / ".venv").exists()

    def test_a_missing_venv_module_says_what_to_install(self, checkout):
        bare = stand_in_python(checkout, "ensurepip")
        result = make("setup", directory=checkout, python=bare)
        assert result.returncode != 0
        assert "apt-get install python3-venv" in result.stderr

    def test_a_missing_python_says_so(self, checkout):
        result = make("setup", directory=checkout, python="no-such-python")
        assert result.returncode != 0
        assert "no-such-python was not found" in result.stderr

    @pytest.mark.parametrize("target", ["setup", "setup-dev"])
    @pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
    def test_setup_runs_again_only_when_the_dependencies_change(self, checkout, target, changed):
        (checkout / ".venv/bin").mkdir(parents=True)
        for file in ("bin/python", ".installed", ".installed-dev"):
            (checkout / ".venv" / file).touch()
        assert make("--question", target, directory=checkout).returncode == 0
        later = (checkout / ".venv/.installed-dev").stat().st_mtime + 1
        os.utime(checkout / changed, (later, later))
        assert make("--question", target, directory=checkout).returncode == 1

    def test_an_environment_that_was_moved_or_lost_its_python_is_built_again(self, checkout):
        python = checkout / ".venv/bin/python"
        script = checkout / ".venv/bin/demo-pipeline"
        python.parent.mkdir(parents=True)
        for name in ("bin/python", ".installed", ".installed-dev"):
            (checkout / ".venv" / name).touch()
        script.write_text(f"#!{python}\n")
        assert make("--question", "setup", directory=checkout).returncode == 0
        script.write_text("#!/elsewhere/.venv/bin/python\n")
        moved = make("--dry-run", "setup", directory=checkout).stdout
        assert "was made elsewhere" in moved
        assert "rm -rf .venv" in moved
        assert "-m pip install" in moved
        script.write_text(f"#!{python}\n")
        python.unlink()
        python.symlink_to("/no/such/python")
        assert "rm -rf .venv" in make("--dry-run", "setup", directory=checkout).stdout


def test_the_ci_script_is_executable_and_parses():
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    parsed = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_file_contains(what):
    pattern = FORBIDDEN[what]
    matches = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in committed_texts()
        if (match := pattern.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert matches == []
