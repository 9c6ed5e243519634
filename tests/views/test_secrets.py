"""No secret of a known kind is in a page, wherever it was."""

from __future__ import annotations

import pytest

from tests.helpers.planted import SECRETS, WORD
from tests.views.conftest import Write, document, rank, rendered, write_table


@pytest.mark.parametrize("secret", SECRETS)
def test_planted(secret: str, write: Write) -> None:
    """A secret in variables, arguments, sentences or logs is masked, although the JSON report has it."""
    name, _equals, value = secret.partition("=")
    variables = {name: value} if value and name.isidentifier() else {"SOME_TEXT": secret}
    finding = {"exception": f"Error: {secret}", "excerpt": ["Traceback", f"Error: {secret}"]}
    first = rank(0, state="failed", finding=finding, variables=variables)
    report = document(2, ranks=[first, rank(1, variables=variables)], warnings=[secret])
    report["cause"] = {"sentence": f"rank 0 failed: {secret}", "rank_id": 0}
    command = ("sh", "-c", f"echo '{secret}'") if "\n" in secret or not secret.startswith("-") else secret.split(" ")
    path = write(report, lambda _rank: f"before\n{secret}\nafter\n".encode(), tuple(command))

    assert WORD not in rendered(path)
    assert WORD not in rendered(path, is_public=True)


@pytest.mark.parametrize("secret", SECRETS)
def test_planted_in_events_and_rank_table(secret: str, write: Write) -> None:
    """A secret in an event or in the names of a rank table is masked as well."""
    report = document(2, server_id=secret)
    path = write(report, command=(secret,))  # which is in an event as well
    write_table(path.parent, 2, secret, address=secret)
    page = rendered(path)

    assert 'id="topology"' in page
    assert 'id="history"' in page
    assert WORD not in page
    assert WORD not in rendered(path, is_public=True)


def test_count(write: Write) -> None:
    """The page counts the secrets that the runner has masked, and those that were masked for the page."""
    without = rendered(write(document(2)))
    path = write(document(2, secrets_masked=2), lambda _rank: f"HF_TOKEN={WORD}\n".encode(), ("--token", WORD))

    assert "Masked as" not in without
    assert "Masked as ***: 5 secrets." in rendered(path)
    assert "Masked as" not in rendered(path, is_public=True)


def test_public_page_does_not_name_another_node(write: Write) -> None:
    """That the cause is on another node is public, but not its name."""
    cause = {"sentence": f"look at node 1 ({WORD})", "rank_id": 0, "certainty": "open", "is_elsewhere": True}
    text = rendered(write(document(2, cause=cause)), is_public=True)

    assert WORD not in text
    assert "All failed ranks of this node lost a peer; look at another node" in text


def test_public_page_without_history(write: Write) -> None:
    """One attempt alone makes no section: its events are not public."""
    text = rendered(write(document(2, attempts=[{"attempt": 0}])), is_public=True)

    assert "History" not in text


def test_public_page_has_nothing_of_the_user(write: Write) -> None:
    """The public page has neither hosts, paths and arguments nor what ranks have written."""
    text = rendered(write(document(8, WORD), lambda _rank: WORD.encode(), (WORD, WORD)), is_public=True)

    assert WORD not in text
    assert "JSON report" not in text
    assert "10.0.0.5" not in text
    assert "192.168" not in text
    assert "/log" not in text
    assert "loss is nan" not in text
    assert "Rank 5 failed: exit status 1" in text
    assert "EI0006" in text
