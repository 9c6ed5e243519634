"""Reads the machine's resources: NPUs, cores, memory, open files. See README.md."""
