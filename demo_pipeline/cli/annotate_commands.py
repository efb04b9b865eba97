"""The command `demo-pipeline annotate`: thoughts, verdicts and grades from a model, rules or files.

Belongs here: its arguments, output and exit codes. The key of a server is read from the environment
alone; what was asked and answered is in no line.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import INVALID, open_workspace
from demo_pipeline.cli.eval_commands import explained

if TYPE_CHECKING:
    from demo_pipeline.annotations.annotate import AnnotateCounts
    from demo_pipeline.annotations.annotation_sources import FileProvider, ModelProvider
    from demo_pipeline.settings import PrivacySettings
    from demo_pipeline.store.store import Store

_MANY = 20  # requests: more are sent after a question
_PROVIDERS = ("openai", "rule", "import", "opencua")


def annotate_demonstrations(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of demonstrations; none: all.")
    ] = None,
    *,
    provider: Annotated[str, typer.Option(help=f"{', '.join(_PROVIDERS)}.")],
    kind: Annotated[
        list[str] | None, typer.Option(help="Asked of a server, more than once for several: all.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="openai: base URL that ends in /v1.")] = "",
    model: Annotated[str, typer.Option(help="openai, opencua: the model's name.")] = "",
    file: Annotated[Path | None, typer.Option(help="import, opencua: JSON Lines.")] = None,
    at_once: Annotated[int, typer.Option(min=1, max=256, help="Requests under way.")] = 4,
    limit: Annotated[int | None, typer.Option(min=1, help="Requests, at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; also to another host.")] = False,
) -> None:
    """Annotate steps and demonstrations, and keep it in the store; the next `run` uses it.

    `openai` asks an OpenAI-compatible server, what was answered before never again. The key is read
    from `OPENAI_API_KEY` alone. Hosts other than this machine need `--yes`: the requests hold
    screens and typed text. At a terminal, more than 20 requests are sent after a question.
    """
    from demo_pipeline.annotations.annotate import annotate_all, undone_steps
    from demo_pipeline.annotations.annotation_sources import rule_provider

    with explained():
        store = open_workspace().store
        names = ids or [name.partition("/")[2] for name in store.outputs("trajectories")]
        if provider not in _PROVIDERS:
            raise ValueError(f"--provider is one of {', '.join(_PROVIDERS)}")
        if provider == "openai":
            models = _models(store, endpoint, model, kind or (), at_once, limit=limit)
            well = _ask(store, names, models, dry_run=dry_run, yes=yes)
        elif provider == "rule":
            rules = rule_provider(lambda one: undone_steps(store, one))
            well = _reported(annotate_all(store, names, [rules], privacy=_privacy()), [])
        else:
            lines = _file_provider(provider, file, model)
            counts = annotate_all(store, names, [lines], privacy=_privacy())
            told = list(map(str, lines.problems))
            if unknown := lines.lines.keys() - set(names):
                told.append(f"{len(unknown)} demonstrations of the file are not there")
            well = _reported(counts, told)
    if not well:
        raise typer.Exit(INVALID)


def _privacy() -> "PrivacySettings":
    return open_workspace().settings.privacy


def _ask(
    store: "Store",
    names: Sequence[str],
    models: "Sequence[ModelProvider]",
    *,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Ask a server, or say what it would be asked; whether everything went well."""
    from demo_pipeline.annotations.annotate import annotate_all

    if dry_run:
        _estimated(store, names, models)
        return True
    with _asking(store, names, models, yes=yes) as answered:
        counts = annotate_all(store, names, models, answered, _privacy())
    return _reported(counts, [], sum((one.unanswered for one in models), Counter[str]()))


def _reported(
    counts: "AnnotateCounts", told: Sequence[str], unanswered: Counter[str] | None = None
) -> bool:
    """Say what happened; whether everything went well."""
    problems = [*map(str, counts.problems), *told]
    for problem in problems:
        print_error(problem)
    refused = f"{counts.gave_up} refused, " if counts.gave_up else ""
    print_line(
        f"{counts.written} written, {refused}{counts.known} known before, {counts.escaped} tags or "
        "characters escaped"
    )
    for reason, number in [*counts.refused.items(), *sorted((unanswered or {}).items())]:
        print_line(f"  {number} answers: {reason}")
    if unanswered:
        print_line("look whether the server answers at --endpoint; then the same command goes on")
    if counts.gave_up:
        print_line(f"{counts.gave_up} questions refused twice; another model or prompt asks anew")
    return not problems and not unanswered


def _models(
    store: "Store", url: str, model: str, kinds: Sequence[str], at_once: int, *, limit: int | None
) -> "list[ModelProvider]":
    """What asks about steps, then what asks about the whole with the captions of the steps."""
    from demo_pipeline.annotations.annotate import quest_objectives
    from demo_pipeline.annotations.annotation_sources import Budget, ModelProvider
    from demo_pipeline.annotations.chat_server import KEY_VARIABLE, Endpoint
    from demo_pipeline.annotations.model_prompts import wanted_prompts

    if not url or not model:
        raise ValueError("openai needs --endpoint and --model")
    server, prompts = Endpoint(url, os.environ.get(KEY_VARIABLE, "")), wanted_prompts(kinds)
    budget, objectives = Budget(limit), partial(quest_objectives, store)
    return [
        ModelProvider(server, model, some, at_once, objectives, budget=budget)
        for some in ([one for one in prompts if one.of == of] for of in ("step", "whole"))
        if some
    ]


@contextmanager
def _asking(
    store: "Store", names: Sequence[str], models: "Sequence[ModelProvider]", *, yes: bool
) -> Iterator[Callable[[], object]]:
    """Say what will be asked, refuse to send it to a host without consent, and show progress."""
    from demo_pipeline.cli.tables import progress_bar

    requests = _estimated(store, names, models)
    models[0].server.require_consent(yes=yes)
    if requests > _MANY and not yes and sys.stdin.isatty():
        typer.confirm(f"Send {requests} requests?", abort=True)
    with progress_bar() as bar:
        task = bar.add_task("annotations", total=requests)
        yield lambda: bar.advance(task)


def _estimated(store: "Store", names: Sequence[str], models: "Sequence[ModelProvider]") -> int:
    """Say what would be asked; returns how many requests."""
    from demo_pipeline.annotations.annotate import estimate

    asked = estimate(store, names, models, _privacy())
    print_line(
        f"{models[0].server.url}: {asked.requests} requests about {asked.demonstrations} "
        f"demonstrations, about {asked.tokens} tokens without answers, {asked.pictures} pictures"
    )
    return asked.requests


def _file_provider(name: str, file: Path | None, model: str) -> "FileProvider":
    from demo_pipeline.annotations.annotation_sources import import_lines, import_opencua
    from demo_pipeline.exports.agentnet_code import step_code

    if file is None:
        raise ValueError(f"{name} needs --file")
    if name == "import":
        return import_lines(file)
    if not model:
        raise ValueError("opencua needs --model, the one that the generator was run with")
    return import_opencua(file, model, step_code)
