"""Tests the package as `pip` installs it: from a wheel, in a new environment and an empty folder.

The test opens the UI of the new project in a browser.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.doors.checkout import Checkout, plain_environment
from demo_pipeline_tests.doors.page_lines import ROOT
from demo_pipeline_tests.doors.test_browser import PATIENCE

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "dagster.yaml", "workspace.yaml")
SAMPLE = "20260105_090000"
OURS = {".environment", ".server"}  # files that the test itself writes to the folders


def installed(root: Path) -> Path:
    """Installs the wheel of this checkout in a new environment; returns the folder of scripts."""
    source = root / "source"
    environment = root / "environment"
    shutil.copytree(ROOT / "demo_pipeline", source / "demo_pipeline")
    for name in SOURCES:
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "-qqq"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", root, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    [wheel] = root.glob("*.whl")
    pip[0] = f"{environment}/bin/python"
    subprocess.run([*pip, "install", "-c", ROOT / "constraints.txt", wheel], check=True)
    return environment / "bin"


@pytest.mark.browser
@pytest.mark.minutes  # pip downloads the dependencies
def test_a_project_of_an_installed_wheel_is_seen_in_the_ui_and_leaves_nothing_elsewhere(tmp_path):
    scripts = installed(tmp_path)
    variables = plain_environment()
    variables |= {"PATH": f"{scripts}:{variables['PATH']}", "HOME": str(tmp_path / "person")}
    for name in ("person", "empty"):
        (tmp_path / name).mkdir()
    shell = Checkout(tmp_path / "empty", variables)
    assert shell.type("demo-pipeline run").code == 2
    assert shell.type("demo-pipeline init mine").code == 0
    project = Checkout(tmp_path / "empty" / "mine", variables)
    ran = project.type("demo-pipeline run")
    assert "1 done, 0 quarantined" in ran.output, ran.output
    assert "records in train" in project.type(f"demo-pipeline inspect {SAMPLE}").output
    with project.serving("demo-pipeline ui --port $PORT") as address, opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/assets/trajectories?view=partitions")
        expect(page.get_by_text(SAMPLE).first).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_text("1 partition", exact=False).first).to_be_visible(timeout=PATIENCE)
        page.goto(f"{address}/locations/demo_pipeline/asset-groups/demo_pipeline")
        expect(page.get_by_text("sft_samples").first).to_be_visible(timeout=PATIENCE)
    dev = project.type("timeout -s INT 60 dagster dev -m demo_pipeline.definitions --port 0")
    assert f'export DAGSTER_HOME="{project.root}/dagster"' in dev.output
    expected = {"dagster", "data", "demo_pipeline.toml", "workspace.yaml"}
    assert {path.name for path in project.root.iterdir()} - OURS == expected
    assert {path.name for path in shell.root.iterdir()} - OURS == {"mine"}
    telemetry = [path for path in project.root.rglob("*") if path.name == ".telemetry"]
    assert [path for folder in telemetry for path in folder.iterdir()] == []
