"""Renders a page with jinja2. Pure but for the templates, which are read from the package."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Final

import attrs
import jinja2

from ascend_runner.members import Members
from ascend_runner.text import printable, rank_list
from ascend_runner.views import page_content, page_ranks
from ascend_runner.views.page_content import Sources, content_of, gather

TEMPLATES: Final = ("report.html", "parts.html")  # the page, and the templates that it imports


def make(report: Mapping[str, object], path: str) -> bytes:
    """Return the page about a report, for the directory that the report has in `path`."""
    return render(attrs.evolve(gather(Members(report), path), links_logs=True))


def render(sources: Sources) -> bytes:
    """Return the page, in UTF-8."""
    marks = page_content.marks_of(sources)
    content = content_of(page_content.reduced(sources) if sources.is_public else sources, marks)
    style = _template("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment().get_template(TEMPLATES[0]).render(page=content, style=style, digest=digest)
    return page.encode(errors="backslashreplace")


def compile_templates() -> None:
    """Compile the templates, so that the first page takes less time."""
    for name in TEMPLATES:
        environment().get_template(name)


@functools.lru_cache
def environment() -> jinja2.Environment:
    """Return the environment, in which the templates are compiled once."""
    made = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        loader=jinja2.FunctionLoader(_template),
        lstrip_blocks=True,
        optimized=False,  # each page is rendered once, so that optimizing a template takes longer than it saves
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["rank_list"] = rank_list
    made.tests["marks"] = page_ranks.is_marks
    return made


def _template(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Escape unprintable characters in a text of the report: control characters, bidi marks, surrogates.

    Texts of the templates themselves are marked as safe, and stay as they are.
    """
    return printable(value) if type(value) is str else value
