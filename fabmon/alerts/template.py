"""Bodies of webhooks: JSON documents in which `{name}` stands for a value of the alert.

Names are replaced after the document is parsed: no value can change its structure. A string that
is one name alone becomes the value with its type.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fabmon.alerts.alert import Alert
from fabmon.alerts.errors import SettingError
from fabmon.analysis.finding import CRITICAL, NOTE, WARNING, Change
from fabmon.malformed_json import MALFORMED

SLACK = "slack"
BUILT_IN = (SLACK, "teams", "ntfy", "pagerduty")
_NAME = re.compile(r"\{(\w+)\}")
_MOST_CHARACTERS = 1000
_COLORS = {CRITICAL: "#c62828", WARNING: "#ef6c00", NOTE: "#1565c0"}
_CLOSED_COLOR = "#2e7d32"
_PRIORITIES = {CRITICAL: 5, WARNING: 4, NOTE: 3}
_CLOSED_PRIORITY = 2

Value = str | int


def values(change: Change, alert: Alert, cluster: str, link: str) -> dict[str, Value]:
    """The values that a template may name, texts of bounded length.

    `action` is PagerDuty's word for the change, `level` its word for the severity, `priority`
    ntfy's, `color` Slack's.
    """
    is_closed = change is Change.CLOSE
    finding = alert.finding
    texts: dict[str, Value] = {
        "change": change.value,
        "action": "resolve" if is_closed else "trigger",
        "mark": "closed:" if is_closed else "▲",
        "id": alert.id,
        "cluster": cluster,
        "link": link,
        "severity": alert.severity,
        "level": "info" if alert.severity == NOTE else alert.severity,
        "color": _CLOSED_COLOR if is_closed else _COLORS.get(alert.severity, ""),
        "priority": _CLOSED_PRIORITY if is_closed else _PRIORITIES.get(alert.severity, 3),
        "cause": finding.cause,
        "subject": finding.subject,
        "node": alert.node,
        "port": alert.port,
        "summary": alert.summary,
        "text": alert.text,
        "advice": alert.shown.advice,
        "ports": ", ".join(alert.ports),
        "jobs": ", ".join(alert.shown.jobs),
        "users": ", ".join(alert.users),
    }
    return {
        name: text[:_MOST_CHARACTERS] if isinstance(text, str) else text
        for name, text in texts.items()
    }


def slack_values(known: Mapping[str, Value]) -> dict[str, Value]:
    """Values as Slack takes them: without escapes, `<!channel>` in a name notifies everybody."""
    return {
        name: html.escape(value, quote=False) if isinstance(value, str) else value
        for name, value in known.items()
    }


def filled(template: Any, known: Mapping[str, Value]) -> Any:
    """A template with the names replaced; those that are not known stay."""
    if isinstance(template, dict):
        return {key: filled(value, known) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, known) for value in template]
    if not isinstance(template, str):
        return template
    alone = _NAME.fullmatch(template)
    if alone is not None:
        return known.get(alone[1], template)
    return _NAME.sub(lambda name: str(known.get(name[1], name[0])), template)


def load_template(name: str) -> Any:
    """A built-in template by its name, else that of a file. Blocks. Raises SettingError."""
    is_own = name not in BUILT_IN
    path = Path(name).expanduser() if is_own else Path(__file__).parent / f"templates/{name}.json"
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        known = ", ".join(BUILT_IN)
        why = f"{error.strerror}; write the path of a file, or one of {known}"
        raise SettingError(("template",), f"template {name}: {why}") from None
    except MALFORMED as error:
        raise SettingError(("template",), f"template {name}: {error}") from None


def names(template: Any) -> Iterator[str]:
    """All names in a template."""
    if isinstance(template, (dict, list)):
        for value in template.values() if isinstance(template, dict) else template:
            yield from names(value)
    elif isinstance(template, str):
        yield from _NAME.findall(template)
