"""The environment of a rank for each framework. Pure: a `LaunchContext` in, an `EnvPatch` out. See README.md."""
