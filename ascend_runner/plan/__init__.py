"""Turns settings, rank table and facts of the node into one immutable `JobSpec`. Pure."""
