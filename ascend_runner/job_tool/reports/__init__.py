"""What `ascend-job report` makes of the reports of a job, those of several nodes included."""
