"""Tests that the files to copy from docs/guides/which-trainer.md are valid and fit the exports."""

import subprocess
from pathlib import Path

import pytest
import yaml

from demo_pipeline.settings import DatasetSettings

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "trainers"
PAGE = FOLDER.parents[1] / "docs" / "guides" / "which-trainer.md"


@pytest.fixture
def llama_factory() -> dict:
    return yaml.safe_load((FOLDER / "llama_factory.yaml").read_text())


def test_the_page_links_every_file():
    page = PAGE.read_text()
    assert [path.name for path in FOLDER.iterdir() if f"/{path.name})" not in page] == []


def test_the_names_of_the_datasets_are_those_of_the_default_prefix(llama_factory):
    prefix = DatasetSettings().name_prefix
    assert llama_factory["dataset"] == f"{prefix}_train"
    assert llama_factory["eval_dataset"] == f"{prefix}_val"


def test_no_file_lets_a_trainer_cut_a_screenshot(llama_factory):
    """A screenshot has 2,700 tokens, but by default the trainers cut at 1,024 or 2,048."""
    axolotl = yaml.safe_load((FOLDER / "axolotl.yaml").read_text())
    assert axolotl["sequence_len"] == llama_factory["cutoff_len"] == 8192
    assert (axolotl["sample_packing"], axolotl["skip_prepare_dataset"]) == (False, True)
    assert llama_factory["image_max_pixels"] >= 1920 * 1080
    assert "--max_length 8192" in (FOLDER / "ms_swift.sh").read_text()
    assert "max_length=None" in (FOLDER / "trl_sft.py").read_text()


def test_the_scripts_have_no_error_of_syntax():
    compile((FOLDER / "trl_sft.py").read_text(), "trl_sft.py", "exec")
    subprocess.run(["sh", "-n", FOLDER / "ms_swift.sh"], check=True)
