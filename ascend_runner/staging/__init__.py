"""Copies data sets to the disks of this node before the ranks start."""
