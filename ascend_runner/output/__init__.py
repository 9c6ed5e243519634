"""The output of the ranks and of the runner: pump, log files and console. See README.md."""
