"""Finds the plan of a job, or everything that is wrong with it. See README.md."""
