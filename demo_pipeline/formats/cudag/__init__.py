"""The CUDAG dataset: single-step records with images, for training and testing."""
