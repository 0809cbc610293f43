"""The documentation: every page is in the index, every link and every path leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.finding import Cause
from fabmon.feeds.errors import CHECKS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:fabmon|collectors|tests|config|docs)/[\w./-]+)`")
README_WORDS = 940


def _anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in _LINK.findall(text):
        target, _, anchor = link.partition("#")
        if "://" in link or not re.fullmatch(r"[\w./#-]+", link):
            continue
        where = (page.parent / target).resolve() if target else page
        assert where.exists(), link
        assert not anchor or anchor in _anchors(where), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_is_named_exists(page: Path) -> None:
    for path in _PATH.findall(page.read_text(encoding="utf-8")):
        if not any(word in path for word in ("NAME", "CAUSE")):
            assert (ROOT / path).exists(), path


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    known = {(index.parent / link.partition("#")[0]).resolve() for link in _links(index)}
    assert {page.resolve() for page in ROOT.glob("docs/*.md")} <= known | {index.resolve()}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.name)
def test_a_finding_links_to_its_rule(cause: Cause) -> None:
    page, _, anchor = cause.documentation.partition("#")
    assert anchor in _anchors(ROOT / page)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS


def test_every_failure_of_a_connection_that_has_a_check_is_explained() -> None:
    page = (ROOT / "docs" / "hosts-file.md").read_text(encoding="utf-8")
    explained = page.partition("## When a node does not answer")[2]
    named = {word for row in re.findall(r"^\|([^|]+)\|", explained, re.M) for word in _named(row)}
    assert set(CHECKS) <= named


def _named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _links(page: Path) -> list[str]:
    return _LINK.findall(page.read_text(encoding="utf-8"))
