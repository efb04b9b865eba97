"""Settings under another name: former ones lead to the present ones, and no store notices."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from demo_pipeline.pipeline.dataset_stages import training_exports
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.settings import (
    CONFIG_VARIABLE,
    ActionSettings,
    DatasetSettings,
    ObservationSettings,
    Section,
    Settings,
)
from demo_pipeline.storage.store.version_manifest import Recipe
from demo_pipeline_tests.sample_workspace import open_workspace

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
FORMER = {
    "actions.pre_move_gap_ms": "actions.pointer_rest_ms",
    "actions.pixels_per_notch": "actions.macos_pixels_per_notch",
    "observation.guard_ms": "observation.min_lead_ms",
    "observation.search_lag_s": "observation.max_clock_offset_s",
    "datasets.images": "datasets.image_mode",
    "datasets.licence": "datasets.license",
    "datasets.scroll_positive": "datasets.cudag_scroll_sign",
    "datasets.pixels_per_notch": "datasets.cudag_pixels_per_notch",
    "discovery.quiet_seconds": "discovery.stable_seconds",
    "discovery.rebuild_after_seconds": "discovery.max_dataset_age_seconds",
}
REMOVED = {
    "observation.canvas_width": "every screenshot is 1920 x 1080",
    "observation.canvas_height": "every screenshot is 1920 x 1080",
    "datasets.include_leaky": "use include_avoidable_leaks and include_unavoidable_leaks",
    "datasets.message_calls": "calls are the text of the turn; most chat templates",
    "datasets.tool_call_format": "calls are the text of the turn; most chat templates",
}
TYPED = "4711-unfit"
# Hashes of the default settings in manifests written before any setting was renamed or removed.
RECORDED = {
    "raw_recordings": "fc0e595271379fa57387bf8de5205b5dbf2bf964cf7eb50ca1e5271779dce467",
    "events": "fc0e595271379fa57387bf8de5205b5dbf2bf964cf7eb50ca1e5271779dce467",
    "actions": "8d7e25b7765c3ec6f838ce12e033ed302206244a2e2f2fc932218e43b0696599",
    "screenshots": "fd1b087df38b24d2f107265e7c28410a90a5035edc18efbfa57ef6f6194dd245",
    "ui_trees": "fd1b087df38b24d2f107265e7c28410a90a5035edc18efbfa57ef6f6194dd245",
    "trajectories": "d1dc50e5e1e4c368a02a3f97bd8e35096ea1933307c459848d85313b3bc10306",
    "contact_sheets": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
}
# Settings that were added to a section since the hashes were recorded.
ADDED: dict[type[Section], set[str]] = {
    ActionSettings: {"key_run_gap_ms"},
    ObservationSettings: {"recorder_windows"},
    DatasetSettings: {
        *("include_avoidable_leaks", "include_unavoidable_leaks", "max_hidden_share", "min_steps"),
        *("exports", "sft_trees"),
        *("action_line", "embed_images"),
        *("grounding_per_screen", "grounding_min_side"),
    },
}
RECORDED_DATASETS = "82581e9cdbb1d3b881a5aab41dca4222563b182c5e1e40419ee96cd01365487f"
# Recipes of the same manifests, without the code version, which rises.
RECIPES: dict[str, dict[str, Any]] = {
    "recordings/20261121_212801": {
        "stage": "raw_recordings",
        "code_version": "",
        "settings": RECORDED["raw_recordings"],
        "inputs": {"upload": "9fbbd451f69dea1ad5909ef83202bbfd56bef58c0f301ab71209bdcf69bc5695"},
    },
    "events/20261121_212801": {
        "stage": "events",
        "code_version": "",
        "settings": RECORDED["events"],
        "inputs": {
            "raw_recordings": "8a44629bd3d81e7720558090eea35612882ca7f0947f5a87fb90ed28fbfc1f75"
        },
    },
}


def variable(name: str) -> str:
    return "DEMO_PIPELINE_" + name.replace(".", "__").upper()


def refusal() -> str:
    """What the settings of the environment are refused with."""
    with pytest.raises(ValidationError) as caught:
        Settings()
    text = str(caught.value)
    assert TYPED not in text
    return text


class TestNames:
    """Every name that a person may have written down is known or refused."""

    @pytest.mark.parametrize("former", FORMER)
    def test_a_former_variable_is_refused_with_the_present_one(
        self, former: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(variable(former), TYPED)
        assert f"is now called {FORMER[former]} ({variable(FORMER[former])})" in refusal()

    @pytest.mark.parametrize("former", FORMER)
    def test_a_former_name_in_the_file_is_refused_with_the_present_one(
        self, former: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        section, _, name = former.partition(".")
        file = tmp_path / "mine.toml"
        file.write_text(f"[{section}]\n{name} = '{TYPED}'\n")
        monkeypatch.setenv(CONFIG_VARIABLE, str(file))
        assert f"setting {former} ({variable(former)}) is now called {FORMER[former]}" in refusal()

    def test_every_former_name_is_tested_and_leads_to_a_setting(self) -> None:
        declared = {
            f"{section}.{former}": f"{section}.{name}"
            for section, kind in SECTIONS.items()
            for former, name in kind.RENAMED.items()
        }
        assert declared == FORMER
        assert set(FORMER.values()) <= NAMES
        assert not set(FORMER) & NAMES

    @pytest.mark.parametrize("name", REMOVED)
    def test_a_removed_setting_is_refused_with_the_reason(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(variable(name), TYPED)
        assert f"{variable(name)}) was removed: {REMOVED[name]}" in refusal()

    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            ("DEMO_PIPELINE_EXECUTION_CONTACT_SHEETS_IN_UI", "execution.contact_sheets_in_ui "),
            ("DEMO_PIPELINE_EXECUTION__CONTACT_SHEET_IN_UI", "execution.contact_sheets_in_ui "),
            ("demo_pipeline_stor", "store (DEMO_PIPELINE_STORE)"),
            ("DEMO_PIPELINE_DATASETS__LICENCES", "datasets.license "),
        ],
    )
    def test_a_misspelt_variable_is_refused_with_the_nearest_name(
        self, name: str, nearest: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, TYPED)
        text = refusal()
        assert name.upper() in text
        assert f"does not exist; the nearest is {nearest}" in text

    def test_a_name_like_no_other_is_refused_without_a_proposal(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DEMO_PIPELINE_QQQ", TYPED)
        assert "setting qqq (DEMO_PIPELINE_QQQ) does not exist [" in refusal()

    def test_all_refused_names_are_listed_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in FORMER:
            monkeypatch.setenv(variable(name), TYPED)
        assert refusal().count("is now called") == len(FORMER)

    def test_an_unknown_table_and_an_unknown_name_in_the_file_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "mine.toml"
        file.write_text(f"config = '{TYPED}'\n[dataset]\nseed = 1\n")
        monkeypatch.setenv(CONFIG_VARIABLE, str(file))
        text = refusal()
        assert "setting config (DEMO_PIPELINE_CONFIG) does not exist" in text
        assert "the nearest is datasets.seed " in text

    @pytest.mark.parametrize("value", ["-3", "nan", "inf", "-inf"])
    def test_a_number_outside_its_domain_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        for section, kind in SECTIONS.items():
            for name, field in kind.model_fields.items():
                if field.annotation in (int, float) and (name, value) != ("seed", "-3"):
                    with monkeypatch.context() as patch:
                        patch.setenv(f"DEMO_PIPELINE_{section}__{name}".upper(), value)
                        with pytest.raises(ValidationError) as refused:
                            Settings()
                    [error] = refused.value.errors()
                    assert error["loc"] == (section, name)

    @pytest.mark.parametrize(
        ("section", "values", "words"),
        [
            ("datasets", {"train_ratio": 0.7}, "must add up to 1, not 0"),
            ("datasets", {"tolerance_min": 90, "tolerance_max": 70}, "must not be above"),
            ("trajectories", {"easy_steps": 16}, "must not be above medium_steps"),
        ],
    )
    def test_values_that_contradict_each_other_are_refused(
        self, section: str, values: dict[str, float], words: str
    ) -> None:
        with pytest.raises(ValidationError, match=words):
            SECTIONS[section].model_validate(values)

    def test_no_process_is_no_number_of_workers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEMO_PIPELINE_EXECUTION__WORKERS", "0")
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            Settings()

    def test_a_value_is_not_repeated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEMO_PIPELINE_ACTIONS__CLICK_RADIUS_PX", TYPED)
        assert "actions.click_radius_px" in refusal()

    @pytest.mark.parametrize("name", sorted(VARIABLES))
    def test_no_variable_of_a_setting_is_called_unknown(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "{}")
        errors = ""
        try:
            Settings()
        except ValidationError as error:
            errors = str(error)
        assert "does not exist" not in errors


class TestExports:
    def test_an_unknown_export_is_refused_with_the_list(self) -> None:
        with pytest.raises(ValidationError) as caught:
            DatasetSettings(exports=("sft", "parquet"))
        assert "'sft', 'messages', 'cudag'" in str(caught.value)

    def test_the_names_are_those_of_the_registry(self) -> None:
        names = [stage.export.name for stage in training_exports() if stage.export]
        assert DatasetSettings(exports=names).exports == tuple(names)
        assert DatasetSettings().exports == tuple(names)[:3]  # the others are built on request

    def test_the_choice_makes_no_export_stale(self) -> None:
        assert DatasetSettings(exports=("sft",)).fingerprint() == DatasetSettings().fingerprint()


def recorded_fingerprint(section: Section) -> str:
    """The fingerprint of a section without the settings that were added since."""
    kind = type(section)
    values = section.model_dump(mode="json", exclude=ADDED.get(kind, set()))
    for former, name in kind.RENAMED.items():
        values[former] = values.pop(name)
    removed = {name: value for name, (value, _) in kind.REMOVED.items()}
    values |= {name: value for name, value in removed.items() if value is not None}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class TestFingerprint:
    """A store of an earlier version stays up to date when only names changed."""

    def test_the_recorded_hashes_are_those_of_the_defaults(self) -> None:
        sections = {stage.name: stage.section(Settings()) for stage in STAGES}
        now = {name: recorded_fingerprint(section) for name, section in sections.items()}
        assert now == RECORDED
        assert recorded_fingerprint(DatasetSettings()) == RECORDED_DATASETS

    def test_a_section_without_additions_has_the_recorded_fingerprint(self) -> None:
        unchanged = [
            section
            for section in (stage.section(Settings()) for stage in STAGES)
            if type(section) not in ADDED
        ]
        assert unchanged
        for section in unchanged:
            assert section.fingerprint() == recorded_fingerprint(section)

    def test_a_recorded_recipe_is_what_the_stage_would_be_built_from_now(
        self, real_root: Path
    ) -> None:
        store = open_workspace(real_root).store
        for output, recorded in RECIPES.items():
            current = store.current(output)
            assert current is not None
            assert replace(current.manifest.recipe, code_version="") == Recipe(**recorded), output

    def test_a_chosen_value_is_hashed_under_the_former_name(self) -> None:
        before = {
            "canvas_width": 1920,
            "canvas_height": 1080,
            "guard_ms": 70,
            "search_lag_s": 3.5,
            "pointer_radius_px": 40,
            "recorder_windows": ObservationSettings().recorder_windows,
        }
        text = json.dumps(before, sort_keys=True)
        now = ObservationSettings(min_lead_ms=70).fingerprint()
        assert now == hashlib.sha256(text.encode()).hexdigest()

    def test_another_value_is_another_hash(self) -> None:
        changed = [
            DatasetSettings(),
            DatasetSettings(image_mode="copy"),
            DatasetSettings(license="cc-by-4.0"),
            DatasetSettings(action_line=True),
            DatasetSettings(embed_images=True),
            DatasetSettings(cudag_scroll_sign="down"),
            DatasetSettings(cudag_pixels_per_notch=120),
            DatasetSettings(include_avoidable_leaks=True),
            DatasetSettings(include_unavoidable_leaks=False),
            DatasetSettings(max_hidden_share=0.5),
            DatasetSettings(min_steps=4),
        ]
        assert len({settings.fingerprint() for settings in changed}) == len(changed)


class TestDocumentation:
    """What people read about settings agrees with the model."""

    def test_every_setting_has_a_description(self) -> None:
        kinds: tuple[type[BaseModel], ...] = (Settings, *SECTIONS.values())
        for kind in kinds:
            for name, field in kind.model_fields.items():
                if kind is Settings and name in SECTIONS:
                    continue
                assert field.description, f"{kind.__name__}.{name}"

    def test_every_unit_is_in_the_name_or_the_description(self) -> None:
        units = {"_ms": "ms", "_px": "pixels"}
        for kind in SECTIONS.values():
            for name, field in kind.model_fields.items():
                for ending, unit in units.items():
                    assert not name.endswith(ending) or unit in (field.description or ""), name

    @pytest.mark.parametrize("folder", ["Makefile", "dagster.yaml", "demo_pipeline"])
    def test_every_variable_that_is_named_exists(self, folder: str) -> None:
        path = ROOT / folder
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        texts = "\n".join(file.read_text("utf-8") for file in files)
        named = set(re.findall(r"\bDEMO_PIPELINE_[A-Z_]*[A-Z]", texts))
        assert named - VARIABLES - {CONFIG_VARIABLE} == set()
