"""Golden outputs: what the pipeline makes of the two real recordings, and which code makes it."""
