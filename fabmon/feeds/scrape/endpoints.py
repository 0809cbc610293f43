"""What to fetch from a host: `scrape=[KIND:]PORT[/PATH],...` of the hosts file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fabmon.feeds.errors import NodeError
from fabmon.feeds.scrape.tables import Tables

_ENDPOINT = re.compile(r"(?:(?P<kind>[a-z_][a-z0-9_]*):)?(?P<port>\d{1,5})(?P<path>/[!-~]*)?")
_PATH = "/metrics"
_USUAL = 9100


class BadEndpoint(NodeError):
    """A `scrape=` that cannot be used; the message says what to write."""

    cause = "hosts file"


class Endpoint(NamedTuple):
    """One exporter to ask. `source` is what it is called; `tables` are those that may fit it.

    `period_s` is how often to ask it at most, 0 for as often as one likes.
    """

    source: str
    port: int
    path: str
    tables: Tables
    period_s: float


def endpoints(scrape: Sequence[str], tables: Tables, port: int | None = None) -> list[Endpoint]:
    """The endpoints of a host, the usual one when it names none. Raises BadEndpoint.

    With a KIND only that exporter's metrics are read there. Without, all that fabmon knows, and the
    endpoint is called by the exporter that usually listens on its port.
    """
    found = [_endpoint(text, tables) for text in scrape or (str(port or _USUAL),)]
    names = Counter(each.source for each in found)
    return [
        each if names[each.source] == 1 else each._replace(source=f"{each.source}:{each.port}")
        for each in found
    ]


def _endpoint(text: str, tables: Tables) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise BadEndpoint(f"scrape={text} is not [KIND:]PORT[/PATH], as in 9100 or 9400/metrics")
    kind, port, path = match["kind"], int(match["port"]), match["path"] or _PATH
    usual = kind or tables.at(port)
    try:
        fit = tables if kind is None else tables.of(kind)
    except KeyError:
        known = ", ".join(tables.by_name)
        raise BadEndpoint(f"scrape={text}: no exporter {kind}: one of {known}") from None
    period_s = tables.by_name[usual].period_s if usual is not None else 0.0
    return Endpoint(usual or f"port_{port}", port, path, fit, period_s)
