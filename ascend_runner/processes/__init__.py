"""Starts, watches, signals and reaps the processes of a job."""
