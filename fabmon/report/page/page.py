"""The page: one file, no network, no fonts or scripts but its own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from fabmon import __version__
from fabmon.analysis.fluctuation.records import Fluctuation
from fabmon.report.page import facts, words
from fabmon.report.page.digest import Digest
from fabmon.report.page.facts import Source
from fabmon.report.page.findings import findings
from fabmon.report.page.fluctuation import fluctuation
from fabmon.report.page.heatmap import heatmap
from fabmon.report.page.markup import Markup, joined, tag
from fabmon.report.page.timeline import timeline


def page(digest: Digest, sources: Sequence[Source], steady: Fluctuation) -> str:
    """All of it as HTML. Nothing in it can be run but our script, whatever names nodes have."""
    style, script = _asset("style.css"), _asset("heatmap.js")
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{hashed}'"
    )
    begin, end = digest.bins.from_ns, digest.bins.until_ns
    title = next((source.title for source in sources if source.title), "fabric report")
    lasted = words.span((end - begin) / 1e9)
    parts = {
        "Timeline": timeline(digest),
        "Findings": findings(digest),
        "Load of every link": heatmap(digest),
        "Fluctuation": fluctuation(steady),
        "Events": joined([facts.events(digest), facts.jobs(digest)]),
        "Fabric": facts.topology(digest),
        "Recording": facts.recording(digest, sources),
    }
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}, {words.date(begin)}"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            tag("p", f"{words.date(begin)} to {words.date(end)} · {lasted} · all times are UTC"),
        ),
        tag("nav", *(tag("a", title, href=f"#{_id(title)}") for title in parts)),
        facts.cards(digest, sources),
        *(
            tag("section", tag("h2", title), part, class_="part", id=_id(title))
            for title, part in parts.items()
        ),
        tag(
            "footer",
            f"Made by fabmon {__version__} from raw counters; rates and findings were worked out "
            "for this page. Traffic is in decimal units of one direction. A dot is absent: not "
            "supported, not permitted or not known; never zero.",
        ),
        tag("script", Markup(script)),
    )
    return f"<!DOCTYPE html>\n{tag('html', joined([head, body]), lang='en')}\n"


def _id(title: str) -> str:
    return title.split()[0].lower()


def _asset(name: str) -> str:
    return files("fabmon.report.page").joinpath(name).read_text("utf-8")
