"""`ascend-rank-table`: rank tables shown, checked, converted, made, merged, cut and compared, for people."""
