"""The machine that the ranks run on: what it has, and how it is. See README.md."""
