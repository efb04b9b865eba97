"""Uploaded recordings, in a folder or a bucket."""
