"""Small helpers that exist once: Parquet, JSON, PNG, hard links, hashing."""
