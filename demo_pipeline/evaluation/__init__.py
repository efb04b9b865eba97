"""Asks models for the next action at recorded steps, and scores the answers."""
