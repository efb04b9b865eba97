"""Made trajectories that hold secrets: typed, in trees, in the instruction and in pictures."""

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from stdnum import iban, luhn

from demo_pipeline.files.json_files import dump_json
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA, write_provenance

PRIVATE_WORDS = ("Project Falcon", "Aurelia Vandermeer")
PRIVATE_EXPRESSION = r"EMP-\d{5}"
_LOWER, _WORD = string.ascii_lowercase, string.ascii_letters + string.digits


def secrets_of(kind: str, count: int, seed: int = 0) -> Iterator[str]:  # noqa: PLR0912 - kinds
    """Yield made secrets of a kind, all different."""
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
    """How a picture shows text: OpenCV's font and size, and light on dark."""

    font: int = cv2.FONT_HERSHEY_SIMPLEX
    size: float = 0.5
    dark: bool = False


def picture_of(lines: Sequence[str], look: Look) -> Any:
    """A picture of 1920 by 1080 with lines of text."""
    ink, paper = ((230, 230, 230), (30, 30, 34)) if look.dark else ((25, 25, 25), (244, 244, 246))
    picture = np.full((1080, 1920, 3), paper, np.uint8)
    for number, line in enumerate(lines):
        at = (60, 70 + 44 * number)
        cv2.putText(picture, line, at, look.font, look.size, ink, 1, cv2.LINE_AA)
    return picture


def write_trajectory(
    folder: Path, secrets: Sequence[str], look: Look, *, shown: Sequence[str] | None = None
) -> None:
    """A valid trajectory of a step for each secret: typed, in its tree, and shown afterwards."""
    rows = []
    steps = [f"Sent to {secret} now" for secret in secrets]
    for number, text in enumerate(steps):
        step = folder / "steps" / f"{number:03d}"
        step.mkdir(parents=True)
        typed = {"step_index": number, "action_type": "type", "parameters": {"text": text}}
        dump_json(step / "action.json", {**typed, "reasoning": f"Type {text!r}."})
        dump_json(step / "ui_tree.json", _tree(steps[max(0, number - 1)]), compact=True)
        lines = (shown or steps)[: number or 1]
        cv2.imwrite(str(step / "screenshot.png"), picture_of(lines[-20:], look))
        rows.append(_row(folder.name, number, text))
    last = picture_of((shown or steps)[-20:], look)
    cv2.imwrite(str(folder / "final_screenshot.png"), last)
    task = {"task_id": "mail_task", "instruction": f"Write to {secrets[0]}.", "application": "mail"}
    more = {"osworld_task_id": None, "difficulty": "easy", "expected_steps": len(steps)}
    dump_json(folder / "task.json", {**task, **more})
    result = {"trajectory_id": folder.name, "success": True, "total_steps": len(steps)}
    human = {"name": "human", "version": "1"}
    ended: dict[str, Any] = {"completion_time_ms": 1000, "error_message": None, "model_info": human}
    dump_json(folder / "result.json", {**result, **ended})
    write_provenance(folder / "provenance.parquet", rows)


def _tree(name: str) -> dict[str, Any]:
    whole = {"x": 0, "y": 0, "width": 1920, "height": 1080}
    field = {"x": 60, "y": 40, "width": 900, "height": 40}
    node = {"id": "node_1", "role": "textfield", "name": name, "bounds": field, "states": []}
    root = {"id": "node_0", "role": "desktop", "name": "", "bounds": whole, "states": []}
    return {
        "timestamp": "2026-11-21T20:24:02.363Z",
        "screen": {"width": 1920, "height": 1080},
        "root": {**root, "children": [{**node, "children": []}]},
    }


def _row(trajectory: str, number: int, text: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(PROVENANCE_SCHEMA.names)
    for column in PROVENANCE_SCHEMA:
        if not column.nullable:
            kind = str(column.type)
            row[column.name] = False if kind == "bool" else "" if kind == "string" else 0
    fixed = {"trajectory_id": trajectory, "step_index": number, "action_type": "type", "text": text}
    codes = {"reason_code": "pre_move", "clock_method": "pixels", "freshness": "fresh"}
    more = {"tree_agreement": "agrees", "split_group": "mail_task", "platform": "linux"}
    return {**row, **fixed, **codes, **more, "instruction_source": "title", "objectives": [text]}
