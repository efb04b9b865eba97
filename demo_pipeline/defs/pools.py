"""The pools that limit how many steps of a kind run at once, on all machines of an instance.

Belongs here: their names, and which stage belongs to which. The limits are the instance's.
"""

from demo_pipeline.observation.observation_stages import SCREENSHOTS_STAGE
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.stage import Stage

UPLOADS_POOL, DECODING_POOL = "uploads", "decoding"
_POOLS = {RAW_RECORDINGS_STAGE.name: UPLOADS_POOL, SCREENSHOTS_STAGE.name: DECODING_POOL}


def pool_of(stage: Stage) -> str | None:
    """`uploads` for the stage that reads an upload, `decoding` for the one that decodes videos."""
    return _POOLS.get(stage.name)
