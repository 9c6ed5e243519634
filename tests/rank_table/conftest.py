"""A profile with which Hypothesis tries 40,000 cases of each law.

scripts/test --hypothesis-profile=thorough --timeout=0 tests/rank_table/test_codec.py
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "thorough", max_examples=40_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
