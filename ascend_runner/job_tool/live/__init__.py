"""The live view of `ascend-job top`."""
