"""Finds checkpoints, and has the functions that ranks call. Runs in the ranks too: standard library, Python 3.7."""
