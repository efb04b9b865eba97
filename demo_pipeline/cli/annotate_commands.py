"""The command `demo-pipeline annotate`: annotates steps with a model, with rules or from a file.

The API key for the model's server is read from the environment only. Requests and answers are never
printed.
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
    from demo_pipeline.annotations.annotation_sources import FileProvider, ModelProvider, Provider
    from demo_pipeline.runs.workspace import Workspace

# Number of requests above which the command asks for confirmation at a terminal.
_CONFIRMED_REQUESTS = 20
_PROVIDERS = ("openai", "rule", "import", "opencua")
_DRY_RUN = "Send and write nothing; show the number of annotations."


def annotate_demonstrations(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of demonstrations. [default: all]")
    ] = None,
    *,
    provider: Annotated[str, typer.Option(help=f"Source: {', '.join(_PROVIDERS)}.")],
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="openai: a kind of annotation to ask for; may be repeated. [default: all]"
        ),
    ] = None,
    endpoint: Annotated[str, typer.Option(help="openai: the server's URL, up to /v1.")] = "",
    model: Annotated[str, typer.Option(help="openai, opencua: the model's name.")] = "",
    file: Annotated[Path | None, typer.Option(help="import, opencua: JSON Lines to read.")] = None,
    at_once: Annotated[int, typer.Option(min=1, max=256, help="openai: requests at a time.")] = 4,
    limit: Annotated[
        int | None, typer.Option(min=1, help="openai: ask at most this many questions.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation; allow other hosts.")
    ] = False,
) -> None:
    """Annotate steps and demonstrations; the next `run` writes the annotations into the datasets.

    The provider `openai` asks a model on an OpenAI-compatible server. `rule` derives annotations
    from the steps, without a model. `import` and `opencua` read annotations from `--file`.

    `openai` does not repeat questions that were answered before. It reads the key of the server
    from the variable `OPENAI_API_KEY` only. A server on another machine needs `--yes`, because the
    requests contain screens and typed text. At a terminal, the command asks for confirmation before
    it sends more than 20 requests.
    """
    from demo_pipeline.annotations.annotate import undone_steps
    from demo_pipeline.annotations.annotation_sources import rule_provider

    with explained():
        workspace = open_workspace()
        store = workspace.store
        names = ids or [name.partition("/")[2] for name in store.outputs("trajectories")]
        if provider not in _PROVIDERS:
            raise ValueError(f"--provider is one of {', '.join(_PROVIDERS)}")
        if provider == "openai":
            models = _models(workspace, endpoint, model, kind or (), at_once, limit=limit)
            succeeded = _ask_server(workspace, names, models, dry_run=dry_run, yes=yes)
        elif provider == "rule":
            rules = rule_provider(partial(undone_steps, store))
            succeeded = _annotate(workspace, names, rules, dry_run=dry_run)
        else:
            lines = _file_provider(provider, file, model)
            succeeded = _annotate(workspace, names, lines, dry_run=dry_run)
            for problem in lines.problems:
                print_error(str(problem))
            unknown = len(lines.lines.keys() - set(names))
            if unknown:
                print_error(f"{unknown} demonstrations of the file are not in the store")
            succeeded = succeeded and not (lines.problems or unknown)
    if not succeeded:
        raise typer.Exit(INVALID)


def _annotate(
    workspace: "Workspace", names: Sequence[str], provider: "Provider", *, dry_run: bool
) -> bool:
    """Stores the annotations from rules or from a file. Returns whether there were no problems."""
    from demo_pipeline.annotations.annotate import annotate_all

    privacy = workspace.settings.privacy
    counts = annotate_all(workspace.store, names, [provider], privacy=privacy, dry_run=dry_run)
    return _report(counts, dry_run=dry_run)


def _ask_server(
    workspace: "Workspace",
    names: Sequence[str],
    models: "Sequence[ModelProvider]",
    *,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Asks a server and stores its answers.

    Returns whether there were no problems and the server answered all questions. If `dry_run` is
    set, the function only prints the estimate and returns True.
    """
    from demo_pipeline.annotations.annotate import annotate_all

    if dry_run:
        _print_estimate(workspace, names, models)
        return True
    privacy = workspace.settings.privacy
    with _asking(workspace, names, models, yes=yes) as on_answer:
        counts = annotate_all(workspace.store, names, models, on_answer, privacy)
    unanswered = Counter[str]()
    for model in models:
        unanswered += model.unanswered
    succeeded = _report(counts)
    for reason, number in sorted(unanswered.items()):
        print_line(f"  {number} answers: {reason}")
    if unanswered:
        print_line(
            "check that the server answers at --endpoint, then run the same command again: it "
            "asks only the unanswered questions"
        )
    return succeeded and not unanswered


def _report(counts: "AnnotateCounts", *, dry_run: bool = False) -> bool:
    """Prints the counts and problems of a run. Returns whether there were no problems."""
    for problem in counts.problems:
        print_error(str(problem))
    refused = f"{counts.gave_up} refused, " if counts.gave_up else ""
    written = "would be written" if dry_run else "written"
    print_line(
        f"{counts.written} {written}, {refused}{counts.existing} known before, "
        f"{counts.escaped} tags or characters escaped"
    )
    for reason, number in counts.refused.items():
        print_line(f"  {number} answers: {reason}")
    if counts.gave_up:
        print_line(
            f"{counts.gave_up} questions refused twice: they are asked again only with another "
            "model or prompt"
        )
    return not counts.problems


def _models(
    workspace: "Workspace",
    url: str,
    model: str,
    kinds: Sequence[str],
    at_once: int,
    *,
    limit: int | None,
) -> "list[ModelProvider]":
    """Returns a provider that asks about steps, and one that asks about whole demonstrations.

    Steps come first, because questions about demonstrations quote the answers about steps.
    """
    from demo_pipeline.annotations.annotate import quest_objectives
    from demo_pipeline.annotations.annotation_sources import Budget, ModelProvider
    from demo_pipeline.annotations.chat_server import KEY_VARIABLE, Endpoint
    from demo_pipeline.annotations.model_prompts import wanted_prompts

    if not url or not model:
        raise ValueError("openai needs --endpoint and --model")
    server = Endpoint(url, os.environ.get(KEY_VARIABLE, ""))
    budget = Budget(limit)
    objectives = partial(quest_objectives, workspace.store)
    providers = []
    for subject in ("step", "whole"):
        prompts = [prompt for prompt in wanted_prompts(kinds) if prompt.subject == subject]
        if prompts:
            providers.append(
                ModelProvider(server, model, prompts, at_once, objectives, budget=budget)
            )
    return providers


@contextmanager
def _asking(
    workspace: "Workspace", names: Sequence[str], models: "Sequence[ModelProvider]", *, yes: bool
) -> Iterator[Callable[[], object]]:
    """Prints the estimate, asks for consent, and shows a progress bar while the context is open.

    Yields the function to call after each answer.
    """
    from demo_pipeline.cli.tables import progress_bar

    requests = _print_estimate(workspace, names, models)
    models[0].server.require_consent(yes=yes)
    if requests > _CONFIRMED_REQUESTS and not yes and sys.stdin.isatty():
        typer.confirm(f"Send {requests} requests?", abort=True)
    with progress_bar() as bar:
        task = bar.add_task("annotations", total=requests)
        yield lambda: bar.advance(task)


def _print_estimate(
    workspace: "Workspace", names: Sequence[str], models: "Sequence[ModelProvider]"
) -> int:
    """Prints the number and the size of the requests to send. Returns the number."""
    from demo_pipeline.annotations.annotate import estimate

    asked = estimate(workspace.store, names, models, workspace.settings.privacy)
    print_line(
        f"{models[0].server.url}: {asked.requests} requests about {asked.demonstrations} "
        f"demonstrations, about {asked.tokens} tokens without answers, "
        f"{asked.pictures} screenshots"
    )
    return asked.requests


def _file_provider(name: str, file: Path | None, model: str) -> "FileProvider":
    """Returns the provider `import` or `opencua`, which reads annotations from a file."""
    from demo_pipeline.annotations.annotation_sources import import_lines, import_opencua
    from demo_pipeline.exports.agentnet_code import step_code

    if file is None:
        raise ValueError(f"{name} needs --file")
    if name == "import":
        return import_lines(file)
    if not model:
        raise ValueError("opencua needs --model, the model that wrote the file's thoughts")
    return import_opencua(file, model, step_code)
