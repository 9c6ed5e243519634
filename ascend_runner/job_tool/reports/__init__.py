"""`ascend-job report`: the HTML report of a job, and the verdict on the reports of several nodes."""
