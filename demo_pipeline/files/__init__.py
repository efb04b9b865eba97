"""Reads and writes the kinds of files that several packages use: JSON, Parquet, PNG, the log."""
