"""Finds the private data of demonstrations, and redacts it before it reaches a dataset."""
