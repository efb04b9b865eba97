"""The training export in the CUDAG format, and the validator of such datasets."""
