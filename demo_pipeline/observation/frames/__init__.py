"""The decode pass, frame choice, change detection and waits."""
