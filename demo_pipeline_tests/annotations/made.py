"""Creates stores with demonstrations and imitates answers of models, for annotation tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotation_sources import ModelProvider
from demo_pipeline.annotations.chat_server import Endpoint
from demo_pipeline.annotations.model_prompts import (
    GRADE_PROMPT,
    PROMPTS,
    SUBTASKS_PROMPT,
    VARIANTS_PROMPT,
)
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.sample_workspace import open_workspace

TYPED = "canary-typed-7f3a"
KEY = "sk-canary-key-91bc"
ACTIONS = (CLICK, ("type", {"text": TYPED}), ("hotkey", {"keys": ["enter"]}))
STEP = {
    "observation": "A window with a button.",
    "thought": "The button opens the browser, so I click it.",
    "caption": "Click the browser's button",
    "correct": True,
    "redundant": False,
    "reflection": "The browser opened.",
}
WHOLE = {
    GRADE_PROMPT.text: {
        "outcome": 9,
        "process": 8,
        "efficiency": 5,
        "difficulty": 2,
        "completed": True,
        "reason": "Done with a detour.",
    },
    VARIANTS_PROMPT.text: {
        "brief": "Start Chrome",
        "plain": "Please start Chrome and search",
        "detailed": "Start Chrome by its button, then search",
    },
    SUBTASKS_PROMPT.text: {"subtasks": [{"first": 0, "last": 2, "text": "Search"}]},
}
CALLS = len(ACTIONS) + len(WHOLE)


def made_store(tmp_path: Path, *names: str, **settings: Any) -> Workspace:
    """Returns a workspace whose store has demonstrations with three steps each."""
    workspace = open_workspace(tmp_path, **settings)
    for number, name in enumerate(names or ("demo",)):
        trajectory = make_trajectory(
            tmp_path, name, ACTIONS, shade=20 * number, instruction=f"Open Chrome {number}"
        )
        commit_trajectory(workspace, trajectory)
    return workspace


def chat(answer: Any) -> tuple[int, Any]:
    """Returns a chat completion in OpenAI's format."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}]}


def good(body: dict[str, Any], _number: int = 0) -> tuple[int, Any]:
    """Returns a valid answer of a model to any prompt."""
    system_text = body["messages"][0]["content"]
    return chat(
        next((answer for text, answer in WHOLE.items() if system_text.startswith(text)), STEP)
    )


def providers(url: str, model: str = "stub-1", at_once: int = 2) -> list[ModelProvider]:
    """Returns two providers, as the command does: for single steps, then for demonstrations."""
    server = Endpoint(url, KEY, attempts=1, timeout=20)
    models = []
    for subject in ("step", "whole"):
        prompts = [prompt for prompt in PROMPTS if prompt.subject == subject]
        models.append(ModelProvider(server, model, prompts, at_once))
    return models


Behaviour = Callable[[dict[str, Any], int], tuple[int, Any]]
