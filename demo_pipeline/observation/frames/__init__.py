"""Frames: the decode pass, frame choice, change detection, waits and screenshots."""
