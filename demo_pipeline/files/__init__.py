"""Reads and writes JSON, Parquet and PNG files, and contains other helpers that packages share."""
