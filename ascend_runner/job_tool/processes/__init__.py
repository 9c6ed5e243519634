"""What the processes of the ranks do at this moment."""
