"""Collects annotations by people, models and rules: verdicts, grades, thoughts and rewordings."""
