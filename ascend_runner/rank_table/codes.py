"""The error codes that HCCL reports up to half an hour after the launch, if something is wrong with a rank table.

Problems carry them, so that users who search for a code find the sentence.
"""

from __future__ import annotations

from typing import Final

BAD_ENVIRONMENT: Final = "EI0001"  # also for addresses of two families
BAD_TABLE: Final = "EI0004"  # the file or its structure
BAD_VALUE: Final = "EI0014"
MISSING_FIELD: Final = "EI0017"  # also for a field of the wrong JSON type
