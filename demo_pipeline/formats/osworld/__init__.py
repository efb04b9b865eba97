"""OSWorld task files: ordinary tasks, and tasks with a risk."""
