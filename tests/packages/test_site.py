"""The documentation as static pages: every page, every picture, search, an anchor of each cause."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fabmon.analysis.causes import CAUSES
from release.wheels import ROOT
from tests import requirements


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tool = ROOT / ".venv-release" / "bin" / "sphinx-build"
    requirements.need("Sphinx", tool.exists(), "make test-packages")
    out = tmp_path_factory.mktemp("site") / "site"
    subprocess.run(["make", "-s", "docs", f"SITE={out}"], cwd=ROOT, check=True, capture_output=True)
    return out


def test_every_page_is_there(site: Path) -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for page in pages:
        assert (site / page.relative_to(ROOT)).with_suffix(".html").exists()
    assert (site / "index.html").read_text() == (site / "README.html").read_text()


def test_every_cause_has_an_anchor(site: Path) -> None:
    for cause in CAUSES.values():
        page, _, anchor = cause.documentation.partition("#")
        html = (site / page).with_suffix(".html").read_text()
        assert f'id="{anchor}"' in html


def test_every_link_and_picture_within_the_site_leads_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src|srcset)="([^"#]+)', page.read_text()):
            path = target.partition("?")[0]
            if path and not re.match(r"[a-z]+:", path):
                assert (page.parent / path).exists(), (page, target)


def test_search_finds_words(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert "incast" in index
    assert "polar" in index


def test_it_names_no_path_of_the_machine_that_made_it(site: Path) -> None:
    for page in site.rglob("*"):
        if page.is_file():
            assert str(ROOT).encode() not in page.read_bytes(), page
