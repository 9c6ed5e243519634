"""Finds this node's place in its job by a platform's variables. Pure: mappings in, records out. See README.md."""
