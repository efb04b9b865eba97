"""Tests of exports in other packages, with the example package and the command line."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from demo_pipeline_tests.sample_workspace import variables_of, write_demos

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_export"
FORM = "captions_export:FORM"


def install(site: Path, package: str, version: str, exports: Mapping[str, str]) -> None:
    """Writes the metadata that pip would write for a package with these exports."""
    metadata = site / f"{package.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}"
    )
    lines = [f"{name} = {place}" for name, place in exports.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[demo_pipeline.exports]", *lines]))


def install_example(site: Path) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    described = project["project"]
    [module] = project["tool"]["setuptools"]["py-modules"]
    exports = described["entry-points"]["demo_pipeline.exports"]
    install(site, described["name"], described["version"], exports)
    shutil.copy(EXAMPLE / f"{module}.py", site)


def environment(root: Path, **variables: str) -> dict[str, str]:
    (root / "home").mkdir(exist_ok=True)
    return {
        **os.environ,
        **variables_of(root),
        "PYTHONPATH": str(root / "site"),
        "COLUMNS": "120",
        **variables,
    }


def python(root: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(root, **variables),
        capture_output=True,
        text=True,
        check=False,
    )


def command(root: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    arguments = ["demo-pipeline", *words]
    code = f"import sys; sys.argv = {arguments!r}; import demo_pipeline.cli; "
    code += "demo_pipeline.cli.start()"
    return python(root, code, **variables)


ON = {"DEMO_PIPELINE_DATASETS__EXPORTS": '["sft", "captions"]'}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the datasets of two demonstrations with the example installed."""
    root = tmp_path_factory.mktemp("own")
    install_example(root / "site")
    write_demos(root / "uploads")
    done = command(root, "run", **ON)
    assert done.returncode == 0, done.stderr
    assert "captions_dataset" in done.stdout
    return root


def lines(root: Path) -> list[dict[str, str]]:
    files = sorted((root / "store/captions").glob("*.jsonl"))
    texts = [file.read_text() for file in files]
    return [json.loads(line) for line in "".join(texts).splitlines()]


class TestExample:
    def test_a_run_builds_the_export_with_a_card(self, root):
        rows = lines(root)
        assert len(rows) >= 4
        assert all(row.keys() == {"id", "image", "task", "caption"} for row in rows)
        assert all((root / "store/captions" / row["image"]).is_file() for row in rows)
        card = (root / "store/captions/README.md").read_text()
        assert "A screenshot, and a sentence about the action that follows it." in card
        assert 'load_dataset(root, "default")' in card

    def test_the_index_counts_its_records(self, root):
        exports = json.loads((root / "store/dataset/exports.json").read_text())
        assert exports["exports"]["captions"]["status"] == "built"
        assert [*exports["exports"]][
            -1
        ] == "captions"  # exports of packages follow the built-in ones
        query = "SELECT sum(records) AS records FROM exports WHERE export = 'captions'"
        asked = command(root, "stats", query, **ON)
        assert str(len(lines(root))) in asked.stdout, asked.stderr

    def test_the_next_run_has_nothing_to_do(self, root):
        done = command(root, "run", "--dry-run", **ON)
        assert done.returncode == 0, done.stderr
        assert "captions" not in done.stdout

    def test_validate_recognises_and_checks_it(self, root, tmp_path):
        folder = tmp_path / "captions"
        shutil.copytree(root / "store/captions", folder)
        valid = command(root, "validate", str(folder))
        assert valid.returncode == 0, valid.stderr
        assert "captions" in valid.stdout
        file = next(file for file in folder.glob("*.jsonl") if file.stat().st_size)
        file.write_text(file.read_text().replace('"task":', '"tasks":'))
        broken = command(root, "validate", str(file))
        assert broken.returncode == 1
        assert file.name in broken.stdout + broken.stderr

    def test_export_copies_it(self, root, tmp_path):
        assert command(root, "export", str(tmp_path / "plain"), **ON).returncode == 0
        assert (tmp_path / "plain/captions/train.jsonl").is_file()

    def test_dagster_selects_its_asset(self, root):
        code = (
            "import dagster as dg; from demo_pipeline.definitions import defs;"
            "graph = defs.resolve_asset_graph();"
            "names = dg.AssetSelection.from_string('captions_dataset+').resolve(graph);"
            "print(sorted(key.to_user_string() for key in names))"
        )
        done = python(root, code, **ON)
        assert done.returncode == 0, done.stderr
        assert "captions_dataset" in done.stdout
        assert "trajectory_index" in done.stdout

    def test_without_the_package_the_name_is_refused_and_the_store_is_read(self, root):
        refused = command(root, "run", PYTHONPATH="", **ON)
        assert refused.returncode == 2
        assert "'sft', 'messages', 'cudag'" in refused.stderr
        assert "an installed package provides" in refused.stderr
        inspected = command(root, "inspect", "first", PYTHONPATH="")
        assert inspected.returncode == 0, inspected.stderr
        assert "captions" in inspected.stdout


class TestRefusals:
    """An unusable export is reported with its package and a remedy."""

    @pytest.mark.parametrize(
        ("exports", "sentence"),
        [
            ({"sft": FORM}, "the export 'sft' of the package mine: demo_pipeline has an export of"),
            ({"My-Form": FORM}, "a name consists of a-z, 0-9 and _; rename it"),
            ({"captions": "no_such_module:FORM"}, "cannot be loaded from no_such_module:FORM: Mod"),
            ({"captions": "captions_export:Caption"}, "captions_export:Caption is not a Form"),
            ({"others": FORM}, "its Form has the name captions; write the same name"),
        ],
    )
    def test_an_unusable_export_ends_a_command_with_a_sentence(self, tmp_path, exports, sentence):
        install(tmp_path / "site", "mine", "1", exports)
        shutil.copy(EXAMPLE / "captions_export.py", tmp_path / "site")
        (tmp_path / "uploads").mkdir()
        done = command(tmp_path, "run")
        assert done.returncode == 2
        assert sentence in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr

    def test_two_packages_with_one_name(self, tmp_path):
        install(tmp_path / "site", "mine", "1", {"captions": FORM})
        install(tmp_path / "site", "yours", "1", {"captions": FORM})
        done = command(tmp_path, "run")
        assert done.returncode == 2
        assert "has an export of this name; rename it" in " ".join(done.stderr.split())

    def test_a_folder_that_another_output_has(self, tmp_path):
        text = (
            (EXAMPLE / "captions_export.py")
            .read_text()
            .replace('folder="captions"', 'folder="sft"')
        )
        install(tmp_path / "site", "mine", "1", {"captions": FORM})
        (tmp_path / "site/captions_export.py").write_text(text)
        (tmp_path / "uploads").mkdir()
        done = command(tmp_path, "run")
        assert done.returncode == 2
        assert "another output has the asset or folder sft" in " ".join(done.stderr.split())
