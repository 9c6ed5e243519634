"""`ascend-rank-table`: show, check, convert, generate, merge, cut and compare rank tables."""
