"""Tests of dataset cards and charts."""

import re
from pathlib import Path
from typing import Any

import cv2
import pytest
import yaml

from demo_pipeline.datasets.index import build_index
from demo_pipeline.exports.cards import card_text, describe_index
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.exports.dataset_statistics import DatasetStats, row_stats
from demo_pipeline.exports.form import form_of
from demo_pipeline.problems import errors
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LeakRates
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, snapshot
from demo_pipeline_tests.exports.forms import build_described

CUDAG = form_of("cudag")
SETTINGS = DatasetSettings(license="cc-by-4.0", include_avoidable_leaks=True)
NOTHING = DatasetStats(0, 0, 0, LeakRates(), {}, {}, {}, {}, {}, {})


@pytest.fixture(scope="module")
def facts() -> dict[str, DatasetStats]:
    """Returns a dict that `described` fills: folder name → statistics of the dataset."""
    return {}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, facts: dict[str, DatasetStats]) -> Path:
    """Builds four datasets of the same demonstrations, with cards and charts."""
    root = tmp_path_factory.mktemp("described")
    half = {"scale": 0.5, "pad_x": 0.0, "pad_y": 0.0}
    demos = [
        make_trajectory(
            root,
            f"demo{n}",
            [*TABLE[n : n + 2], ("type", {"text": "a secret|word"})],
            instruction=f"Do {n}",
            application="gimp" if n < 2 else "chrome",
            rows={0: {"leak": n < 2, "unavoidable": n == 1, **half}, 1: half, 2: half},
        )
        for n in range(8)
    ]
    failed = [make_trajectory(root, f"failed{n}", success=False) for n in range(3)]
    build_index(demos, root / "dataset", SETTINGS, ("demo_pipeline", "0"))
    describe_index(root / "dataset", SETTINGS)
    for name in ("sft", "messages", "cudag"):
        facts[name] = build_described(name, [*demos, *failed], root / name, SETTINGS)
    return root


def card(described: Path, name: str) -> tuple[dict[str, Any], str]:
    _, front, text = (described / name / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


@pytest.mark.parametrize("name", ["dataset", "sft", "messages", "cudag"])
def test_a_card_has_license_tags_sections_and_counts(described, name):
    front, text = card(described, name)
    assert front["license"] == "cc-by-4.0"
    assert "computer-use" in front["tags"]
    for heading in ("How it was made", "What is in it", "Files", "Loading", "License"):
        assert f"## {heading}\n" in text
    assert "| trajectories | 8 |" in text
    assert "| gimp | 2 |" in text
    assert "secret" not in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert cv2.imread(str(described / name / line.split("(")[1].strip(")"))) is not None


def test_splits_leak_rates_and_exclusions_match_the_files(described, facts):
    _, text = card(described, "sft")
    stats = facts["sft"]
    assert sum(split.samples for split in stats.splits.values()) == stats.samples == 24
    for name, split in stats.splits.items():
        lines = (described / "sft" / f"{name}.jsonl").read_text().splitlines()
        assert len(lines) == split.samples
        assert f"| {name} | {split.samples} | {split.trajectories} | {split.tasks} |" in text
    assert stats.leaks == LeakRates(16, 2, 1)
    assert "Leak rate: 12.50% (in 2 of 16 samples of pointing actions" in text
    assert "Unavoidable leak rate: 6.25% (in 1, the pointer was already at the target" in text
    assert stats.as_dict()["leak_rate"] == 0.125
    assert "| trajectories left out: failed | 3 |" in text
    assert stats.resolutions == {"3840x2160": 8}
    assert stats.actions["type"] == 8 + sum(kind == "type" for kind, _ in TABLE[:9])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("messages", ("max_length=None", "assistant_only_loss=True", "ROOT_IMAGE_DIR", "ds_type")),
        ("cudag", ("cutoff_len: 4096", "image_max_pixels: 2109744", "media_dir", "default_system")),
    ],
)
def test_a_card_lists_the_settings_that_trainers_need(described, name, settings):
    _, text = card(described, name)
    assert [setting for setting in settings if setting not in text] == []


@pytest.mark.parametrize("name", ["dataset", "sft", "messages", "cudag"])
def test_every_configuration_carries_the_hash_of_its_files(described, name):
    configs = card(described, name)[0]["configs"]
    hashes = [config["description"] for config in configs]
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", text) for text in hashes)
    assert len(set(hashes)) == len(hashes) > 0


def test_a_cudag_dataset_with_its_card_is_still_valid(described):
    front, text = card(described, "cudag")
    assert errors(validate_cudag(described / "cudag")) == []
    assert [config["config_name"] for config in front["configs"]] == ["default", "test"]
    assert "| records | 32 |" in text


def test_the_cudag_card_explains_the_numbers_of_scrolls(described):
    _, text = card(described, "cudag")
    assert "`pixels` is positive to scroll up and negative to scroll down" in text
    assert "one notch of the wheel is 100" in text
    notches = DatasetSettings(cudag_scroll_unit="notches")
    text = card_text(CUDAG, NOTHING, notches, {}, ((), described))
    assert "counts notches of the wheel" in text


def test_a_card_says_that_no_license_is_stated(tmp_path):
    assert "no license is stated" in card_text(
        CUDAG, NOTHING, DatasetSettings(), {}, ((), tmp_path)
    )


def test_a_damaged_provenance_file_is_skipped(tmp_path):
    demos = [make_trajectory(tmp_path, name, [CLICK], shade=ord(name)) for name in "ab"]
    built = [("a", 0, "gimp", "click", "train"), ("b", 0, "gimp", "click", "train")]
    demos[0].provenance.write_bytes(b"#" * 100)
    facts = row_stats(built, [demo.provenance for demo in demos])
    assert (facts.trajectories, facts.platforms) == (2, {"windows": 1})


def test_cards_and_charts_are_reproducible(tmp_path):
    demos = [make_trajectory(tmp_path, "demo", TABLE)]
    for name in ("one", "two"):
        build_described("messages", demos, tmp_path / name, SETTINGS)
    before = snapshot(tmp_path / "one")
    assert snapshot(tmp_path / "two") == before
    assert tmp_path.as_posix() not in str(before["README.md"])


def test_an_empty_dataset_has_a_card(tmp_path):
    text = card_text(CUDAG, NOTHING, DatasetSettings(), {}, ((), tmp_path))
    assert "configs" not in text
