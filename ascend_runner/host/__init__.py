"""Reads what this machine is and has: NPUs, cores, memory, open files. See README.md."""
