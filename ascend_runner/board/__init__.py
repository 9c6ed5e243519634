"""The board of a running job: the state that the runner shows to other processes. See README.md."""
