"""`make ray`: a backfill through a real Ray head, Postgres and S3 server, with workers killed."""
