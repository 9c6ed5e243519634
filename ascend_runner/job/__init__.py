"""What is to be run: the settings, and the plan made of them. Pure: mappings in, records out."""
