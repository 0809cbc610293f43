"""The upper part of the HTML report as an SVG, dark or light as the reader's browser is."""

from __future__ import annotations

import re
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path

WIDTH, HEIGHT = 1060, 1180
_VOID = {"br", "hr", "img", "input", "meta", "link"}
_MAIN = "from fabmon.cli.main import main; main()"


def report_picture(recording: Path, page: Path) -> str:
    """The first findings of a recording's report, which is written to `page`."""
    arguments = ["report", str(recording), "-o", str(page)]
    subprocess.run([sys.executable, "-c", _MAIN, *arguments], check=True, capture_output=True)
    html = page.read_text("utf-8")
    style = html.partition("<style>")[2].partition("</style>")[0]
    # Selectors of the page's root are those of the body here: the root is the SVG.
    style = re.sub(r"(^|[\s}])body\b", r"\1.page", style)
    body = _Xhtml(html.partition("<body>")[2].partition('<section class="part" id="load">')[0])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}"><style>{escape(style, quote=False)}</style>'
        f'<rect width="100%" height="100%" style="fill:var(--bg)"/>'
        f'<foreignObject width="{WIDTH}" height="{HEIGHT}">'
        f'<div xmlns="http://www.w3.org/1999/xhtml" class="page">{body.text}</div>'
        "</foreignObject></svg>\n"
    )


class _Xhtml(HTMLParser):
    """HTML as XHTML: attributes with values, every element closed, no scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.text += "".join(f"</{name}>" for name in reversed(self._open))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # The parser gives names of attributes in lower case, SVG has one in mixed case.
        named = (
            ("viewBox" if name == "viewbox" else name, name if value is None else value)
            for name, value in attrs
        )
        values = "".join(f' {name}="{escape(value)}"' for name, value in named)
        space = ' xmlns="http://www.w3.org/2000/svg"' if tag == "svg" else ""
        self.text += f"<{tag}{space}{values}{'/' if tag in _VOID else ''}>"
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while (last := self._open.pop()) != tag:
                self.text += f"</{last}>"
            self.text += f"</{tag}>"

    def handle_data(self, data: str) -> None:
        self.text += escape(data, quote=False)
