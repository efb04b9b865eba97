"""Grounding: a screenshot, words that name one element, and where it is."""
