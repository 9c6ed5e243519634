"""`ascend-job`: shows jobs, running or ended, and controls running ones. See README.md."""
