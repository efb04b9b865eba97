"""OSWorld task files."""
