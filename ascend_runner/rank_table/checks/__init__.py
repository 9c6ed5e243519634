"""Checks of a rank table that find, before the launch, whatever HCCL would reject. The entry is `entry.check`."""
