"""Webhooks and commands: receivers that are sent each change of an alert once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from fabmon.alerts.alert import Alert
from fabmon.alerts.http_post import HttpPoster, read_secret
from fabmon.alerts.settings import DeliveryError, ExecReceiver, SettingError, WebhookReceiver
from fabmon.analysis.finding import CRITICAL, NOTE, WARNING, Change, Finding
from fabmon.child_process import ChildProcess
from fabmon.fabric.input_files import read_input
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wire.messages import clean
from fabmon.malformed_json import MALFORMED
from fabmon.report.json_records import FindingRecord, finding_record
from fabmon.report.output import json_schema

SLACK = "slack"
BUILT_IN = (SLACK, "teams", "ntfy", "pagerduty")
_NAME = re.compile(r"\{(\w+)\}")
_MOST_CHARACTERS = 1000
_MOST_BYTES = 1 << 20
_MOST_OTHERS = 256
"""Of 16,000 findings of hostile nodes: receivers refuse a body of megabytes."""
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
    """A built-in template by its name, else that of a file: JSON in which `{name}` is replaced
    after it is parsed, so that no value can change its structure. Blocks. Raises SettingError."""
    is_own = name not in BUILT_IN
    path = Path(name).expanduser() if is_own else Path(__file__).parent / f"templates/{name}.json"
    try:
        return msgspec.json.decode(read_input(path, _MOST_BYTES))
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


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="alert"):
    """A change of an alert; docs/alerts.schema.json is generated from this.

    `id` is the same from open to close, and after a restart of fabmon. `change` is `open`, `update`
    (cause or severity changed) or `close`. `findings` is how many findings the alert stands for;
    `finding` is it, or the oldest of them, and `others` are the subjects of a group, 256 at most.
    `node` and `port` are null where the subject is neither.
    """

    time: datetime
    change: Change
    cluster: str
    id: str
    severity: str
    node: str | None
    port: str | None
    findings: int
    others: list[str]
    finding: FindingRecord


def alert_record(change: Change, alert: Alert, cluster: str) -> AlertRecord:
    """A change of an alert as a record."""
    now_ns = time.time_ns()
    return AlertRecord(
        time=utc(now_ns),
        change=change,
        cluster=cluster,
        id=alert.id,
        severity=alert.severity,
        node=alert.node or None,
        port=alert.port or None,
        findings=max(1, len(alert.others)),
        others=list(alert.others[:_MOST_OTHERS]),
        finding=finding_record(change, alert.known, list(alert.ports), now_ns),
    )


def schema() -> bytes:
    """JSON Schema of the body of a webhook without a template, as committed."""
    return json_schema(AlertRecord)


_MOST_STDERR = 4096
_AFTER_EXIT_S = 1.0


class Notifier:
    """What both have in common: one change a message, an alert keeps its name."""

    batch = 1
    resend_s: float | None = None

    def identity(self, alert: Alert) -> str:
        """The id, whatever the severity is."""
        return alert.id

    def is_news(self, sent: Alert, alert: Alert) -> bool:
        """Another severity or cause."""
        before = (sent.severity, sent.finding.cause)
        return before != (alert.severity, alert.finding.cause)


class WebhookTransport(Notifier):
    """Posts a change as an AlertRecord, or as the template of the receiver has it."""

    def __init__(self, receiver: WebhookReceiver, cluster: str, link: str) -> None:
        """Reads the template. Raises SettingError."""
        self._receiver = receiver
        self._http = HttpPoster(receiver)
        self._cluster = cluster
        self._link = link
        self._template = load_template(receiver.template) if receiver.template else None
        self._check_names()

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        """Post one change. Raises DeliveryError."""
        for change, alert in changes:
            url, key, secret = await self._http.read(self._secrets)
            body = msgspec.json.encode(self._body(change, alert, key))
            signed = signature(body, secret) if secret else None
            await self._http.post(url, body, signed, (key, secret))

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()

    def _body(self, change: Change, alert: Alert, key: str) -> object:
        if self._template is None:
            return alert_record(change, alert, self._cluster)
        known = values(change, alert, self._cluster, self._link)
        if self._receiver.template == SLACK:
            known = slack_values(known)
        return filled(self._template, {**known, **self._receiver.fields, "key": key})

    def _secrets(self) -> tuple[str, str, str]:
        """The URL, the key of templates and the secret of the signature; empty without a file."""
        given = self._receiver
        url = given.url or read_secret(given.url_file or "")
        key = read_secret(given.key_file) if given.key_file else ""
        return url, key, read_secret(given.secret_file) if given.secret_file else ""

    def _check_names(self) -> None:
        blank = Alert(id="", kind="", severity="", finding=_NO_FINDING)
        known = {*values(Change.OPEN, blank, "", ""), *self._receiver.fields}
        known |= {"key"} if self._receiver.key_file else set()
        unknown = sorted({*names(self._template)} - known)
        if "key" in unknown:
            raise SettingError(("key_file",), "the template needs key_file")
        if unknown:
            raise SettingError(
                ("template",), f"the template needs {', '.join(unknown)}: set them in fields"
            )


class ExecTransport(Notifier):
    """Runs a command for each change, with an AlertRecord on standard input; never a shell."""

    def __init__(self, receiver: ExecReceiver, cluster: str) -> None:
        self._receiver = receiver
        self._cluster = cluster

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        """Run the command for one change. Raises DeliveryError unless it exits with 0."""
        for change, alert in changes:
            await self._run(msgspec.json.encode(alert_record(change, alert, self._cluster)))

    async def close(self) -> None:
        """Nothing is open between two commands."""

    async def _run(self, body: bytes) -> None:
        limit_s = self._receiver.timeout_s
        command = _Command()
        try:
            # A group of its own: what it starts ends with it, and ctrl+c does not reach it.
            await command.start(
                *self._receiver.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
        except OSError as error:
            name = self._receiver.command[0]
            raise DeliveryError(f"{name}: {error.strerror or error}") from None
        try:
            async with asyncio.timeout(limit_s):
                command.write(body)
                await command.wait()
                # What has left the group may keep standard error open.
                await command.wait_for_output(_AFTER_EXIT_S)
        except TimeoutError:
            raise DeliveryError(f"the command took more than {limit_s:g} s") from None
        finally:
            await command.end()
        if command.status != 0:
            raise DeliveryError(f"the command exited with {command.status} {command.said}".rstrip())


class _Command(ChildProcess):
    """A command that reads one message, and the first line of what it writes to standard error."""

    def __init__(self) -> None:
        super().__init__()
        self._stderr = b""

    @property
    def said(self) -> str:
        return clean((self._stderr.decode(errors="replace").splitlines() or [""])[0])

    def write(self, body: bytes) -> None:
        """Write the input and its end. A command need not read it."""
        pipe = cast(asyncio.WriteTransport, self.pipe(0))
        pipe.write(body)
        pipe.write_eof()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._stderr = (self._stderr + data)[:_MOST_STDERR]


def signature(body: bytes, secret: str, time_s: int | None = None) -> Mapping[str, str]:
    """Headers with the time and HMAC-SHA256 of `time.body`, so that no message can be replayed."""
    stamp = str(int(time.time()) if time_s is None else time_s)
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Fabmon-Timestamp": stamp, "X-Fabmon-Signature": f"sha256={digest}"}


_NO_FINDING = Finding(
    cause="",
    severity="",
    subject="",
    rows=(),
    text="",
    evidence=(),
    advice="",
    confidence=0.0,
    since_ns=0,
)
