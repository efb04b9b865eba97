"""Tests of the store: uploads, commits, pruning, documents, and damage."""
