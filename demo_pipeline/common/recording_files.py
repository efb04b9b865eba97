"""The names of the three files that make up a recording."""

LOG_FILE = "input_log.jsonl"
META_FILE = "meta.json"
VIDEO_FILE = "recording.mp4"
RECORDING_FILES = (LOG_FILE, META_FILE, VIDEO_FILE)
