"""Private data: what is found in a demonstration, and what leaves instead of it."""
