"""What each framework needs in a rank's environment. Pure: a `LaunchContext` in, an `EnvPatch` out. See README.md."""
