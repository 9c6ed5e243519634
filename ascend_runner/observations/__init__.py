"""The observations of a job: its facts, and the record of each rank. See README.md."""
