"""The command `demo-pipeline annotate`: thoughts, verdicts and grades from a model, rules or files.

Belongs here: its arguments, output and exit codes. The key of a server is read from the environment
alone; what was asked and answered is in no line.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line, progress_bar
from demo_pipeline.cli.environment import INVALID, USAGE, usable_settings

if TYPE_CHECKING:
    from demo_pipeline.annotations.annotate import AnnotateCounts, Estimate
    from demo_pipeline.annotations.providers import FileProvider, Provider
    from demo_pipeline.desktopd.reader import StepFiles
    from demo_pipeline.evaluation.requests import Endpoint
    from demo_pipeline.store.store import Store

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
    yes: Annotated[bool, typer.Option("--yes", help="Send them to another host.")] = False,
) -> None:
    """Annotate steps and demonstrations, and keep it in the store; the next `run` uses it.

    `openai` asks an OpenAI-compatible server, what was answered before never again. The key is read
    from `OPENAI_API_KEY` alone. Hosts other than this machine need `--yes`: the requests hold
    screens and typed text.
    """
    from demo_pipeline.annotations.annotate import annotate_all, estimate
    from demo_pipeline.evaluation.requests import EndpointError
    from demo_pipeline.runs.workspace import Workspace

    store = Workspace.open(usable_settings()).store
    names = list(ids or _all_ids(store))
    try:
        server = _endpoint(endpoint, model) if provider == "openai" else None
        providers = _providers(store, provider, server, (kind or (), model, file, at_once))
        total = _announced(server, estimate(store, names, providers), yes) if server else None
        with progress_bar() as bar:
            task = bar.add_task("annotations", total=total, visible=total is not None)
            counts = annotate_all(store, names, providers, lambda: bar.advance(task))
    except (ValueError, EndpointError) as error:
        raise _usage(str(error)) from None
    except OSError as error:
        raise _usage(f"{error.filename or 'a file'}: {error.strerror}") from None
    if not _reported(counts, providers, names):
        raise typer.Exit(INVALID)


def _reported(
    counts: "AnnotateCounts", providers: "Sequence[Provider]", names: Sequence[str]
) -> bool:
    """Say what happened; whether everything went well."""
    problems = [*counts.problems, *_line_problems(providers, names)]
    for problem in problems:
        print_error(str(problem))
    print_line(
        f"{counts.written} written, {counts.known} known before, {counts.escaped} tags or "
        "characters escaped"
    )
    unanswered = _unanswered(providers)
    for reason, number in [*counts.refused.items(), *unanswered]:
        print_line(f"  {number} answers: {reason}")
    if unanswered:
        print_line("look whether the server answers at --endpoint; then the same command goes on")
    if counts.gave_up:
        print_line(f"{counts.gave_up} questions refused twice; another model or prompt asks anew")
    return not problems and not unanswered


def _usage(message: str) -> typer.Exit:
    print_error(f"demo-pipeline: {message}")
    return typer.Exit(USAGE)


def _announced(server: "Endpoint", asked: "Estimate", yes: bool) -> int:
    """Say what will be asked; raises `ValueError` when it may not be sent."""
    print_line(
        f"{server.url}: {asked.requests} requests about {asked.demonstrations} demonstrations, "
        f"about {asked.tokens} tokens without answers, {asked.pictures} pictures"
    )
    if not server.is_loopback and not yes:
        raise ValueError(
            f"{server.host} is another host, and requests hold screens and typed text; give --yes "
            "to send them there"
        )
    return asked.requests


def _all_ids(store: "Store") -> Sequence[str]:
    return [name.partition("/")[2] for name in store.outputs("trajectories")]


def _endpoint(url: str, model: str) -> "Endpoint":
    from demo_pipeline.evaluation.requests import KEY_VARIABLE, Endpoint

    if not url or not model:
        raise ValueError("openai needs --endpoint and --model")
    return Endpoint(url, os.environ.get(KEY_VARIABLE, ""))


def _providers(
    store: "Store",
    name: str,
    server: "Endpoint | None",
    given: tuple[Sequence[str], str, Path | None, int],
) -> "list[Provider]":
    """The providers, in the order in which they run; raises `ValueError` with what is missing."""
    from demo_pipeline.annotations.annotate import quest_objectives, undone_steps
    from demo_pipeline.annotations.model_prompts import wanted_prompts
    from demo_pipeline.annotations.providers import (
        ModelProvider,
        RuleProvider,
        import_lines,
        import_opencua,
    )

    kinds, model, file, at_once = given
    if server:
        prompts = wanted_prompts(kinds)
        return [  # about the whole with the captions of the steps
            ModelProvider(server, model, some, at_once, lambda one: quest_objectives(store, one))
            for some in ([one for one in prompts if one.of == of] for of in ("step", "whole"))
            if some
        ]
    if name == "rule":
        return [RuleProvider(lambda one: undone_steps(store, one))]
    if name not in _PROVIDERS:
        raise ValueError(f"--provider is one of {', '.join(_PROVIDERS)}")
    if file is None:
        raise ValueError(f"{name} needs --file")
    if name == "import":
        return [import_lines(file)]
    if not model:
        raise ValueError("opencua needs --model, the one that the generator was run with")
    return [import_opencua(file, model, agentnet_step_code)]


def agentnet_step_code(step: "StepFiles") -> str:
    """The code of a step in the `agentnet` export; empty: it has none."""
    from demo_pipeline.exports.agentnet_code import agentnet_code
    from demo_pipeline.exports.answers import AnsweredAction, InexpressibleError
    from demo_pipeline.exports.step_facts import readable_size
    from demo_pipeline.files.shown_text import replace_surrogates

    size = readable_size(step.screenshot)
    try:
        action = AnsweredAction(step.action.action_type, step.action.parameters)
        return replace_surrogates(agentnet_code(action, size)) if size else ""
    except InexpressibleError:
        return ""


def _files(providers: "Sequence[Provider]") -> "list[FileProvider]":
    from demo_pipeline.annotations.providers import FileProvider

    return [one for one in providers if isinstance(one, FileProvider)]


def _line_problems(providers: "Sequence[Provider]", names: Sequence[str]) -> list[str]:
    """What is wrong with the lines of an import."""
    told = [str(problem) for one in _files(providers) for problem in one.problems]
    unknown = sorted({name for one in _files(providers) for name in one.lines} - set(names))
    return told + [f"{len(unknown)} demonstrations of the file are not there"] * bool(unknown)


def _unanswered(providers: "Sequence[Provider]") -> list[tuple[str, int]]:
    from demo_pipeline.annotations.providers import ModelProvider

    models = [one.unanswered for one in providers if isinstance(one, ModelProvider)]
    return sorted(sum(models, Counter[str]()).items())
