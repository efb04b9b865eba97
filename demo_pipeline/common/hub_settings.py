"""The settings of the layout for the Hugging Face Hub.

Belongs here: one section of demo_pipeline/settings.py. They change no output of the store.
"""

from pydantic import Field

from demo_pipeline.common.settings_section import Section


class HubSettings(Section):
    """What `demo-pipeline export --hub-layout` writes, besides `datasets.license`."""

    language: tuple[str, ...] = Field(
        (), description='ISO 639-1 codes of the tasks\' languages, e.g. ["en"]; needed'
    )
    max_shard_bytes: int = Field(500_000_000, ge=1_000_000, description="bytes of a Parquet file")
