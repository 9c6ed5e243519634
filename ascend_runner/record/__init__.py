"""The facts of a job, and the records of its ranks and of itself. Pure. See README.md."""
