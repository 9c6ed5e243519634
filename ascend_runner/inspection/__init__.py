"""Watches the health of this node while a job runs: NPUs, links, disks and memory."""
