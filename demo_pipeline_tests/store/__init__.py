"""Storage: ids, uploads, commits, collection, export."""
