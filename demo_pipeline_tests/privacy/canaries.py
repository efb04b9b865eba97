"""Writes trajectories with invented secrets in typed text, trees, instructions and screenshots."""

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from stdnum import iban, luhn

from demo_pipeline.files.json_files import dump_json
from demo_pipeline.trajectories.provenance import write_provenance
from demo_pipeline_tests.datasets.builders import ROW
from demo_pipeline_tests.datasets.seen_screens import element, write_tree

PRIVATE_WORDS = ("Project Falcon", "Aurelia Vandermeer")
PRIVATE_EXPRESSION = r"EMP-\d{5}"
_LOWER = string.ascii_lowercase
_WORD = string.ascii_letters + string.digits


def secrets_of(kind: str, count: int, seed: int = 0) -> Iterator[str]:  # noqa: PLR0912 - kinds
    """Yields `count` invented secrets of a kind, such as `email`, all different."""
    dice = random.Random(f"{kind} {seed}")

    def letters(size: int, of: str = _WORD) -> str:
        return "".join(dice.choices(of, k=size))

    for number in range(count):
        match kind:
            case "email":
                yield f"{letters(6, _LOWER)}.{letters(5, _LOWER)}{number}@{letters(7, _LOWER)}.org"
            case "phone":
                yield f"+1 {dice.choice(('212', '415', '650'))}-555-{dice.randrange(100, 200):04d}"
            case "card":
                digits = f"4{letters(14, string.digits)}"
                digits += luhn.calc_check_digit(digits)
                yield " ".join(digits[at : at + 4] for at in range(0, 16, 4))
            case "iban":
                bban = letters(18, string.digits)
                yield iban.format(f"DE{iban.calc_check_digits(f'DE00{bban}')}{bban}")
            case "ip_address":
                yield ".".join(str(dice.randrange(11, 250)) for _ in range(4))
            case "aws_key":
                yield f"AKIA{letters(16, string.ascii_uppercase + string.digits)}"
            case "github_token":
                yield f"ghp_{letters(36)}"
            case "slack_token":
                yield f"xoxb-{letters(12, string.digits)}-{letters(16, _LOWER)}"
            case "jwt":
                yield f"eyJ{letters(17)}.eyJ{letters(20)}.{letters(24)}"
            case "private_key":
                body = letters(32)
                yield f"-----BEGIN PRIVATE KEY----- {body} -----END PRIVATE KEY-----"
            case "word":
                yield PRIVATE_WORDS[number % len(PRIVATE_WORDS)]
            case "expression":
                yield f"EMP-{letters(5, string.digits)}"


KINDS = (
    *("email", "phone", "card", "iban", "ip_address", "aws_key", "github_token"),
    *("slack_token", "jwt", "private_key", "word", "expression"),
)


@dataclass(frozen=True)
class Look:
    """The style of text in screenshots.

    Attributes:
        font: path of the font's file; empty for Pillow's own font.
        size: height of the text, pixels.
        dark: whether the text is light on a dark background.
    """

    font: str = ""
    size: int = 14
    dark: bool = False


@dataclass(frozen=True)
class Moment:
    """A step of a trajectory.

    Attributes:
        action: type and parameters of the action.
        names: names of the text fields in the step's tree.
        lines: lines of text in the step's screenshot.
    """

    action: tuple[str, dict[str, Any]]
    names: Sequence[str] = ()
    lines: Sequence[str] = ()


def typing(text: str) -> tuple[str, dict[str, Any]]:
    return "type", {"text": text}


def picture_of(lines: Sequence[str], look: Look) -> Any:
    """Returns a screenshot of 1920 by 1080 pixels with lines of text."""
    ink, paper = ("#e6e6e6", "#1e1e22") if look.dark else ("#191919", "#f4f4f6")
    picture = Image.new("RGB", (1920, 1080), paper)
    pen = ImageDraw.Draw(picture)
    font = (
        ImageFont.truetype(look.font, look.size) if look.font else ImageFont.load_default(look.size)
    )
    for number, line in enumerate(lines):
        pen.text((60, 40 + int(1.6 * look.size) * number), line, fill=ink, font=font)
    return picture


def sentences(secrets: Sequence[str]) -> list[Moment]:
    """Returns a step for each secret that types the secret in a sentence.

    The tree and the screenshot of the next step show the typed sentence.
    """
    steps = [f"Sent to {secret} now" for secret in secrets]
    return [
        Moment(typing(text), [steps[max(0, number - 1)]], steps[: number or 1][-20:])
        for number, text in enumerate(steps)
    ]


def write_trajectory(
    folder: Path, moments: Sequence[Moment], look: Look, *, instruction: str, last: Sequence[str]
) -> None:
    """Writes a valid trajectory.

    Args:
        folder: the folder of the trajectory.
        moments: the steps.
        look: the style of text in screenshots.
        instruction: the instruction of the task.
        last: the lines of text in the final screenshot.
    """
    rows = []
    for number, moment in enumerate(moments):
        step = folder / "steps" / f"{number:03d}"
        step.mkdir(parents=True)
        kind, given = moment.action
        action = {"step_index": number, "action_type": kind, "parameters": given}
        dump_json(step / "action.json", {**action, "reasoning": f"{kind} {given}."})
        boxes = enumerate(moment.names)
        write_tree(
            step, *(element("textfield", name, (1200, 40 + 30 * n, 600, 28)) for n, name in boxes)
        )
        picture_of(moment.lines, look).save(step / "screenshot.png")
        step_of = {"trajectory_id": folder.name, "step_index": number, "action_type": kind}
        origin = {"instruction_source": "title", "objectives": [instruction]}
        mail = {"split_group": "mail_task", "platform": "linux", "text": given.get("text")}
        rows.append({**ROW, **step_of, **origin, **mail})
    picture_of(last, look).save(folder / "final_screenshot.png")
    task = {"task_id": "mail_task", "instruction": instruction, "application": "mail"}
    more = {"osworld_task_id": None, "difficulty": "easy", "expected_steps": len(moments)}
    dump_json(folder / "task.json", {**task, **more})
    result = {"trajectory_id": folder.name, "success": True, "total_steps": len(moments)}
    human = {"name": "human", "version": "1"}
    ended: dict[str, Any] = {"completion_time_ms": 1000, "error_message": None, "model_info": human}
    dump_json(folder / "result.json", {**result, **ended})
    write_provenance(folder / "provenance.parquet", rows)
