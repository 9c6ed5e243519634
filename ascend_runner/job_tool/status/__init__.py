"""What `ascend-job status`, `list` and `events` show."""
