"""Secrets are recognized by name and by shape, and other values are not masked."""

from __future__ import annotations

import time

import pytest

from ascend_runner.secrets import LONGEST_LINE, MASK, Masker, is_secret
from ascend_runner.text import CUT
from tests.helpers.waiting import LIMIT

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN", "HF_TOKEN", "SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "HUAWEICLOUD_SDK_AK", "SK_1",
        "CREDENTIAL_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "wandb_api_key", "_KEY_", "MYSQL_PASSWD", "DB_PWD",
        "GH_PAT",        "WANDB_APIKEY", "BASIC_AUTH", "SENTRY_DSN", "SESSION_ID", "api-key", "apiKey", "SSH_PRIVATE",
        "PGPASSWORD", "ACCESSTOKEN", "MYSQL_PWD", "GITHUBTOKEN", "MY_APIKEY", "AWSSECRET", "wandb.api_key",
    ],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    """A name with one of the words between underscores, or that ends in a longer one, looks secret, in any case."""
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY", "BREAK", "TASK_INDEX", "RISK", "SKIP", "MAKEFLAGS",
        "PWD",        "OLDPWD", "PATTERN", "COMPASS", "AUTHOR", "", "tokenizer", "HOTKEY", "PASSWORDLESS", "SECRETARY",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    """A word that only contains one of the words is another word, and PWD is a directory."""
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://user:hunter2@db:5432/x", "postgres://user:***@db:5432/x"),
        ("redis://:hunter2@cache/0", "redis://:***@cache/0"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer ***"),
        (f"got {JWT} back", "got *** back"),
        (f"key:\n{PEM}\nend", "key:\n***\nend"),
        ("hf_abcdefghijklmnopqrst", MASK),
        ("ghp_0123456789abcdef0123", MASK),
        ("github_pat_0123456789abcdef", MASK),
        ("sk-proj-0123456789abcdef", MASK),
        ("id AKIAIOSFODNN7EXAMPLE", "id ***"),
        ("LTAI5tabcdefghijklmn", MASK),
        ("train.py --token=abc --lr=0.1", "train.py --token=*** --lr=0.1"),
        ("train.py --api-key abc --lr 0.1", "train.py --api-key *** --lr 0.1"),
        ("train.py --api-key 'a b' x", "train.py --api-key '***' x"),
        ("train.py --2fa-token abc", "train.py --2fa-token ***"),
        ("export DB_PASSWORD=abc", "export DB_PASSWORD=***"),
        ('HF_TOKEN="a b" python', 'HF_TOKEN="***" python'),
        ("PGPASSWORD=abc psql", "PGPASSWORD=*** psql"),
        ("Namespace(lr=0.1, api_key='abc')", "Namespace(lr=0.1, api_key='***')"),
        ('Namespace(lr=0.1, hub_token="it\'s")', 'Namespace(lr=0.1, hub_token="***")'),
        (r"Config(password='it\'s', lr=0.1)", "Config(password='***', lr=0.1)"),
        ("    token = 'abc'", "    token = '***'"),
        ("['train.py', '--token', 'abc', 'x']", "['train.py', '--token', '***', 'x']"),
        ("Command '['t.py', '--token=abc']' returned", "Command '['t.py', '--token=***']' returned"),
        ("{'lr': 0.1, 'password': 'abc'}", "{'lr': 0.1, 'password': '***'}"),
        ('{"X-Auth-Token":"abc","lr":0.1}', '{"X-Auth-Token":"***","lr":0.1}'),
        (
            r'{"message": "{\"api_key\": \"abc\", \"lr\": 0.1}"}',
            r'{"message": "{\"api_key\": \"***\", \"lr\": 0.1}"}',
        ),
        ("sh --command 'train.py --token abc' --lr 0.1", "sh --command 'train.py --token ***' --lr 0.1"),
        ("+ curl -H 'X-Auth-Token: abc' https://host", "+ curl -H 'X-Auth-Token: ***' https://host"),
        ("environ({'MYSQL_PWD': 'abc', 'A': 'x'})", "environ({'MYSQL_PWD': '***', 'A': 'x'})"),
        ("wandb:\n  api_key: abc\n  x: y", "wandb:\n  api_key: ***\n  x: y"),
        ("GET https://host/a?x=1&api_key=abc HTTP", "GET https://host/a?x=1&api_key=*** HTTP"),
        ("Namespace(token='hf_abcdefghijklmnopqrst')", "Namespace(token='***')"),
        ("MIIEow\nIBAA==\n-----END PRIVATE KEY-----\nend", "***\nend"),
        ("password=hunter2supersecret", "password=***"),
        ("login with token=abcdef123456 failed", "login with token=*** failed"),
        ("hub_token=abcdef, lr=0.1", "hub_token=***, lr=0.1"),
        ("Namespace(lr=0.1, token=abcdef123456)", "Namespace(lr=0.1, token=***)"),
        ("host=db user=a password=hunter2 dbname=x", "host=db user=a password=*** dbname=x"),
        ("user=a password: hunter2 x", "user=a password: *** x"),
        ("user=a password: 'a b cdef' x", "user=a password: '***' x"),
        ("Password = hunter2 x", "Password = *** x"),
        ("mysql_pwd=abcdef", "mysql_pwd=***"),
        ("aws-secret-access-key:abcdef", "aws-secret-access-key:***"),
        ("+ t.py --wandb.api_key=abcdef", "+ t.py --wandb.api_key=***"),
        ("RuntimeError: token: abcdef123456", "RuntimeError: token: ***"),
        ("session_id=abcdef, x", "session_id=***, x"),
        ("encryption_key=abcdef123", "encryption_key=***"),
        ("X-Api-Key: abcdef x", "X-Api-Key: *** x"),
        ("X-API-Key:\tabcdef", "X-API-Key:\t***"),
        ("db_PassWord=hunter2", "db_PassWord=***"),
        ("dbPassword=abcdef", "dbPassword=***"),
        ("tokens=[x, password=hunter2]", "tokens=[x, password=***]"),
        ("Authorization: Token abcdef123456", "Authorization: Token ***"),
        ("pass: /abcdef/12", "pass: ***"),
        ("-c pass: abcdef1", "-c pass: ***"),
        ("-c db_pass: /abc/12", "-c db_pass: ***"),
    ],
)
def test_secret_shapes(text: str, masked: str) -> None:
    """A secret is masked wherever it stands, what is around it stays, and it is counted."""
    masker = Masker()

    assert masked == masker.text(text)
    assert 1 == masker.count


@pytest.mark.parametrize(
    "text",
    [
        "loss=0.1 step=17", "http://10.0.0.1:8080/path", "tcp://host:29500", "--keyboard=us", "user@host:/folder",
        "sk-learn", "rows.sort(key=first)", "d.get(key='loss')", "--token is required", "--max-tokens 4096",
        "HF_TOKEN=$TOKEN", "--token ${TOKEN:?}", "usage: t.py [--hub-token HUB_TOKEN] [--api-key API_KEY]",
        "Namespace(pad_token_id=0, eos_token='</s>', cls_token='[CLS]', max_new_tokens=128, tokenizer_path='x')",
        "{'max_tokens': '4096', 'key': 'loss', 'password': None}", "KeyError: 'x'", "tokens: 4,096", "token: <unk>",
        "TOKENS_PER_SECOND=12345678.9", "AssertionError: token: bad value", "['--tokens', '4096', '--token', '--lr']",
        "hf_model", "/home/ma-user/AKIA", "lr=1e-3 key_size", "", "token=5", "tokens: 4096", "max_tokens=2048",
        "num_tokens=123456", "total_tokens=1234567890123", "tokens_per_second=12.5", "tokens: 123456.5k", "auth: ok",
        "KeyError: abcdefgh1", "KeyError: password", "pad_token_id=0", "eos_token=<|endoftext|>", "auth: failed",
        "session 12 started", "session: abcdef123", "key=abcdef123", "password: required", "password: incorrect for x",
        "SyntaxError: Unexpected token: xyz123", "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "Missing key: model.layers.0.weight", "token=self.hub_token", "tokens = tokenizer(text)", "tokens = tokenized",
        "eos_token_id=[151645,151643]", "token_type_ids: torch.int64", "num_key_value_heads=123456", "auth::login1",
        "assert token == expected1", "InvalidToken: Signature did not match", "password=$PASSWORD", "password=None",
        "compass=abcdef123", "author: somebody1", "PATH=/usr/bin:/pat:/sk:/home", "Authorization: required by server",
        "use env KEY=... COMMAND", "unknown option --hub-token (did you mean --hub-tokens?)",
        "python3 -c pass: /usr/bin/python3",
    ],
)  # fmt: skip
def test_ordinary_text(text: str) -> None:
    """Values that are not secrets are left alone."""
    masker = Masker()

    assert text == masker.text(text)
    assert 0 == masker.count


def test_colored_output() -> None:
    """Colours hide no secret, and bytes that are no text stay."""
    assert b"\xff HF_TOKEN=*** end" == Masker().data(b"\xff \x1b[31mHF_TOKEN=\x1b[0mabc end")


@pytest.mark.deep(quick=5)
@pytest.mark.parametrize(
    "text",
    [
        "a-" * 50_000,
        "://" * 30_000,
        "a" * 100_000,
        "--a " * 25_000,
        "eyJ-" * 25_000,
        "A=" * 50_000,
        "x://a:" * 16_000,
        "'" * 100_000,
        'a="' * 30_000,
        "'a':'" * 30_000,
        "'--a','" * 30_000,
        " " * 100_000 + ": ",
        "-token: " * 20_000,
        "a.b-" * 25_000 + ": ",
        "?a" * 50_000,
        "password=" * 110_000,
        "password='" * 20_000,
        "token=[" * 50_000,
        "token: aaaaaaaaaa " * 10_000,
        "a_" * 500_000 + "key=",
        "Authorization: a " * 50_000,
    ],
    ids=lambda text: text[:16],
)
def test_odd_text_takes_no_time(text: str) -> None:
    """No text makes the search go over it again and again."""
    start = time.process_time()
    Masker().text(text)

    assert time.process_time() - start < LIMIT


@pytest.mark.parametrize(
    "mark",
    [
        *("token=a ", "Bearer ", "://a:", "a.b.", "eyJaaaaaaaa.eyJbbbbbbb.", "key=", "password: ", "token='", 'a="'),
        *("'a': '", "secret=$", "'--a', '", "x-token: ", "authorization: ", "?a", "password=aaaaaaaa ", "A=", "x"),
    ],
)
def test_work_does_not_grow_with_the_length_of_a_line(mark: str) -> None:
    """Of a long line both ends are searched: twice the length is the same work, and finds the same."""
    work = []
    for size in (1 << 17, 1 << 18):
        masker = Masker()
        work.append((masker.data((mark * size)[:size].encode()[: -size % len(mark) or None]), masker.count))

    assert len(work[0][0]) <= LONGEST_LINE + len(CUT) + work[0][1] * len(MASK)
    assert work[0] == work[1] or len(mark) & (len(mark) - 1)  # where a power of two ends with a whole mark


def test_secrets_of_a_long_line() -> None:
    """The ends of a long line are masked as a short one is, and lines of usual length around it stay whole."""
    line = "a\nlogin --token abcdef1 " + "x " * LONGEST_LINE + "password=hunter2supersecret\nb"
    masked = Masker().data(line.encode()).decode()

    assert masked.startswith("a\nlogin --token *** x x ")
    assert masked.endswith(" x x password=***\nb")
    assert LONGEST_LINE - 100 < len(masked) < LONGEST_LINE + 100


def test_arguments() -> None:
    """A secret may follow its option as a word of its own; another option may follow instead."""
    words = ("python", "train.py", "--api-key", "abc", "--token", "--lr", "0.1", "--secret=x", "--max-tokens", "4096")
    others = ("--passphrase=a b", "+wandb.api_key=abc", "sh", "-c", "HF_TOKEN=abc exec python")

    masker = Masker()

    assert (*words[:3], MASK, *words[4:7], "--secret=***", *words[8:]) == masker.arguments(words)
    assert ("--passphrase=***", "+wandb.api_key=***", "sh", "-c", "HF_TOKEN=*** exec python") == masker.arguments(
        others
    )
    assert 5 == masker.count


def test_variables() -> None:
    """Values of secret names and values of a secret's shape are masked; names and order stay, and empty stays empty."""
    variables = {"RANK_ID": "3", "OBS_SK": "hunter2", "EMPTY_KEY": "", "DATABASE": "mysql://root:x@db"}

    expected = [("RANK_ID", "3"), ("OBS_SK", MASK), ("EMPTY_KEY", ""), ("DATABASE", "mysql://root:***@db")]
    assert expected == list(Masker().variables(variables).items())
