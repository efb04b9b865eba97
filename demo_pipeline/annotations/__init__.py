"""Annotations: verdicts, grades, thoughts and other wordings by people, models and rules."""
