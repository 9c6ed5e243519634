"""What is observed of a job: the facts, and the record of each rank. See README.md."""
