"""The loop that runs an attempt, and the node as the loop sees it. See README.md."""
