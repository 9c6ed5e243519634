"""What scripts/release refuses, before it makes anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
NAMES: Final = "GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL"
IDENTITY: Final = dict.fromkeys(NAMES.split(), "a@example.org")


@pytest.fixture(name="tree")
def fixture_tree(tmp_path: Path) -> Path:
    """Make a commit of a project of version 1.2.3, with a section for it in the changelog."""
    for name, text in {
        "ascend_runner/__init__.py": '__version__ = "1.2.3"\n',
        ".github/CHANGELOG.md": "# Changelog\n\n## 1.2.3\n\n## 1.2\n",
        "scripts/release": (ROOT / "scripts" / "release").read_text(),
        "scripts/venv": "#!/bin/sh\necho made-venv >&2\nexit 9\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Begin")):
        git(tmp_path, *words)
    return tmp_path


def git(tree: Path, *words: str) -> None:
    """Run git in this tree."""
    program = shutil.which("git") or pytest.skip("git is not installed")
    subprocess.run([program, *words], cwd=tree, env=IDENTITY, check=True)


def refused(tree: Path, *words: str) -> tuple[int, str]:
    """Return the exit status of scripts/release, and its sentence without the beginning."""
    ended = subprocess.run([tree / "scripts" / "release", *words], stderr=subprocess.PIPE, text=True, check=False)
    return ended.returncode, ended.stderr.removeprefix("scripts/release: ").strip()


def test_clean_tree_with_a_section(tree: Path) -> None:
    """It is not refused: what makes its tools is called."""
    assert (9, "made-venv") == refused(tree)


def test_version_without_a_section(tree: Path) -> None:
    """A version that the changelog does not tell of is refused, in a draft as well."""
    (tree / "ascend_runner" / "__init__.py").write_text('__version__ = "1.2.4"\n')
    for words in ([], ["--draft"]):
        status, sentence = refused(tree, *words)

        assert (2, 1) == (status, len(sentence.splitlines()))
        assert sentence.startswith("version 1.2.4 has no section in .github/CHANGELOG.md")


@pytest.mark.parametrize("name", ["new.txt", "scripts/venv"])
def test_tree_with_changes(tree: Path, name: str) -> None:
    """A file that is new or differs from the commit is refused, but not for a draft."""
    with (tree / name).open("a") as file:
        file.write("\n")
    status, sentence = refused(tree)

    assert (2, 1) == (status, len(sentence.splitlines()))
    assert sentence.startswith("the tree differs from its commit")
    assert (9, "made-venv") == refused(tree, "--draft")


def test_version_of_an_earlier_commit(tree: Path) -> None:
    """A version is released once: its tag may be this commit, but no other one."""
    git(tree, "tag", "--annotate", "--message", "1.2.3", "v1.2.3")

    assert (9, "made-venv") == refused(tree)

    git(tree, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    status, sentence = refused(tree)

    assert (2, 1) == (status, len(sentence.splitlines()))
    assert sentence.startswith("tag v1.2.3 is another commit")
    assert (9, "made-venv") == refused(tree, "--draft")


def test_unknown_argument(tree: Path) -> None:
    """It is named."""
    assert (2, "unknown argument '--drfat', expected --draft or none") == refused(tree, "--drfat")
