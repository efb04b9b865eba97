"""Storage of uploads and outputs, in a local folder or an S3 bucket."""
