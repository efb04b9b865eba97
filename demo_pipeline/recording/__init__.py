"""Reads, checks and fingerprints the files of a recording: meta.json, input log and video."""
