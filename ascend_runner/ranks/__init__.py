"""The processes of the ranks, and their output. See README.md."""
