"""The link between the runners of a job of several nodes."""
