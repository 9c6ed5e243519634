"""What is to be said about a table besides what it holds: one sentence each, with its place.

HCCL's error codes stand beside, so that who searches for one finds it here: it is what the ranks would have reported,
up to half an hour after the launch.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.errors import said_of

ERROR: Final = "error"  # HCCL would refuse the table
WARNING: Final = "warning"  # odd, but it works

BAD_ENVIRONMENT: Final = "EI0001"  # HCCL's code for addresses of two families, too
BAD_TABLE: Final = "EI0004"  # the file or its structure
BAD_VALUE: Final = "EI0014"
MISSING_FIELD: Final = "EI0017"  # also for a field of another JSON type than HCCL wants


@attrs.frozen(kw_only=True)
class Finding:
    """One thing about one place of a document. `code` is HCCL's, and "" where HCCL has none."""

    severity: str
    sentence: str
    path: str = ""
    source: str = ""
    code: str = ""

    def __str__(self) -> str:
        """Say it as an error would be said."""
        return said_of(self.sentence, self.path, self.source)
