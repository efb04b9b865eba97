"""The names and the size limits of the files that make up a recording."""

from collections.abc import Mapping

from demo_pipeline.problems import Problem

LOG_FILE = "input_log.jsonl"
META_FILE = "meta.json"
VIDEO_FILE = "recording.mp4"
RECORDING_FILES = (LOG_FILE, META_FILE, VIDEO_FILE)
SOURCE_FILE = "source.json"  # names the origin of an imported recording
# Other files that newer recorders and upload services write. No stage reads these files.
OTHER_FILES = ("checksums.json", "input_log_meta.json", "manifest.json", "sft.json", SOURCE_FILE)
MAX_BYTES = {
    LOG_FILE: 4 * 2**30,  # recorders write 10 MB a minute
    META_FILE: 4 * 2**20,  # recorders write a few kB
    VIDEO_FILE: 32 * 2**30,  # 6 hours at 12 Mbit/s
}


def oversized_files(sizes: Mapping[str, int]) -> list[Problem]:
    """Returns a problem for each file that is larger than its limit in `MAX_BYTES`.

    Args:
        sizes: maps file names to sizes in bytes.
    """
    return [
        Problem(
            "file_too_large",
            name,
            f"has {sizes[name]} bytes, and more than {limit} are not accepted",
            remedy="upload the file that the recorder wrote",
        )
        for name, limit in MAX_BYTES.items()
        if sizes.get(name, 0) > limit
    ]
