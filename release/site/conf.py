"""The documentation as static pages: `make docs`. Sphinx reads the Markdown that GitHub shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from collectors import __version__

ROOT = Path(__file__).resolve().parents[2]

project = "fabmon"
version = release = __version__
copyright = "the fabmon developers"
html_title = f"fabmon {__version__}"
html_theme = "furo"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**"]
exclude_patterns = ["docs/pictures/*"]
myst_heading_anchors = 4
html_show_sourcelink = False
html_copy_source = False
# Code blocks without a language are what a shell or a file shows.
highlight_language = "none"
# Some pages skip a level of headings.
suppress_warnings = ["myst.header"]

_SECTION = re.compile(r"^## (.+)\n((?:- .*\n(?:  .*\n)*)+)", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w./-]+\.md)\)")
_LINK = re.compile(r"\[([^\]]*)\]\(([\w./-]+)\)")


def _toctree(pages: list[str], caption: str = "") -> str:
    options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
    return f"\n```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"


def contents() -> str:
    """The sidebar: the sections of docs/README.md with their pages, each page once."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    text = _toctree(["docs/README"])
    seen: set[str] = set()
    for title, entries in _SECTION.findall(index):
        pages = [page for page in dict.fromkeys(_PAGE.findall(entries)) if page not in seen]
        seen.update(pages)
        names = [f"docs/{page.removesuffix('.md')}".replace("docs/../", "") for page in pages]
        text += _toctree(names, title)
    return text


def prepare(app: Any, name: str, source: list[str]) -> None:
    """Add the sidebar to the first page; links to folders of the source become their text."""
    folder = (ROOT / name).parent
    source[0] = _LINK.sub(
        lambda link: link[1] if (folder / link[2]).is_dir() else link[0], source[0]
    )
    if name == "README":
        source[0] += contents()
    if name == "docs/decisions/README":
        decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
        source[0] += _toctree([path.stem for path in decisions])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare)
