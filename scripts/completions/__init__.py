"""Completions of the three programs for bash, zsh and fish, from their tables of options and commands."""
