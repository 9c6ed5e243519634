"""Finds jobs, takes snapshots of them, and waits for their changes."""
