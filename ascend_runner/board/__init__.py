"""The board of a running job: what the runner shows to other processes. See README.md."""
