"""Gathers evidence after a failure: the ends of logs, plogs, and the stacks of ranks that hang."""
