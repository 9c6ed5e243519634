"""The first process: it forks the runner, outlives it, and kills whatever the runner leaves behind. See README.md."""
