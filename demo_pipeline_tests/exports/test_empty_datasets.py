"""Tests that each export form writes a valid dataset without rows if no trajectory is exported."""

from pathlib import Path

import pytest

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.cards import describe_form
from demo_pipeline.exports.dataset_comparison import form_problems
from demo_pipeline.exports.export_summary import CardFacts
from demo_pipeline.exports.form import form_of
from demo_pipeline.exports.record_stages import WITHOUT_FORM
from demo_pipeline.settings import BUILT_IN_EXPORTS, DatasetSettings
from demo_pipeline_tests.datasets.builders import make_trajectory


@pytest.mark.parametrize("name", [name for name in BUILT_IN_EXPORTS if name not in WITHOUT_FORM])
def test_a_dataset_without_a_row_passes_its_check(tmp_path: Path, name: str) -> None:
    form = form_of(name)
    left_out = make_trajectory(tmp_path / "made", "demo")
    settings = DatasetSettings(exclude=["demo"])
    out = tmp_path / "out"
    summary = build_form(form, [left_out], out, settings)
    assert summary.total == 0
    describe_form(form, out, settings, (CardFacts(), [left_out.provenance]), summary)
    assert form_problems(form, [left_out], out, settings) == []
