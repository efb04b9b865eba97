"""Where annotations come from: a server with a model, files, and rules.

Belongs here: the interface of a provider, and the four. What an answer or a line says is refused
with a reason in one word, or cleaned; it is never quoted in an error.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from demo_pipeline.annotations.annotation_store import AnnotationDocument, JudgedDemonstration
from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    MOST_ANNOTATED,
    SOURCES,
    VARIANTS,
    AnnotationKind,
    RefusedValueError,
    end_of,
)
from demo_pipeline.annotations.chat_server import Endpoint, each_result
from demo_pipeline.annotations.model_prompts import Prompt
from demo_pipeline.annotations.questions import ModelQuestion
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.shown_text import escape_markers, plain_characters, replace_surrogates
from demo_pipeline.problems import Problem

_ATTEMPTS = 2  # an answer that does not fit is asked for once more
_MOST_ANSWER = 100_000  # characters
_FENCED = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)

Provider = Callable[[JudgedDemonstration], Iterator[AnnotationDocument]]
"""Yields new annotations of a demonstration, each as soon as it is there."""


@dataclass
class Budget:
    """How many questions may still be asked; None: any number."""

    left: int | None = None

    def take(self, questions: "list[ModelQuestion]") -> "list[ModelQuestion]":
        """The first questions, as many as are left, which they use up."""
        taken = questions if self.left is None else questions[: self.left]
        if self.left is not None:
            self.left -= len(taken)
        return taken


@dataclass
class ModelProvider:
    """Asks a server.

    Attributes:
        server: is asked.
        model: its name, in the requests and as the author.
        prompts: what is asked.
        at_once: requests under way.
        objectives: of a demonstration's quest.
        unanswered: why questions have no answer: they are asked again by the next run.
        budget: of questions.
    """

    server: Endpoint
    model: str
    prompts: Sequence[Prompt]
    at_once: int = 4
    objectives: Callable[[str], Sequence[str]] = lambda _: ()
    unanswered: Counter[str] = field(default_factory=Counter)
    budget: Budget = field(default_factory=Budget)

    def questions(self, judged: JudgedDemonstration) -> list[ModelQuestion]:
        """What the server would be asked; what was answered before is not among it."""
        steps: list[int | None] = [step.index for step in judged.trajectory.steps]
        asked = [
            (prompt, step)
            for prompt in (self.prompts if steps else ())
            for step in (steps if prompt.of == "step" else [None])
            if judged.asked_key(step, self.model, prompt.id) not in judged.documents
        ]
        objectives = self.objectives(judged.id) if asked else ()
        return [ModelQuestion(judged, prompt, step, objectives) for prompt, step in asked]

    def __call__(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """See `Provider`; raises what the server's `ask` raises."""
        questions = self.budget.take(self.questions(judged))
        with closing(each_result(questions, self._answer, self.at_once)) as answers:
            for answer in answers:
                if isinstance(answer, str):
                    self.unanswered[answer] += 1
                else:
                    yield answer

    async def _answer(self, question: ModelQuestion) -> AnnotationDocument | str:
        """The annotation, or why there is none."""
        refused: list[str] = []
        values = dict[str, Any]()
        told = ""
        while len(refused) < _ATTEMPTS:
            try:
                body = await asyncio.to_thread(question.body, self.model, *refused[-1:])
            except RefusedValueError as error:
                return error.reason
            _, chat, fault = await self.server.ask(body)
            if fault:
                return fault
            told = answer_text(chat)
            try:
                values = read_answer(question.prompt, told)
                return self._document(question, values, refused)
            except RefusedValueError as error:
                refused.append(error.reason)
        staged = plain_characters(replace_surrogates(told[: MOST_ANNOTATED // 6]))
        return self._document(question, {}, refused, staged)

    def _document(
        self,
        question: ModelQuestion,
        values: Mapping[str, Any],
        refused: Sequence[str],
        staged: str = "",
    ) -> AnnotationDocument:
        by = {"source": "model", "author": self.model, "prompt": question.prompt.id}
        said = {"asked": True, "refused": list(refused), "answer": staged}
        return question.judged.document(question.step, values, **by, **said)


def answer_text(chat: Any) -> str:
    """The words of an answer in OpenAI's form; empty without any."""
    try:
        content = chat["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def read_answer(prompt: Prompt, text: str) -> dict[str, Any]:
    """The values of an answer, which may be fenced, or follow what a model thought.

    Raises:
        RefusedValueError: it is empty, too long, no JSON, or does not fit the schema.
    """
    if not text.strip():
        raise RefusedValueError("empty")
    if len(text) > _MOST_ANSWER:
        raise RefusedValueError("too_long")
    fenced = _FENCED.match(text)
    plain = fenced[1] if fenced else _THOUGHT.sub("", text)
    try:
        value = parse_json(replace_surrogates(plain), "answer", any_depth=False)
    except JsonFileError:
        raise RefusedValueError("not_json") from None
    try:
        return prompt.values(prompt.answer.model_validate(value))
    except ValidationError:
        raise RefusedValueError("wrong_schema") from None


def rule_provider(undone: Callable[[str], Iterable[int]]) -> Provider:
    """Says what rules know: the sentence of a step as its thought, and what triage is sure of.

    `undone`: demonstration → steps that the next step takes back.
    """

    def documents(judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        told = (step for step in judged.trajectory.steps if step.action.reasoning)
        for step in told:  # of the others nothing is known to say
            thought = {"thought": step.action.reasoning}
            yield judged.document(step.index, thought, source="rule", author="template/1")
        for number in sorted(set(undone(judged.id)) & judged.digests.keys()):
            said = {"step_redundant": True}
            yield judged.document(number, said, source="rule", author="triage.undone/1")

    return documents


@dataclass
class FileProvider:
    """Imports annotations from JSON Lines.

    Attributes:
        path: the file.
        member: of a line, with the id of its demonstration.
        read: the documents of a line.
        lines: demonstration → number and value of each line about it.
        problems: of lines that hold none.
    """

    path: Path
    member: str
    read: Callable[[JudgedDemonstration, Mapping[str, Any]], Iterable[AnnotationDocument]]
    lines: dict[str, list[tuple[int, Mapping[str, Any]]]] = field(init=False, default_factory=dict)
    problems: list[Problem] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        with self.path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                try:
                    value = parse_json(text, "line", any_depth=False) if text.strip() else None
                except JsonFileError:
                    value = ""
                if isinstance(value, dict) and isinstance(value.get(self.member), str):
                    self.lines.setdefault(value[self.member], []).append((number, value))
                elif text.strip():
                    self._refuse(number, "not_json")

    def __call__(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """See `Provider`; a line is imported as a whole or not at all."""
        for number, line in self.lines.get(judged.id, ()):
            try:
                yield from list(self.read(judged, line))
            except RefusedValueError as error:
                self._refuse(number, error.reason, judged.id)
            except ValidationError:
                self._refuse(number, "wrong_schema", judged.id)

    def _refuse(self, line: int, reason: str, demonstration: str = "") -> None:
        remedy = "correct the line, or leave it out"
        problem = Problem(reason, self.path.name, _REASONS[reason], line, remedy=remedy)
        self.problems.append(replace(problem, demonstration=demonstration))


_REASONS = {
    "not_json": "is not a JSON object",
    "wrong_schema": "a member is missing, or is none of its kind",
    "wrong_kind": (
        "no annotation of a step, or of the whole, is called so; variants are "
        f"{', '.join(VARIANTS)}"
    ),
    "wrong_step": "the demonstration has no such step",
    "wrong_task": "the instruction is not that of the demonstration",
    "wrong_code": "the code of a step is not that of the demonstration: export it again",
    "too_long": f"a text has more than {MOST_ANNOTATED} characters",
    "empty": "a text is empty",
}


def import_lines(path: Path) -> FileProvider:
    """The import of JSON Lines, an annotation a line.

    Members: demonstration, kind, value, source, author; also step (none: the whole), variant,
    prompt, time, and judged (none: what is there now).

    Raises:
        OSError: the file cannot be read.
    """
    return FileProvider(path, "demonstration", _own_line)


def _own_line(judged: JudgedDemonstration, line: Mapping[str, Any]) -> Iterator[AnnotationDocument]:
    kind = line.get("kind")
    name = line.get("variant") if kind == AnnotationKind.INSTRUCTION_VARIANT else kind
    if not isinstance(name, str) or "value" not in line or line.get("source") not in SOURCES:
        raise RefusedValueError("wrong_schema")
    members = ("source", "author", "prompt", "judged", "time")
    known = {key: line[key] for key in members if line.get(key) is not None}
    yield judged.document(line.get("step"), {name: line["value"]}, **known)


_STEP_FIELDS = {**AGENTNET_STEP_FIELDS, "action": "caption"}
_TASK_FIELDS = {**AGENTNET_TASK_FIELDS, "task_completed": "task_completed"}


def import_opencua(path: Path, model: str, code_of: Callable[[StepFiles], str]) -> FileProvider:
    """The import of what OpenCUA's thought generator wrote for an `agentnet` export.

    Its verdicts are about the step that they stand with. Every step's code has to be that of the
    demonstration now.

    Args:
        path: JSON Lines, a task a line.
        model: that it was run with.
        code_of: the code of a step in the export; empty: it has none.

    Raises:
        OSError: the file cannot be read.
    """

    def read(judged: JudgedDemonstration, line: Mapping[str, Any]) -> Iterator[AnnotationDocument]:
        steps = line.get("traj")
        task = judged.trajectory.task
        if not isinstance(steps, list) or not all(map(_is_opencua_step, steps)):
            raise RefusedValueError("wrong_schema")
        if line.get("instruction") != escape_markers(replace_surrogates(task.instruction))[0]:
            raise RefusedValueError("wrong_task")
        codes = {step.index: code_of(step) for step in judged.trajectory.steps}
        said: list[tuple[int | None, Mapping[str, Any], Mapping[str, str]]] = []
        for step in steps:
            number = _number(judged.id, step["image"])
            code = step["value"]["code"]
            is_end = number == end_of(judged.trajectory) and code.startswith("computer.terminate")
            if not is_end and codes.get(number) != code:
                raise RefusedValueError("wrong_code")
            said.append((number, step["value"], _STEP_FIELDS))
        for place, values, names in [*said, (None, line, _TASK_FIELDS)]:
            known = {ours: values.get(name) for name, ours in names.items()}
            told = {ours: value for ours, value in known.items() if value not in (None, "")}
            if told:  # the last step's reflection is empty
                yield judged.document(place, told, source="model", author=model, prompt="opencua")

    return FileProvider(path, "task_id", read)


def _is_opencua_step(step: Any) -> bool:
    value = step.get("value") if isinstance(step, dict) else None
    texts = (step.get("image"), value.get("code")) if isinstance(value, dict) else (None,)
    return all(isinstance(text, str) for text in texts)


def _number(demonstration: str, image: str) -> int:
    """The step of a picture of the export, whose name ends in it."""
    name, _, rest = image.rpartition("_")
    digits = rest.removesuffix(".png")
    if name != replace_surrogates(demonstration) or not (digits.isascii() and digits.isdigit()):
        raise RefusedValueError("wrong_step")
    return int(digits)
