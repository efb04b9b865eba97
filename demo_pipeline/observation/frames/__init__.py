"""Decodes the video once, chooses the frame of each action and writes it as a screenshot."""
