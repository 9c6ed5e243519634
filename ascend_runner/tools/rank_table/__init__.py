"""`ascend-rank-table`: shows, checks, converts, generates and compares rank tables. See README.md."""
