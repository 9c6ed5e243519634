"""Turns settings, rank table and facts about the node into one immutable `JobSpec`. Pure."""
