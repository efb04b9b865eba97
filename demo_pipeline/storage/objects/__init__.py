"""Objects in a folder or an S3 bucket."""
