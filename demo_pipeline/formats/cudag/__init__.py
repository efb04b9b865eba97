"""The CUDAG dataset."""
