"""Tests of what the hand did."""
