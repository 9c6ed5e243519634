"""What each framework wants in a rank's environment. Pure: a situation in, changes of the environment out.

`decide.py` holds the table of frameworks and what each gets, `conflicts.py` the table of what must not be set together.
"""
