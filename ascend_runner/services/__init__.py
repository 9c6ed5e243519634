"""The runner's services for the ranks while they run."""
