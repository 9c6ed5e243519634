"""The dialects of rank tables: each module decodes one dialect, and encodes it if HCCL can read it."""
