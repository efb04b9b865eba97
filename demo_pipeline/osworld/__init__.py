"""OSWorld tasks: their files, their catalog, and matching a demonstration with one."""
