"""Decides from the reports of all nodes of a job which node caused its failure, and how certain that is."""
