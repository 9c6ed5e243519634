"""What `ascend-job logs` shows."""
