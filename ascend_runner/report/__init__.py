"""The output about a job: the screen and the report file."""
