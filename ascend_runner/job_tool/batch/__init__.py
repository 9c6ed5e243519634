"""`ascend-job batch`: reads a file of commands and runs them."""
