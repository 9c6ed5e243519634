"""The processes of running ranks: their resource usage and their stacks."""
