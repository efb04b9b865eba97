"""What people ask of finished data: a report to send, and what differs between two datasets."""
