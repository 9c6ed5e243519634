"""What is to be said about a table besides what it holds: one sentence each, with its place.

HCCL's error codes stand beside, so that who searches for one finds it here: it is what the ranks would have reported,
up to half an hour after the launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import RankTableFormatError, said_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def rewritten(wanted: str, path: str, source: str) -> Finding:
    """Tell of a JSON type in `path` that HCCL does not take, and that this is mended."""
    return Finding(
        severity=WARNING,
        sentence=f"HCCL wants a {wanted} here: the table is not handed on as it stands, but written anew",
        path=path,
        source=source,
        code=MISSING_FIELD,
    )


def as_error(findings: Sequence[Finding]) -> RankTableFormatError:
    """Give findings, at least one, as an error that tells the first and carries the others."""
    first, *others = (
        RankTableFormatError(finding.sentence, path=finding.path, source=finding.source, code=finding.code)
        for finding in findings
    )

    return RankTableFormatError(first.sentence, path=first.path, source=first.source, code=first.code, others=others)
