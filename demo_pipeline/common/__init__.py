"""Helpers without a subject of their own: Parquet, JSON, images, hard links, hashing."""
