from pathlib import Path

import pytest

from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.privacy import picture_texts as pictures
from demo_pipeline.privacy.detectors import Detectors
from demo_pipeline.privacy.redaction import Marks, Redaction, _folded
from demo_pipeline.problems import errors
from demo_pipeline.settings import PrivacySettings
from demo_pipeline_tests.privacy.canaries import (
    KINDS,
    PRIVATE_EXPRESSION,
    PRIVATE_WORDS,
    Look,
    secrets_of,
    write_trajectory,
)

LISTS = {"words": PRIVATE_WORDS, "expressions": (PRIVATE_EXPRESSION,)}
REDACT = PrivacySettings(policy="redact", **LISTS)


def redaction_of(folder: Path, settings: PrivacySettings, marks: Marks | None = None) -> Redaction:
    found = Redaction(folder, Detectors(settings), b"key", marks=marks or Marks())
    found.find()
    return found


def shown(path: Path) -> pictures.BgrPicture:
    picture = pictures.load_picture(path)
    assert picture is not None
    return picture


def bytes_below(folder: Path) -> bytes:
    texts = [*folder.rglob("*.json"), *folder.rglob("*.parquet")]
    return b"\n".join(path.read_bytes() for path in texts)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are not read, which takes seconds."""
    monkeypatch.setattr(pictures, "can_read", lambda: False)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_the_copy_holds_a_secret(tmp_path: Path, kind: str) -> None:
    secrets = list(secrets_of(kind, 3))
    write_trajectory(tmp_path / "demo", secrets, Look())
    found = redaction_of(tmp_path / "demo", REDACT)
    assert found.write(tmp_path / "out" / "demo")
    data = bytes_below(tmp_path / "out" / "demo")
    assert not [secret for secret in secrets if secret.encode() in data]
    assert errors(validate_trajectory(tmp_path / "out" / "demo")) == []
    assert {one.kind for one in found.findings} == {kind}


def test_flagging_counts_and_changes_nothing(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "demo", list(secrets_of("email", 2)), Look())
    found = redaction_of(tmp_path / "demo", PrivacySettings(**LISTS))
    assert {(one.kind, one.policy) for one in found.findings} == {("email", "flag")}
    assert found.write(tmp_path / "out") == 0
    assert found.withheld() == ""


def test_dropping_a_kind_withholds_the_demonstration(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "demo", list(secrets_of("card", 1)), Look())
    found = redaction_of(tmp_path / "demo", PrivacySettings(kinds={"card": "drop"}))
    assert found.withheld() == "private: card"


@pytest.mark.usefixtures("unread")
def test_what_no_reader_looked_at_is_withheld(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "demo", list(secrets_of("email", 1)), Look())
    assert redaction_of(tmp_path / "demo", REDACT).withheld() == "pictures not read"


def test_findings_never_quote_and_name_the_same_secret_alike(tmp_path: Path) -> None:
    secret = next(secrets_of("email", 1))
    write_trajectory(tmp_path / "demo", [secret, secret], Look())
    rows = redaction_of(tmp_path / "demo", PrivacySettings()).rows()
    assert secret not in str(rows)
    assert len({row["secret"] for row in rows}) == 1


def test_no_picture_of_the_copy_shows_a_secret(tmp_path: Path) -> None:
    secrets = [next(secrets_of(kind, 1)) for kind in ("email", "card")]
    write_trajectory(tmp_path / "demo", secrets, Look(size=0.4))
    redaction_of(tmp_path / "demo", REDACT).write(tmp_path / "out")
    picture = shown(tmp_path / "out" / "final_screenshot.png")[:300]
    read = _folded(" ".join(line.text for line in pictures.read_lines(picture)))
    assert "now" in read  # the rest of the lines is there
    assert not [secret for secret in secrets if _folded(secret) in read]


@pytest.mark.usefixtures("unread")
def test_people_cover_and_uncover_boxes(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "demo", ["nothing"], Look())
    marks = Marks(added={0: [(50, 40, 300, 50)]})
    found = redaction_of(tmp_path / "demo", REDACT, marks)
    found.write(tmp_path / "out")
    first = shown(tmp_path / "out" / "steps" / "000" / "screenshot.png")
    final = shown(tmp_path / "out" / "final_screenshot.png")
    assert (first[40:90, 50:350] == first[40, 50]).all()
    assert not (final[40:90, 50:350] == final[40, 50]).all()
