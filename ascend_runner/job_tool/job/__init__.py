"""Which jobs there are, what is known about one, and when it changes."""
