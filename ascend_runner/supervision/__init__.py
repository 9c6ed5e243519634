"""The rules of one attempt of a job: which rank is started, asked to stop or killed, and which exit status follows.

Pure: it deals with ranks, and has no access to pids, clocks or files.
"""
