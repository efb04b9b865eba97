"""Scoring what models answer for the recorded steps: requests, predictions, rules and tables."""
