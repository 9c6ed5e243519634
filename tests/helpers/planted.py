"""Secrets of every known kind, for tests that plant them where a user might have them."""

from __future__ import annotations

from typing import Final

WORD: Final = "correcthorsebatterystaple"  # at the end of each secret, so that a part of one is found as well
SECRETS: Final = [
    *(f"{name}={WORD}" for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYSQL_PWD", "GITHUB_PAT")),
    *(f"{name}={WORD}" for name in ("WANDB_APIKEY", "SENTRY_DSN", "SESSION_ID", "PGPASSWORD", "DB_PASS", "API_KEY")),
    *(f"--{name} {WORD}" for name in ("token", "api-key", "password", "hub-token", "secret-key")),
    *(f"--{name}={WORD}" for name in ("token", "api-key", "password", "hub-token", "secret-key")),
    *(f"{name}={WORD}" for name in ("password", "hub_token", "wandb.api_key", "secret-key")),
    f"user=a password: {WORD} x",
    f"host=db user=a password={WORD} dbname=x",
    f"Namespace(lr=0.1, token={WORD})",
    f"Authorization: Token {WORD}",
    f"http://user:{WORD}@proxy:8080",
    f"postgres://user:{WORD}@db/x",
    f"Authorization: Bearer {WORD}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{WORD}",
    f"hf_{WORD}",
    f"ghp_{WORD}",
    f"github_pat_{WORD}",
    f"sk-{WORD}",
    f"AKIA{WORD}",
    f"LTAI{WORD}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----",
    f"https://host/a?x=1&access_token={WORD}",
    f"Namespace(lr=0.1, api_key='{WORD}')",
    f'{{"X-Auth-Token": "{WORD}"}}',
]
