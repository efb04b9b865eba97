"""A recording as its recorder wrote it: meta, input log, key names, video, manifest."""
