"""`make ray`: a backfill on a real Ray head with Postgres and an S3 server, and killed workers."""
