"""Rows of CUA-Lite, from which its adapters render the training data of many agents."""
