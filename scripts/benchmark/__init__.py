"""Measures the program against its peers in one run, and prints ratios. Called by `scripts/bench`."""
