"""Where annotations come from: a server with a model, files, and rules.

Belongs here: the interface of a provider, and the four. What an answer or a line says is refused
with a reason in one word, or cleaned; it is never quoted in an error.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from demo_pipeline.annotations.annotation_store import (
    AnnotationDocument,
    JudgedDemonstration,
    new_document,
)
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
from demo_pipeline.annotations.model_prompts import Prompt
from demo_pipeline.annotations.questions import ModelQuestion
from demo_pipeline.desktopd.reader import StepFiles
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.shown_text import escape_markers, plain_characters, replace_surrogates
from demo_pipeline.problems import Problem

_ATTEMPTS = 2  # an answer that does not fit is asked for once more
_MOST_ANSWER = 100_000  # characters
_FENCED = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


class Provider(Protocol):
    """Gives annotations of one demonstration after the other."""

    def questions(self, judged: JudgedDemonstration) -> Sequence[ModelQuestion]:
        """What a server would be asked; what was answered before is not among it."""

    def documents(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """Yield new annotations, each as soon as it is there."""


class AsksServer(Protocol):
    """A server of chats in OpenAI's form."""

    def ask(self, body: Any) -> tuple[int, Any, str]:
        """The status, the answer, and why there is none; see `evaluation.requests.Endpoint`."""

    def stop(self) -> None:
        """End what is under way."""


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
    """

    server: AsksServer
    model: str
    prompts: Sequence[Prompt]
    at_once: int = 4
    objectives: Callable[[str], Sequence[str]] = lambda _: ()
    unanswered: Counter[str] = field(default_factory=Counter)

    def questions(self, judged: JudgedDemonstration) -> list[ModelQuestion]:
        """Those without an answer; see `Provider`."""
        steps: list[int | None] = [step.index for step in judged.trajectory.steps]
        subjects: Mapping[str, Sequence[int | None]] = {"step": steps, "whole": [None]}
        asked = [
            (prompt, step)
            for prompt in (self.prompts if steps else ())
            for step in subjects[prompt.of]
            if self._key(judged, prompt, step) not in judged.documents
        ]
        objectives = self.objectives(judged.id) if asked else ()
        return [ModelQuestion(judged, prompt, step, objectives) for prompt, step in asked]

    def _by(self, prompt: Prompt) -> tuple[str, str, str]:
        return "model", self.model, prompt.id

    def _key(self, judged: JudgedDemonstration, prompt: Prompt, step: int | None) -> str:
        return new_document(
            judged, step, {}, self._by(prompt), {"asked": True, "refused": ["-"]}
        ).key

    def documents(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """See `Provider`; raises what the server's `ask` raises."""
        asked = iter(self.questions(judged))
        with ThreadPoolExecutor(self.at_once) as pool:
            pending: set[Future[AnnotationDocument | str]] = set()
            try:
                for question in asked:
                    pending.add(pool.submit(self._answer, question))
                    if len(pending) >= self.at_once:
                        yield from self._collected(pending)
                while pending:
                    yield from self._collected(pending)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.server.stop()  # leaving the pool waits for what is under way
                raise

    def _collected(
        self, pending: set[Future[AnnotationDocument | str]]
    ) -> Iterator[AnnotationDocument]:
        """Yield what has been answered, and take it out of `pending`."""
        finished, _ = wait(pending, return_when=FIRST_COMPLETED)
        pending -= finished
        for future in sorted(finished, key=lambda one: one.exception() is not None):
            answer = future.result()
            if isinstance(answer, str):
                self.unanswered[answer] += 1
            else:
                yield answer

    def _answer(self, question: ModelQuestion) -> AnnotationDocument | str:
        """The annotation, or why there is none."""
        refused: list[str] = []
        told = ""
        while len(refused) < _ATTEMPTS:
            try:
                body = question.body(self.model, refused[-1] if refused else "")
            except RefusedValueError as error:
                return error.reason
            _, chat, fault = self.server.ask(body)
            if fault:
                return fault
            told = answer_text(chat)
            try:
                values = read_answer(question.prompt, told)
                return self._document(question, values, refused, "")
            except RefusedValueError as error:
                refused.append(error.reason)
        return self._document(question, {}, refused, told)

    def _document(
        self, question: ModelQuestion, values: Mapping[str, Any], refused: Sequence[str], told: str
    ) -> AnnotationDocument:
        by = self._by(question.prompt)
        staged = plain_characters(replace_surrogates(told[: MOST_ANNOTATED // 6]))
        more = {"asked": True, "refused": list(refused), "answer": staged}
        return new_document(question.judged, question.step, values, by, more)


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


@dataclass
class RuleProvider:
    """Says what rules know: the sentence of a step as its thought, and what triage is sure of.

    Attributes:
        undone: demonstration → steps that the next step takes back.
    """

    undone: Callable[[str], Iterable[int]]

    def questions(self, _judged: JudgedDemonstration) -> Sequence[ModelQuestion]:
        """None."""
        return ()

    def documents(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """See `Provider`."""
        for step in judged.trajectory.steps:
            thought = {"thought": step.action.reasoning}
            yield new_document(judged, step.index, thought, ("rule", "template/1", ""))
        for number in sorted(set(self.undone(judged.id)) & judged.digests.keys()):
            said = {"step_redundant": True}
            yield new_document(judged, number, said, ("rule", "triage.undone/1", ""))


@dataclass
class FileProvider:
    """Imports annotations.

    Attributes:
        lines: demonstration → number and value of each line about it.
        read: the documents of a line.
        problems: of lines that hold none.
    """

    lines: Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]
    read: Callable[[JudgedDemonstration, Mapping[str, Any]], Iterable[AnnotationDocument]]
    file: str
    problems: list[Problem] = field(default_factory=list)

    def questions(self, _judged: JudgedDemonstration) -> Sequence[ModelQuestion]:
        """None."""
        return ()

    def documents(self, judged: JudgedDemonstration) -> Iterator[AnnotationDocument]:
        """See `Provider`; a line is imported as a whole or not at all."""
        for number, line in self.lines.get(judged.id, ()):
            try:
                found = list(self.read(judged, line))
            except RefusedValueError as error:
                self.problems.append(_problem(self.file, number, error.reason, judged.id))
            except ValidationError:
                self.problems.append(_problem(self.file, number, "wrong_schema", judged.id))
            else:
                yield from found


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


def _problem(file: str, line: int, reason: str, demonstration: str = "") -> Problem:
    remedy = "correct the line, or leave it out"
    message = _REASONS.get(reason, reason)
    return Problem(reason, file, message, line, demonstration=demonstration, remedy=remedy)


def _read_lines(path: Path, name: str) -> tuple[dict[str, list[tuple[int, Any]]], list[Problem]]:
    """Demonstration → the lines about it, by the member `name`; and the lines that are none.

    Raises:
        OSError: the file cannot be read.
    """
    lines: dict[str, list[tuple[int, Any]]] = {}
    problems = []
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                value = parse_json(text, path.name, any_depth=False)
            except JsonFileError:
                value = None
            if isinstance(value, dict) and isinstance(value.get(name), str):
                lines.setdefault(value[name], []).append((number, value))
            else:
                problems.append(_problem(path.name, number, "not_json"))
    return lines, problems


def import_lines(path: Path) -> FileProvider:
    """The import of JSON Lines, an annotation a line.

    Members: demonstration, kind, value, source, author; also step (none: the whole), variant,
    prompt, time, and judged (none: what is there now).

    Raises:
        OSError: the file cannot be read.
    """
    lines, problems = _read_lines(path, "demonstration")
    return FileProvider(lines, _own_line, path.name, problems)


def _own_line(judged: JudgedDemonstration, line: Mapping[str, Any]) -> Iterator[AnnotationDocument]:
    kind = line.get("kind")
    name = line.get("variant") if kind == AnnotationKind.INSTRUCTION_VARIANT else kind
    if not isinstance(name, str) or "value" not in line or line.get("source") not in SOURCES:
        raise RefusedValueError("wrong_schema")
    by: Any = (line["source"], line.get("author"), line.get("prompt") or "")
    more = {key: line[key] for key in ("judged", "time") if line.get(key) is not None}
    yield new_document(judged, line.get("step"), {name: line["value"]}, by, more)


_OPENCUA = "opencua"
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
    lines, problems = _read_lines(path, "task_id")

    def read(judged: JudgedDemonstration, line: Mapping[str, Any]) -> Iterator[AnnotationDocument]:
        by = ("model", model, _OPENCUA)
        return _opencua_line(judged, line, by, code_of)

    return FileProvider(lines, read, path.name, problems)


def _opencua_line(
    judged: JudgedDemonstration,
    line: Mapping[str, Any],
    by: tuple[str, str, str],
    code_of: Callable[[StepFiles], str],
) -> Iterator[AnnotationDocument]:
    steps = line.get("traj")
    if not isinstance(steps, list) or not all(map(_is_opencua_step, steps)):
        raise RefusedValueError("wrong_schema")
    if line.get("instruction") != _shown(judged.trajectory.task.instruction):
        raise RefusedValueError("wrong_task")
    codes = {step.index: code_of(step) for step in judged.trajectory.steps}
    for step in steps:
        number, code = _number(judged.id, step["image"]), step["value"]["code"]
        is_end = number == end_of(judged.trajectory) and code.startswith("computer.terminate")
        if not is_end and codes.get(number) != code:
            raise RefusedValueError("wrong_code")
        yield from _opencua_document(judged, number, step["value"], _STEP_FIELDS, by)
    yield from _opencua_document(judged, None, line, _TASK_FIELDS, by)


def _shown(text: str) -> str:
    """As the export writes a text."""
    return escape_markers(replace_surrogates(text))[0]


def _is_opencua_step(step: Any) -> bool:
    known = isinstance(step, dict) and isinstance(step.get("value"), dict)
    return (
        known and isinstance(step.get("image"), str) and isinstance(step["value"].get("code"), str)
    )


def _number(demonstration: str, image: str) -> int:
    """The step of a picture of the export, whose name ends in it."""
    name, _, rest = image.rpartition("_")
    digits = rest.removesuffix(".png")
    if name != replace_surrogates(demonstration) or not (digits.isascii() and digits.isdigit()):
        raise RefusedValueError("wrong_step")
    return int(digits)


def _opencua_document(
    judged: JudgedDemonstration,
    step: int | None,
    values: Mapping[str, Any],
    names: Mapping[str, str],
    by: tuple[str, str, str],
) -> Iterator[AnnotationDocument]:
    """Yield the document, if anything is said: the last step's reflection is empty."""
    said = {
        ours: values[name] for name, ours in names.items() if values.get(name) not in (None, "")
    }
    if said:
        yield new_document(judged, step, said, by)
