"""What a platform tells a node through variables: its place in the job, where node 0 is, where data lies.

Pure: mappings in, records out; no os.environ, no files, no names resolved. `find.py` states which platforms are known
and in which order they are asked, one file per platform says what its variables mean. Its records are named tuples for
the reason that `supervision` gives: the time to start.
"""
