"""Which variables look secret."""

from __future__ import annotations

import pytest

from ascend_runner.job.secrets import MASK, is_secret, mask


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN", "HF_TOKEN", "SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "HUAWEICLOUD_SDK_AK", "SK_1",
        "CREDENTIAL_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "wandb_api_key", "_KEY_", "MYSQL_PASSWD",
    ],
)  # fmt: skip
def test_secrets(name: str) -> None:
    """A name with one of the words between underscores looks secret, in whatever case."""
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "MONKEY",
        "BREAK",
        "TASK_INDEX",
        "RISK",
        "SKIP",
        "MAKEFLAGS",
        "PWD",
        "",
    ],
)
def test_no_secrets(name: str) -> None:
    """A word that only holds one of the words is another word."""
    assert not is_secret(name)


def test_mask() -> None:
    """Only the values of secrets are masked; names and order stay."""
    variables = {"RANK_ID": "3", "OBS_SK": "hunter2", "EMPTY_KEY": ""}

    assert [("RANK_ID", "3"), ("OBS_SK", MASK), ("EMPTY_KEY", MASK)] == list(mask(variables).items())
