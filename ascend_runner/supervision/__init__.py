"""The rules of life and death: which rank is started, asked to stop, killed, and what the job's status is.

Pure: it knows ranks, but no pids, no clock, no files, and imports nothing else of this package. Its records are named
tuples, not attrs classes: importing attrs takes longer (40 ms) than starting eight ranks, and a prefix command
that is started without a rank table must not pay for it.
"""
