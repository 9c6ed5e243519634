"""Copies datasets to the disks of this node before the ranks start."""
