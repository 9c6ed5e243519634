"""How fast the program is: measured beside its peers, in one run, and told as ratios. Called by `scripts/bench`."""
