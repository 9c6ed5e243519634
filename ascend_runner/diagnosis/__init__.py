"""Explains why ranks ended: from the end of each log, the exit status, and the errors that ranks report about peers.

Pure: bytes and records in, records and sentences out. It reads no files and uses no pids and no clock.
"""
