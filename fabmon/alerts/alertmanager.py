"""Alerts for Prometheus Alertmanager, by its API v2.

Labels are the identity of an alert there; annotations may change. A severity that rises ends one
alert and begins another: routes and silences go by the label `severity`.

No state is kept between runs. An alert ends by itself `EXPIRES_RESENDS` resends after it was sent
last, and the same finding has the same labels in the next run: what is still there continues, what
has gone in the meantime is resolved.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from fabmon.alerts.alert import Alert
from fabmon.alerts.http_post import HttpPoster
from fabmon.alerts.settings import AlertmanagerReceiver
from fabmon.analysis.causes import lost_bandwidth
from fabmon.analysis.finding import Change
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wording import rounded_percent

EXPIRES_RESENDS = 5
"""Alertmanager resolves an alert that was not sent again for so many resend intervals: fabmon may
be restarted and find everything again in less."""

_MOST_CHARACTERS = 1000
_MOST_PORTS = 20


class AlertmanagerTransport:
    """Sends to one Alertmanager. `batch` is the largest number of alerts in a request."""

    batch = 200

    def __init__(
        self, receiver: AlertmanagerReceiver, cluster: str, link: str, resend_s: float
    ) -> None:
        self._url = f"{receiver.url.rstrip('/')}/api/v2/alerts"
        self._http = HttpPoster(receiver)
        self._cluster = cluster
        self._link = link
        self.resend_s: float | None = resend_s

    def identity(self, alert: Alert) -> str:
        """The finding and its severity, as the labels have them."""
        return f"{alert.severity}:{alert.id}"

    def is_news(self, sent: Alert, alert: Alert) -> bool:
        """Nothing is: what changes is sent with the next resend."""
        return False

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        """Send one request. Raises DeliveryError."""
        expires_ns = time.time_ns() + int(EXPIRES_RESENDS * (self.resend_s or 0) * 1e9)
        posted = [
            posted_alert(alert, self._cluster, self._link, expires_ns) for _, alert in changes
        ]
        await self._http.post(self._url, msgspec.json.encode(posted))

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()


def posted_alert(alert: Alert, cluster: str, link: str, expires_ns: int) -> dict[str, Any]:
    """An alert as the API takes it; an open one ends at `expires_ns`."""
    finding = alert.finding
    until_ns = expires_ns if alert.until_ns is None else alert.until_ns
    # Alertmanager refuses an alert that ends before it begins; a node's clock may be ahead.
    since_ns, lost = min(finding.since_ns, until_ns), lost_bandwidth(alert.shown)
    labels = {
        "alertname": f"fabmon_{alert.kind}",
        "cluster": cluster,
        "finding": alert.id,
        "node": alert.node,
        "port": alert.port,
        "severity": alert.severity,
    }
    annotations = {
        "summary": alert.summary,
        "description": alert.text,
        "cause": finding.cause,
        "advice": alert.shown.advice,
        "lost_bandwidth": rounded_percent(lost) if lost else "",
        "ports": ", ".join(alert.ports[:_MOST_PORTS]),
        "affected": ", ".join(alert.shown.victims[:_MOST_PORTS]),
        "not_observable": alert.shown.unseen,
        "jobs": ", ".join(alert.shown.jobs),
        "users": ", ".join(alert.users),
        "findings": str(len(alert.others)) if alert.others else "",
    }
    posted = {
        "labels": _bounded(labels),
        "annotations": _bounded(annotations),
        "startsAt": utc(since_ns),
        "endsAt": utc(until_ns),
    }
    if link:
        posted["generatorURL"] = f"{link}#{quote(alert.id, safe='')}"
    return posted


def _bounded(texts: dict[str, str]) -> dict[str, str]:
    """Texts without empty ones, which Alertmanager drops, none of them too long."""
    return {name: text[:_MOST_CHARACTERS] for name, text in texts.items() if text}
