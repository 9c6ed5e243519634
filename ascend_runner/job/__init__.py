"""A job from its settings to its end. See README.md."""
