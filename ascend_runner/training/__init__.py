"""What can be read of a training, and what its ranks call. Runs in the ranks too: standard library, Python 3.7."""
