"""`ascend-job logs`: finds, reads and shows the logs of ranks."""
