"""Tests that unknown settings are refused, and that changed values make outputs stale."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from demo_pipeline.runs.stages import training_exports
from demo_pipeline.settings import CONFIG_VARIABLE, DatasetSettings, Section, Settings

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {
    name: type(getattr(Settings(), name))
    for name, field in Settings.model_fields.items()
    if isinstance(field.default, Section)
}
NAMES = {*Settings.model_fields} | {
    f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields
}
VARIABLES = {"DEMO_PIPELINE_" + name.replace(".", "__").upper() for name in NAMES}
TYPED = "4711-unfit"


def variable(name: str) -> str:
    return "DEMO_PIPELINE_" + name.replace(".", "__").upper()


def refusal() -> str:
    """Returns the message of the error about the settings in the environment."""
    with pytest.raises(ValidationError) as caught:
        Settings()
    text = str(caught.value)
    assert TYPED not in text
    return text


class TestNames:
    """Tests that unknown names in the environment and in the settings file are refused."""

    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            ("DEMO_PIPELINE_EXECUTION_WORKERS", "execution.workers "),
            ("DEMO_PIPELINE_EXECUTION__WORKER", "execution.workers "),
            ("demo_pipeline_stor", "store (DEMO_PIPELINE_STORE)"),
            ("DEMO_PIPELINE_DATASETS__LICENCES", "datasets.license "),
        ],
    )
    def test_a_misspelt_variable_is_refused_with_the_nearest_name(self, name, nearest, monkeypatch):
        monkeypatch.setenv(name, TYPED)
        text = refusal()
        assert name.upper() in text
        assert f"does not exist; the nearest is {nearest}" in text

    def test_a_name_like_no_other_is_refused_without_a_proposal(self, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_QQQ", TYPED)
        assert "setting qqq (DEMO_PIPELINE_QQQ) does not exist [" in refusal()

    def test_all_refused_names_are_listed_at_once(self, monkeypatch):
        for name in ("actions.click_radius", "datasets.licence", "stores"):
            monkeypatch.setenv(variable(name), TYPED)
        assert refusal().count("does not exist; the nearest is") == 3

    def test_an_unknown_table_and_an_unknown_name_in_the_file_are_refused(
        self, tmp_path, monkeypatch
    ):
        file = tmp_path / "mine.toml"
        file.write_text(f"config = '{TYPED}'\n[dataset]\nseed = 1\n")
        monkeypatch.setenv(CONFIG_VARIABLE, str(file))
        text = refusal()
        assert "setting config (DEMO_PIPELINE_CONFIG) does not exist" in text
        assert "the nearest is datasets.seed " in text

    @pytest.mark.parametrize("value", ["-3", "nan", "inf", "-inf"])
    def test_a_number_outside_its_domain_is_refused(self, monkeypatch, value):
        for section, kind in SECTIONS.items():
            for name, field in kind.model_fields.items():
                if field.annotation in (int, float) and (name, value) != ("seed", "-3"):
                    with monkeypatch.context() as patch:
                        patch.setenv(f"DEMO_PIPELINE_{section}__{name}".upper(), value)
                        with pytest.raises(ValidationError) as refused:
                            Settings()
                    [error] = refused.value.errors()
                    assert error["loc"] == (section, name)

    def test_values_that_contradict_each_other_are_refused(self):
        with pytest.raises(ValidationError, match=r"must add up to at most 1, not 1\.1"):
            DatasetSettings(train_ratio=0.7, val_ratio=0.4)

    def test_the_test_split_gets_the_rest(self):
        assert DatasetSettings().test_ratio == 0.1
        assert DatasetSettings(train_ratio=0.5, val_ratio=0.5).test_ratio == 0

    def test_a_removed_setting_is_refused_with_the_value_that_now_holds(
        self, tmp_path, monkeypatch
    ):
        file = tmp_path / "old.toml"
        file.write_text("[actions]\nclick_radius_px = 8.0\n[datasets]\nkeep_previous = true\n")
        monkeypatch.setenv(CONFIG_VARIABLE, str(file))
        monkeypatch.setenv("DEMO_PIPELINE_DATASETS__SFT_TREES", TYPED)
        text = refusal()
        click = "setting actions.click_radius_px (DEMO_PIPELINE_ACTIONS__CLICK_RADIUS_PX)"
        assert f"{click} no longer exists: its value is always 5.0; remove the setting" in text
        assert "DATASETS__KEEP_PREVIOUS) no longer exists: its value is always false" in text
        assert 'DATASETS__SFT_TREES) no longer exists: its value is always "path"' in text

    def test_a_setting_that_became_an_option_names_the_option(self, monkeypatch):
        monkeypatch.setenv("DEMO_PIPELINE_EXECUTION__SCREENS_IN_REPORTS", "false")
        monkeypatch.setenv("DEMO_PIPELINE_DATASETS__TEST_RATIO", "0.2")
        text = refusal()
        assert (
            "no longer exists: `demo-pipeline report --no-screens` leaves screens out; remove"
            in text
        )
        assert (
            "no longer exists: test gets the share that train_ratio and val_ratio leave; remove"
            in text
        )

    def test_at_most_45_settings_remain(self):
        sections = {name for name in SECTIONS if name in Settings.model_fields}
        assert len(NAMES - sections) <= 45

    @pytest.mark.parametrize("name", sorted(VARIABLES))
    def test_the_variable_of_every_setting_is_accepted(self, name, monkeypatch):
        monkeypatch.setenv(name, "{}")
        errors = ""
        try:
            Settings()
        except ValidationError as error:
            errors = str(error)
        assert "does not exist" not in errors


class TestExports:
    def test_an_unknown_export_is_refused_with_the_list(self):
        with pytest.raises(ValidationError) as caught:
            DatasetSettings(exports=("sft", "parquet"))
        assert "'sft', 'messages', 'cudag'" in str(caught.value)

    def test_the_names_are_those_of_the_registry(self):
        names = [export.name for export in training_exports().values()]
        assert DatasetSettings(exports=names).exports == tuple(names)
        assert (
            DatasetSettings().exports == tuple(names)[:3]
        )  # other exports are built only if requested

    def test_the_setting_of_exports_makes_no_export_stale(self):
        assert DatasetSettings(exports=("sft",)).fingerprint() == DatasetSettings().fingerprint()


class TestFingerprint:
    """Tests which changes of settings make an output stale."""

    def test_another_value_gives_another_fingerprint(self):
        changed = [
            DatasetSettings(),
            DatasetSettings(image_mode="copy"),
            DatasetSettings(license="cc-by-4.0"),
            DatasetSettings(action_line=True),
            DatasetSettings(user="mike"),
            DatasetSettings(cudag_scroll_unit="notches"),
            DatasetSettings(include_avoidable_leaks=True),
            DatasetSettings(include_unavoidable_leaks=False),
            DatasetSettings(train_ratio=0.7),
            DatasetSettings(history_images=1),
        ]
        assert len({settings.fingerprint() for settings in changed}) == len(changed)

    def test_settings_about_annotations_are_in_the_fingerprint_only_when_set(self):
        later = DatasetSettings.HASHED_WHEN_SET
        before = DatasetSettings().model_dump(mode="json", exclude={*later, "exports"})
        before |= DatasetSettings.REMOVED
        fingerprint = hashlib.sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()
        assert DatasetSettings().fingerprint() == fingerprint
        assert DatasetSettings(min_alignment=1).fingerprint() != fingerprint
        assert DatasetSettings(exclude_steps="incorrect").fingerprint() != fingerprint


class TestDocumentation:
    """Tests that the documentation agrees with the settings."""

    def test_every_setting_has_a_description(self):
        kinds: tuple[type[BaseModel], ...] = (Settings, *SECTIONS.values())
        for kind in kinds:
            for name, field in kind.model_fields.items():
                if kind is Settings and name in SECTIONS:
                    continue
                assert field.description, f"{kind.__name__}.{name}"

    @pytest.mark.parametrize("folder", ["Makefile", "dagster.yaml", "demo_pipeline"])
    def test_every_variable_in_the_pages_exists(self, folder):
        path = ROOT / folder
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        texts = "\n".join(file.read_text("utf-8") for file in files)
        named = set(re.findall(r"\bDEMO_PIPELINE_[A-Z_]*[A-Z]", texts))
        assert named - VARIABLES - {CONFIG_VARIABLE} == set()
