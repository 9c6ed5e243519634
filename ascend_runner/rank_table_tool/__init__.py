"""`ascend-rank-table`: show, check, convert, generate, merge, subset and compare rank tables."""
