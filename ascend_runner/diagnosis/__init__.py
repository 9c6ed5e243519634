"""What the remains of a job tell: the end of each rank's log, how each ended, who complains of whom.

Pure: bytes and records in, records and sentences out. It reads no file, knows no pid and no clock, and of this package
imports only the records of supervision. The manager loads it when a rank has failed, never before one runs.
"""
