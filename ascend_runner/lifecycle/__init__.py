"""The rules of a job over its attempts: its states, and whether and when it is restarted after a failure. Pure."""
