"""How the command is written: what cannot be run as it stands, whose Python it is, how another engine is given it.

Pure: words in, words out. `engines.py` holds the table of engines. `direct`, a process per device, is this program's
own way and needs no rewriting.
"""
