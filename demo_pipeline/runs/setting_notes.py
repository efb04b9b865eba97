"""Stores the values of settings, so that `run --dry-run` can name the settings that changed.

A manifest has only a fingerprint of the settings. `settings/<fingerprint>.json` has their values.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from demo_pipeline.runs.failures import best_effort
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Section, Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.store import Store

_FOLDER = "settings"
_LOG = logging.getLogger(__package__)
# Pairs (URL of a store, fingerprint of settings) that `note_settings` has already handled.
_noted: set[tuple[str, str]] = set()
Values = Mapping[str, Any]
"""A dictionary from the names of settings, `<section>.<name>`, to their values."""


def note_settings(workspace: Workspace, stage: Stage[Any]) -> None:
    """Stores the values of the settings of a stage."""
    if stage.section is None:
        return
    section = stage.section(workspace.settings)
    noted = (workspace.store.url, section.fingerprint())
    if noted in _noted:
        return
    data = sealed(section_values(workspace.settings, section))
    with best_effort(_LOG, "noting settings"):  # an old bucket policy may forbid this folder
        workspace.store.add_document(f"{_FOLDER}/{section.fingerprint()}.json", data)
    _noted.add(noted)


def section_values(settings: Settings, section: Section) -> Values:
    """Returns the settings of a section that are part of its fingerprint, with their values."""
    name = next((name for name, value in settings if value is section), "")
    values = section.model_dump(mode="json", exclude=set(section.UNHASHED))
    values |= section.REMOVED
    return {f"{name}.{key}": value for key, value in values.items()}


def noted_settings(store: Store, fingerprint: str) -> Values | None:
    """Returns the stored values of the settings with this fingerprint.

    Returns None if no values are stored, or if the stored document is damaged.
    """
    name = f"{_FOLDER}/{fingerprint}.json"
    data = store.get_document(name)
    if not data:
        return None
    try:
        return unsealed(data, name)
    except DamagedDocument:  # `revalidate` reports it
        return None


def setting_changes(before: Values, after: Values) -> Iterator[str]:
    """Yields a phrase with the old and new value for each setting that differs."""
    for name in sorted({*before, *after}):
        old = json.dumps(before.get(name), ensure_ascii=False)
        new = json.dumps(after.get(name), ensure_ascii=False)
        if old != new:
            yield f"setting {name}: {old} → {new}"
