"""What HCCL would reject in a rank table, found before the launch. The entry is `entry.check`."""
