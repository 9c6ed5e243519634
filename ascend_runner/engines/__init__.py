"""Engines: other launchers that the runner can hand the command over to (`--launcher`). Pure. See README.md."""
