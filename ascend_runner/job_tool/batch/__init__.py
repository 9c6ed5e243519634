"""What `ascend-job batch` runs."""
