"""`ascend-job status`, `list` and `events`: their text and their JSON."""
