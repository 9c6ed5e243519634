"""The options of the command line, their variables and their defaults."""
