"""`ascend-runner --check`: says what would hinder a job on this node, subject by subject, and starts nothing.

What the plan would be is asked of the launcher itself, so that a check and a start cannot disagree. The rest is looked
at here: devices, leftovers, versions, ports, names, room and limits. Loaded only for a check. Whatever may hang (a
driver, a name server) is given up after some seconds.
"""
