"""A site's own explanation of an error, as for `--catalogue`."""

from __future__ import annotations

from typing import Final

LICENCE: Final = """
[[entry]]
id = "licence"
on = "exception"
match = 'licence server \\S+ refused'
means = "the licence server refuses this host"
next = "ask the platform team"
source = "https://wiki.example.org/licences"
sample = "RuntimeError: licence server l1 refused the checkout"
near = "RuntimeError: licence server l1 granted 8 seats"
"""
