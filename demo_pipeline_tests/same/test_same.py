"""Names that people type, click and query change on purpose only."""

from pathlib import Path

from demo_pipeline_tests.same.__main__ import differences, hashed, read_expected
from demo_pipeline_tests.same.names import visible_names
from demo_pipeline_tests.same.outputs import grouped, tree_hashes


def test_every_name_is_as_recorded() -> None:
    expected = read_expected()
    found = hashed(visible_names(expected))
    kinds = {name.split()[0] for name in found}
    names = {name: value for name, value in expected.items() if name.split()[0] in kinds}
    assert differences(names, found) == [], "intended? `make same SAME=record`, and the changelog"


def test_a_changed_a_new_and_a_lost_file_differ(tmp_path: Path) -> None:
    for name in ("a.json", "steps/000/action.json", "shot.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"old")
    before = hashed(grouped(tree_hashes(tmp_path), "published"))
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_bytes(b"old")
    (tmp_path / "shot.png").write_bytes(b"new")
    after = hashed(grouped(tree_hashes(tmp_path), "published"))
    assert differences(before, after) == [
        "new: published b.json",
        "gone: published a.json",
        "changed: published ",
    ]
