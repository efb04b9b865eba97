"""Gets annotations from a model on a server, from rules, and from two kinds of files.

An answer or a line with a wrong format is refused. The reason is a fixed word that does not quote
the text, because the text may be private.
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

_ATTEMPTS = 2  # maximum number of times that a question is asked, if its answers are refused
_MOST_ANSWER = 100_000  # maximum number of characters of an answer; longer answers are refused
_FENCED = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)

Provider = Callable[[JudgedDemonstration], Iterator[AnnotationDocument]]
"""A function that yields annotation documents of a demonstration, each as soon as it is ready."""


@dataclass
class Budget:
    """A limit on the number of questions to a model, which several providers can share.

    Attributes:
        left: number of questions that may still be asked, or None if there is no limit.
    """

    left: int | None = None

    def take(self, questions: "list[ModelQuestion]") -> "list[ModelQuestion]":
        """Returns the first questions, at most `left`, and subtracts their number from `left`."""
        if self.left is None:
            return questions
        allowed = questions[: self.left]
        self.left -= len(allowed)
        return allowed


@dataclass
class ModelProvider:
    """A `Provider` that asks a model on a server about demonstrations.

    Attributes:
        server: the server that answers the requests.
        model: name of the model, in the requests and as the author of the annotations.
        prompts: the kinds of questions to ask.
        at_once: maximum number of parallel requests.
        objectives: function from the id of a demonstration to the objectives of the recorded task.
        unanswered: number of questions that the server did not answer, by reason. The next run
            asks these questions again.
        budget: limits the number of questions.
    """

    server: Endpoint
    model: str
    prompts: Sequence[Prompt]
    at_once: int = 4
    objectives: Callable[[str], Sequence[str]] = lambda _: ()
    unanswered: Counter[str] = field(default_factory=Counter)
    budget: Budget = field(default_factory=Budget)

    def questions(self, judged: JudgedDemonstration) -> list[ModelQuestion]:
        """Returns the questions about a demonstration that have no answer in the store."""
        steps: list[int | None] = [step.index for step in judged.trajectory.steps]
        if not steps:
            return []
        unanswered = list[tuple[Prompt, int | None]]()
        for prompt in self.prompts:
            subjects: list[int | None] = [None]
            if prompt.subject == "step":
                subjects = steps
            for step in subjects:
                if judged.asked_key(step, self.model, prompt.id) not in judged.documents:
                    unanswered.append((prompt, step))
        if not unanswered:
            return []
        objectives = self.objectives(judged.id)
        return [ModelQuestion(judged, prompt, step, objectives) for prompt, step in unanswered]

    def __call__(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """Asks the unanswered questions, within the budget, and yields the answers.

        Raises:
            ValueError: the server cannot be used; see `Endpoint.ask`.
        """
        questions = self.budget.take(self.questions(judged))
        with closing(each_result(questions, self._answer, self.at_once)) as answers:
            for answer in answers:
                if isinstance(answer, str):
                    self.unanswered[answer] += 1
                else:
                    yield answer

    async def _answer(self, question: ModelQuestion) -> AnnotationDocument | str:
        """Asks a question, and once more if the answer is refused.

        Returns:
            The document with the answer, or the reason why the server gave no answer. If the
            answers to both attempts were refused, the document contains no values.
        """
        refused: list[str] = []
        answer = ""
        while len(refused) < _ATTEMPTS:
            try:
                body = await asyncio.to_thread(question.body, self.model, *refused[-1:])
            except RefusedValueError as error:
                return error.reason
            _, chat, fault = await self.server.ask(body)
            if fault:
                return fault
            answer = answer_text(chat)
            try:
                values = read_answer(question.prompt, answer)
                return self._document(question, values, refused)
            except RefusedValueError as error:
                refused.append(error.reason)
        last_answer = plain_characters(replace_surrogates(answer[: MOST_ANNOTATED // 6]))
        return self._document(question, {}, refused, last_answer)

    def _document(
        self,
        question: ModelQuestion,
        values: Mapping[str, Any],
        refused: Sequence[str],
        refused_answer: str = "",
    ) -> AnnotationDocument:
        return question.judged.document(
            question.step,
            values,
            source="model",
            author=self.model,
            prompt=question.prompt.id,
            asked=True,
            refused=list(refused),
            answer=refused_answer,
        )


def answer_text(chat: Any) -> str:
    """Returns the text of a chat completion in OpenAI's format, or "" if it has no text."""
    try:
        content = chat["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def read_answer(prompt: Prompt, text: str) -> dict[str, Any]:
    """Parses the JSON answer of a model, possibly in a code fence or after `<think>` tags.

    Returns:
        A dictionary from kinds of annotations to values.

    Raises:
        RefusedValueError: the answer is empty, too long, not JSON, or does not match the schema.
    """
    if not text.strip():
        raise RefusedValueError("empty")
    if len(text) > _MOST_ANSWER:
        raise RefusedValueError("too_long")
    if fenced := _FENCED.match(text):
        json_text = fenced[1]
    else:
        json_text = _THOUGHT.sub("", text)
    try:
        value = parse_json(replace_surrogates(json_text), "answer", any_depth=False)
    except JsonFileError:
        raise RefusedValueError("not_json") from None
    try:
        return prompt.values(prompt.answer.model_validate(value))
    except ValidationError:
        raise RefusedValueError("wrong_schema") from None


def rule_provider(undone: Callable[[str], Iterable[int]]) -> Provider:
    """Returns a provider that annotates with two rules and without a model.

    The reasoning sentence of a step becomes the thought of the step. A step that the next step
    undoes is annotated as redundant.

    Args:
        undone: function from the id of a demonstration to the steps that the next step undoes.
    """

    def documents(judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        for step in judged.trajectory.steps:
            if step.action.reasoning:
                thought = {"thought": step.action.reasoning}
                yield judged.document(step.index, thought, source="rule", author="template/1")
        for number in sorted(set(undone(judged.id)) & judged.digests.keys()):
            redundant = {"step_redundant": True}
            yield judged.document(number, redundant, source="rule", author="triage.undone/1")

    return documents


@dataclass
class FileProvider:
    """A `Provider` that imports annotations from a file in JSON Lines format.

    Attributes:
        path: the file.
        member: the JSON member of a line that contains the demonstration id.
        read: function that converts a line to annotation documents.
        lines: maps demonstration ids to line number and content of each line about the
            demonstration.
        problems: the reasons why some lines could not be imported.
    """

    path: Path
    member: str
    read: Callable[[JudgedDemonstration, Mapping[str, Any]], Iterable[AnnotationDocument]]
    lines: dict[str, list[tuple[int, Mapping[str, Any]]]] = field(init=False, default_factory=dict)
    problems: list[Problem] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        with self.path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                try:
                    value = parse_json(text, "line", any_depth=False)
                except JsonFileError:
                    value = None
                if isinstance(value, dict) and isinstance(value.get(self.member), str):
                    self.lines.setdefault(value[self.member], []).append((number, value))
                else:
                    self._refuse(number, "not_json")

    def __call__(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """Yields the annotation documents of the valid lines about a demonstration."""
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
    "wrong_schema": "a member is missing or has the wrong type",
    "wrong_kind": (
        "its kind does not exist for a step, or for the whole if it names no step; variants are "
        f"{', '.join(VARIANTS)}"
    ),
    "wrong_step": "the demonstration has no such step",
    "wrong_task": "the instruction differs from that of the demonstration",
    "wrong_code": "the code of a step differs from that of the demonstration: export it again",
    "too_long": f"a text has more than {MOST_ANNOTATED} characters",
    "empty": "a text is empty",
}


def import_lines(path: Path) -> FileProvider:
    """Returns a provider that imports JSON Lines with one annotation in each line.

    Required members of a line: demonstration, kind, value, source, author. Optional members: step,
    variant, prompt, time, judged. Without `step`, the annotation is about the whole demonstration;
    without `judged`, about the current content.

    Raises:
        OSError: the file cannot be read.
    """
    return FileProvider(path, "demonstration", _own_line)


def _own_line(judged: JudgedDemonstration, line: Mapping[str, Any]) -> Iterator[AnnotationDocument]:
    """Converts a line of a file for `import_lines` to an annotation document."""
    name = line.get("kind")
    if name == AnnotationKind.INSTRUCTION_VARIANT:
        name = line.get("variant")
    if not isinstance(name, str) or "value" not in line or line.get("source") not in SOURCES:
        raise RefusedValueError("wrong_schema")
    given = dict[str, Any]()
    for key in ("source", "author", "prompt", "judged", "time"):
        if line.get(key) is not None:
            given[key] = line[key]
    yield judged.document(line.get("step"), {name: line["value"]}, **given)


# The kind of annotation for each field in the output of OpenCUA's thought generator.
_STEP_FIELDS = {**AGENTNET_STEP_FIELDS, "action": "caption"}
_TASK_FIELDS = {**AGENTNET_TASK_FIELDS, "task_completed": "task_completed"}


def import_opencua(path: Path, model: str, code_of: Callable[[StepFiles], str]) -> FileProvider:
    """Returns a provider that imports the output of OpenCUA's thought generator.

    The input of the generator was an `agentnet` export. A line is refused if the code of a step
    differs from the code that the export would contain now.

    Args:
        path: file in JSON Lines format with one task in each line.
        model: name of the model that the generator used.
        code_of: function that returns the code of a step in the export, or "" if the export leaves
            out the step.

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
        # Each item has the step number (None for the whole demonstration), the fields from the
        # file, and a mapping from field names to kinds of annotations.
        statements: list[tuple[int | None, Mapping[str, Any], Mapping[str, str]]] = []
        for step in steps:
            number = _number(judged.id, step["image"])
            code = step["value"]["code"]
            is_end = number == end_of(judged.trajectory) and code.startswith("computer.terminate")
            if not is_end and codes.get(number) != code:
                raise RefusedValueError("wrong_code")
            statements.append((number, step["value"], _STEP_FIELDS))
        statements.append((None, line, _TASK_FIELDS))
        by = {"source": "model", "author": model, "prompt": "opencua"}
        for place, values, names in statements:
            annotated = dict[str, Any]()
            for theirs, ours in names.items():
                # The generator writes an empty reflection for the last step.
                if values.get(theirs) not in (None, ""):
                    annotated[ours] = values[theirs]
            if annotated:
                yield judged.document(place, annotated, **by)

    return FileProvider(path, "task_id", read)


def _is_opencua_step(step: Any) -> bool:
    if not isinstance(step, dict) or not isinstance(step.get("value"), dict):
        return False
    return isinstance(step.get("image"), str) and isinstance(step["value"].get("code"), str)


def _number(demonstration: str, image: str) -> int:
    """Returns the step number in the name of an exported image, `<demonstration>_<number>.png`.

    Raises:
        RefusedValueError: the name is not the name of an image of this demonstration.
    """
    name, _, rest = image.rpartition("_")
    digits = rest.removesuffix(".png")
    if name != replace_surrogates(demonstration) or not (digits.isascii() and digits.isdigit()):
        raise RefusedValueError("wrong_step")
    return int(digits)
