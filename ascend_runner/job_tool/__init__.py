"""`ascend-job`: look at jobs, running or ended, and talk to running ones."""
