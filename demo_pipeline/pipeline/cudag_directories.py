"""Which CUDAG directories of a store are current: one per prefix and user.

Belongs here: which directories a new one replaces, and refusing to replace one that was built with
other settings. How a directory is built is in datasets/.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from demo_pipeline.exports.cudag.build import SETTINGS_DETAIL, decisive_settings
from demo_pipeline.pipeline.context import DatasetContext
from demo_pipeline.problems import Problem
from demo_pipeline.storage.store.version_manifest import Version


def replaced_directories(
    context: DatasetContext, directory: str, published: Collection[str]
) -> list[str]:
    """The published directories that a new one replaces: of its prefix and user, at another time.

    Args:
        context: for the setting `keep_previous`, with which there are none.
        directory: name of the new output.
        published: names of the stage's published outputs.
    """
    if context.settings.datasets.keep_previous:
        return []
    return [name for name in published if name != directory and _family(name) == _family(directory)]


def verify_one_configuration(context: DatasetContext, _out: Path) -> list[Problem]:
    """A problem for each directory of the same prefix and user that other settings have made.

    Directories of another code version are not compared: an update may change a default.
    """
    settings = context.settings.datasets
    family = f"{settings.name_prefix}--{settings.user}"
    problems = []
    for name, version in context.published.items():
        is_comparable = version.manifest.recipe.code_version == context.code_version
        if _family(name.rpartition("/")[2]) != family or not is_comparable:
            continue
        if names := ", ".join(_differing(version, decisive_settings(settings))):
            problems.append(_other_settings(name, names))
    return problems


def _other_settings(directory: str, names: str) -> Problem:
    return Problem(
        "other_settings",
        "config.json",
        f"{directory} has the same prefix and user, but was built with other values of {names}; "
        "it stays published",
        remedy="give these settings another datasets.name_prefix, so that both can be told apart",
    )


def _differing(version: Version, wanted: Mapping[str, object]) -> Iterator[str]:
    built = version.manifest.summary.get(SETTINGS_DETAIL)
    if isinstance(built, Mapping):
        for name, value in wanted.items():
            if name in built and built[name] != value:
                yield f"datasets.{name}"


def _family(directory: str) -> str:
    """Prefix and user of `<prefix>--<user>--<timestamp>`."""
    return directory.rpartition("--")[0]
