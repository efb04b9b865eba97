"""Accessibility scans, hit tests and UI trees."""
