"""Takes a job from its settings to its end. See README.md."""
