"""What `ascend-job metrics` gives to Prometheus."""
