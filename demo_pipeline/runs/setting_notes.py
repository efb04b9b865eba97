"""The values of settings by their fingerprints, so that two versions can be told apart by name.

Belongs here: the documents `settings/<fingerprint>.json`, which a build writes once. A manifest
holds fingerprints only.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Section, Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.store import Store

_LOG = logging.getLogger(__package__)
_FOLDER = "settings"
_noted: set[tuple[str, str]] = set()  # (store, fingerprint) that this process has written
Values = Mapping[str, Any]
"""`section.name` → value."""


def note_settings(workspace: Workspace, stage: Stage[Any]) -> None:
    """Keep the values that an output depends on which is about to be built."""
    for chosen in filter(None, (stage.section, *stage.limits.values())):
        section = chosen(workspace.settings)
        known = (workspace.store.url, section.fingerprint())
        if known not in _noted:
            data = json_bytes(dict(section_values(workspace.settings, section)))
            with best_effort(_LOG, "noting settings"):  # a bucket may allow older names only
                workspace.store.add_document(f"{_FOLDER}/{known[1]}.json", data)
            _noted.add(known)


def section_values(settings: Settings, section: Section) -> Values:
    """The values that a section's fingerprint is of."""
    name = next((name for name, value in settings if value is section), "")
    values = section.model_dump(mode="json", exclude=set(section.UNHASHED))
    return {f"{name}.{key}": value for key, value in values.items()}


def noted_settings(store: Store, fingerprint: str) -> Values | None:
    """The values with this fingerprint; None when no build has noted them."""
    data = store.get_document(f"{_FOLDER}/{fingerprint}.json")
    return json.loads(data) if data else None


def setting_changes(before: Values, after: Values) -> Iterator[str]:
    """A sentence for each setting that differs."""
    for name in sorted({*before, *after}):
        old, new = (json.dumps(side.get(name), ensure_ascii=False) for side in (before, after))
        if old != new:
            yield f"setting {name}: {old} → {new}"
