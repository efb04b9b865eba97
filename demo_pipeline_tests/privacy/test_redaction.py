import json
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.privacy import screenshot_texts
from demo_pipeline.privacy.detectors import Detectors
from demo_pipeline.privacy.private_texts import folded
from demo_pipeline.privacy.redaction import Marks, Redaction
from demo_pipeline.problems import errors
from demo_pipeline.settings import PrivacySettings
from demo_pipeline_tests.privacy.canaries import (
    KINDS,
    PRIVATE_EXPRESSION,
    PRIVATE_WORDS,
    Look,
    Moment,
    secrets_of,
    sentences,
    typing,
    write_trajectory,
)

LISTS = {"words": PRIVATE_WORDS, "expressions": (PRIVATE_EXPRESSION,)}
REDACT = PrivacySettings(policy="redact", **LISTS)


def write(folder: Path, secrets: Sequence[str]) -> None:
    """Writes a trajectory that types and shows each secret."""
    moments = sentences(secrets)
    first = secrets[0]
    last = [moment.action[1]["text"] for moment in moments]
    write_trajectory(folder, moments, Look(), instruction=f"Write to {first}.", last=last)


def redaction_of(folder: Path, settings: PrivacySettings, marks: Marks | None = None) -> Redaction:
    redaction = Redaction(folder, Detectors(settings), b"key", marks=marks or Marks())
    redaction.find()
    return redaction


def loaded_screenshot(path: Path) -> screenshot_texts.BgrImage:
    picture = screenshot_texts.load_screenshot(path)
    assert picture is not None
    return picture


def bytes_below(folder: Path) -> bytes:
    texts = [*folder.rglob("*.json"), *folder.rglob("*.parquet")]
    return b"\n".join(path.read_bytes() for path in texts)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes text recognition fail as if its package were not installed, which saves seconds."""
    monkeypatch.setattr(screenshot_texts, "read_lines", Mock(side_effect=ModuleNotFoundError))


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_the_copy_holds_a_secret(tmp_path, kind):
    secrets = list(secrets_of(kind, 3))
    write(tmp_path / "demo", secrets)
    redaction = redaction_of(tmp_path / "demo", REDACT)
    assert redaction.write(tmp_path / "out" / "demo")
    data = bytes_below(tmp_path / "out" / "demo")
    assert not [secret for secret in secrets if secret.encode() in data]
    assert errors(validate_trajectory(tmp_path / "out" / "demo")) == []
    assert {finding["kind"] for finding in redaction.findings} == {kind}


def test_flagging_counts_and_changes_nothing(tmp_path):
    write(tmp_path / "demo", list(secrets_of("email", 2)))
    redaction = redaction_of(tmp_path / "demo", PrivacySettings(**LISTS))
    assert {(finding["kind"], finding["policy"]) for finding in redaction.findings} == {
        ("email", "flag")
    }
    assert redaction.write(tmp_path / "out") == 0
    assert redaction.withheld("demo") == ""


def test_dropping_a_kind_withholds_the_demonstration(tmp_path, monkeypatch):
    monkeypatch.setattr(screenshot_texts, "read_lines", Mock(return_value=[]))
    write(tmp_path / "demo", list(secrets_of("card", 1)))
    redaction = redaction_of(tmp_path / "demo", PrivacySettings(kinds={"card": "drop"}))
    assert redaction.withheld("demo") == "private: card"


@pytest.mark.usefixtures("unread")
def test_a_demonstration_with_unsearched_screenshots_is_withheld(tmp_path):
    write(tmp_path / "demo", list(secrets_of("email", 1)))
    assert redaction_of(tmp_path / "demo", REDACT).withheld("demo") == "pictures not read"


def test_findings_never_quote_a_secret_and_give_equal_secrets_equal_hashes(tmp_path):
    secret = next(secrets_of("email", 1))
    write(tmp_path / "demo", [secret, secret])
    rows = redaction_of(tmp_path / "demo", PrivacySettings()).findings
    assert secret not in str(rows)
    assert len({row["secret"] for row in rows}) == 1


def test_no_picture_of_the_copy_shows_a_secret(tmp_path):
    secrets = [next(secrets_of(kind, 1)) for kind in ("email", "card")]
    write(tmp_path / "demo", secrets)
    redaction_of(tmp_path / "demo", REDACT).write(tmp_path / "out")
    picture = loaded_screenshot(tmp_path / "out" / "final_screenshot.png")[:300]
    read = folded(
        " ".join(line.text for line in screenshot_texts.ScreenshotReader().lines(picture))
    )
    assert "now" in read  # the rest of each line is still visible
    assert not [secret for secret in secrets if folded(secret) in read]


def test_people_cover_boxes_whatever_the_policy_is(tmp_path):
    write(tmp_path / "demo", ["nothing", "more"])
    marks = Marks(added={0: [(50, 40, 300, 50)], 1: [(700, 40, 10, 10)]})
    redaction = redaction_of(tmp_path / "demo", PrivacySettings(), marks)
    # Two steps and the final screenshot; the marks of the last step also apply to the final one.
    assert redaction.write(tmp_path / "out") == 3
    first = loaded_screenshot(tmp_path / "out" / "steps" / "000" / "screenshot.png")
    final = loaded_screenshot(tmp_path / "out" / "final_screenshot.png")
    assert (first[40:90, 50:350] == first[40, 50]).all()
    assert not (final[40:90, 50:350] == final[40, 50]).all()


def test_a_detected_box_that_people_clear_is_not_covered(tmp_path):
    settings = PrivacySettings(regions=((50, 40, 300, 50),), kinds={"region": "redact"})
    write(tmp_path / "demo", ["nothing"])
    marks = Marks(kept={0: [(50, 40, 300, 50)]})
    redaction = redaction_of(tmp_path / "demo", settings, marks)
    # None stands for the final screenshot, whose box nobody cleared.
    assert [finding["step"] for finding in redaction.findings] == [None]
    assert redaction.write(tmp_path / "out") == 1


@pytest.mark.usefixtures("unread")
def test_unsearched_screenshots_are_covered_completely(tmp_path):
    write(tmp_path / "demo", ["nothing private"])
    redaction = redaction_of(tmp_path / "demo", REDACT)
    assert redaction.write(tmp_path / "out") == 2
    picture = loaded_screenshot(tmp_path / "out" / "final_screenshot.png")
    assert (picture == picture[0, 0]).all()


EMAIL = "bob.smith@example.com"
CARD = "4111111111111111"
TAB = ("hotkey", {"keys": ["tab"]})
BACKSPACE = ("hotkey", {"keys": ["backspace"], "presses": 2})
FIELDS = [typing("4111"), TAB, typing("1111"), TAB, typing("1111"), TAB, typing("1111")]
HARD = {
    "in a URL": ([typing(EMAIL)], "https://mail.test/?to=bob.smith%40example.com&x=1", "bob.smith"),
    "over two lines": ([typing(EMAIL)], "Write to bob.smith@exam\n  ple.com now", "ple.com"),
    "cut off": ([typing(EMAIL)], "To: bob.smith@exampl… (1)", "bob.smith"),
    "in capitals": ([typing("wort4321.geheim@x.org")], "WORT4321.GEHEIM@X.ORG", "GEHEIM"),
    "in two typings": ([typing("bob.smi"), typing("th@example.com")], "", "bob.smi"),
    "with a correction": ([typing("bob.smiht"), BACKSPACE, typing("th@example.com")], "", "bob.s"),
    "after another text": ([typing("ok9"), typing("181.201"), typing(".106.154")], "", ".106.154"),
    "card in four fields": (FIELDS, "", "1111"),
    "card with other gaps": ([typing(CARD)], "4111-1111-1111-1111", "1111"),
    "listed word in an id": ([typing("Open it")], "tab_project_falcon_2", "falcon"),
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(("actions", "shown_name", "gone"), HARD.values(), ids=HARD)
def test_a_secret_is_replaced_however_it_is_written(tmp_path, actions, shown_name, gone):
    moments = [Moment(action, [shown_name]) for action in actions]
    write_trajectory(tmp_path / "demo", moments, Look(), instruction="Do it.", last=[])
    redaction_of(tmp_path / "demo", REDACT).write(tmp_path / "out")
    assert gone.encode() in bytes_below(tmp_path / "demo")
    assert gone.encode() not in bytes_below(tmp_path / "out")
    assert errors(validate_trajectory(tmp_path / "out", "demo")) == []


def test_a_secret_over_two_lines_of_a_picture_is_covered(tmp_path):
    lines = ["please write to bob.smith@exam", "ple.com before noon", "Thank you very much"]
    moments = [Moment(typing(EMAIL), [], lines)]
    write_trajectory(tmp_path / "demo", moments, Look(), instruction="Do it.", last=lines)
    redaction_of(tmp_path / "demo", REDACT).write(tmp_path / "out")
    picture = loaded_screenshot(tmp_path / "out" / "final_screenshot.png")[:300]
    read = folded(
        " ".join(line.text for line in screenshot_texts.ScreenshotReader().lines(picture))
    )
    assert "thank" in read
    assert "smith" not in read
    assert "ple.c" not in read


@pytest.mark.parametrize(
    "line",
    [
        "----BEGIN PRIVATE KEY---- fwu3kscsIVS0trpX ----END PRIVATE KEY-----",
        "—BEGINPRIVATEKEY— fwu3kscsIVS0trpX -END PRIVATE",
        "wu3kscsIVS0trpX -----END PRIVATE KEY-----",
    ],
)
def test_a_whole_key_is_found_however_its_dashes_are_recognised(line):
    [span] = Detectors(REDACT).find_in_recognised(f"{line}, two days ago")
    assert span.kind == "private_key"
    assert "kscsIVS0" in f"{line}, two days ago"[span.start : span.end]


@pytest.mark.parametrize("name", ["ada. lovelace1@example. org", "ada.love 12@example.org"])
def test_a_whole_address_is_found_if_a_space_was_recognised_in_it(name):
    text = f"Mail: {name} wrote at noon"
    [span] = Detectors(REDACT).find_in_recognised(text)
    assert text[span.start : span.end].strip() == name


def test_a_secret_found_only_without_spaces_makes_the_whole_line_private():
    text = "10.1.2.77 has AKIA4HSJ ZOTIXHZKKW8R"
    [span] = Detectors(REDACT).find_in_recognised(text)
    assert (span.start, span.end) == (0, len(text))


def test_a_flagged_span_does_not_replace_a_redacted_one(tmp_path):
    settings = PrivacySettings(kinds={"email": "redact"}, expressions=(r"mailto:\S+",))
    write(tmp_path / "demo", ["mailto:bob.smith@example.com"])
    assert redaction_of(tmp_path / "demo", settings).texts.clean(f"mailto:{EMAIL}") == (
        "mailto:<email>"
    )


def test_a_demonstration_with_a_listed_word_in_its_id_is_withheld(tmp_path):
    write(tmp_path / "demo", ["nothing"])
    assert redaction_of(tmp_path / "demo", REDACT).withheld("project_falcon_1") == (
        "private: its id"
    )


def test_text_typed_into_a_private_window_is_removed_with_the_window(tmp_path):
    settings = PrivacySettings(policy="redact", windows=("Bank",))
    write(tmp_path / "demo", ["transfer 100"])
    tree = tmp_path / "demo" / "steps" / "000" / "ui_tree.json"
    value = json.loads(tree.read_text())
    window = {**value["root"]["children"][0], "role": "window", "name": "My Bank"}
    value["root"]["children"] = [{**window, "states": ["FOCUSED"]}]
    tree.write_text(json.dumps(value))
    redaction_of(tmp_path / "demo", settings).write(tmp_path / "out")
    action = json.loads((tmp_path / "out" / "steps" / "000" / "action.json").read_text())
    assert action["parameters"]["text"] == "<window>"
