"""The dialects of rank tables: one module decodes, and where HCCL has a parser for it encodes, one dialect."""
