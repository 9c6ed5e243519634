"""`ascend-job metrics`: the metrics of a job for Prometheus."""
