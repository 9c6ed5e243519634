"""`ascend-job`: look at jobs, running or ended, and control running ones."""
