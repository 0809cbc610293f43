"""The system's log as a receiver: journald by its native protocol, or syslog.

journald: systemd.io, "Native Journal Protocol". Syslog: RFC 5424 over UDP (RFC 5426) to a host, and
the older format of syslog(3) on a local socket, which is what its listeners parse.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fabmon.alerts.alert import Alert
from fabmon.alerts.notifier import Notifier
from fabmon.alerts.settings import DeliveryError, JournaldReceiver, SyslogReceiver, udp_address
from fabmon.analysis.finding import Change
from fabmon.fabric.wire.messages import printable

_NAME = "fabmon"
_SEND_S = 5.0
_MOST_TEXT = 1000
_MOST_UDP = 2048
"""Bytes of a datagram that every receiver of syslog should take (RFC 5426, 3.2)."""
_LEVELS = {"critical": 2, "warning": 4, "note": 5}
_INFO = 6
_FACILITIES = {"user": 1, "daemon": 3, **{f"local{n}": 16 + n for n in range(8)}}
"""RFC 5424, 6.2.1."""
_STRUCTURE = "fabmon@32473"
"""The number of documentation (RFC 5612): fabmon has none of its own."""


def _level(change: Change, alert: Alert) -> int:
    """Severity as in syslog; a close is information."""
    return _INFO if change is Change.CLOSE else _LEVELS.get(alert.severity, _INFO)


def _message(change: Change, alert: Alert) -> str:
    """An alert in one line."""
    text = f"{change.value} {alert.severity} {alert.summary}: {alert.text}"
    return printable(text[:_MOST_TEXT])


def _facts(change: Change, alert: Alert, cluster: str) -> Mapping[str, str]:
    """What a search is made by."""
    facts = {
        "change": change.value,
        "id": alert.id,
        "cluster": cluster,
        "cause": alert.finding.cause,
        "severity": alert.severity,
        "subject": alert.finding.subject,
        "node": alert.node,
        "port": alert.port,
    }
    return {name: printable(value[:_MOST_TEXT]) for name, value in facts.items() if value}


class JournaldTransport(Notifier):
    """Sends each change of an alert to journald, with its facts as fields `FABMON_*`."""

    def __init__(self, receiver: JournaldReceiver, cluster: str) -> None:
        self._path = receiver.socket
        self._cluster = cluster

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        """Send one change. Raises DeliveryError."""
        for change, alert in changes:
            fields = {
                "MESSAGE": _message(change, alert),
                "PRIORITY": str(_level(change, alert)),
                "SYSLOG_IDENTIFIER": _NAME,
                "SYSLOG_FACILITY": str(_FACILITIES["daemon"]),
            }
            for name, value in _facts(change, alert, self._cluster).items():
                fields[f"FABMON_{name.upper()}"] = value
            # No value has a newline, so that the simple form of a field is enough.
            body = "".join(f"{name}={value}\n" for name, value in fields.items())
            await _send_local(self._path, body.encode())

    async def close(self) -> None:
        """Nothing is open between two messages."""


class SyslogTransport(Notifier):
    """Sends each change of an alert to a local socket, or as a datagram to a host."""

    def __init__(self, receiver: SyslogReceiver, cluster: str) -> None:
        self._receiver = receiver
        self._cluster = cluster
        self._host = printable(socket.gethostname())

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        """Send one change. Raises DeliveryError."""
        facility = _FACILITIES[self._receiver.facility]
        remote = udp_address(self._receiver.address)
        for change, alert in changes:
            priority = facility * 8 + _level(change, alert)
            if remote is None:
                body = _local_line(priority, _message(change, alert))
                await _send_local(self._receiver.address, body)
            else:
                facts = _facts(change, alert, self._cluster)
                body = self._line(priority, facts, _message(change, alert))
                await _send_udp(remote, body)

    async def close(self) -> None:
        """Nothing is open between two messages."""

    def _line(self, priority: int, facts: Mapping[str, str], message: str) -> bytes:
        """A message as RFC 5424 has it; its end is cut where it is too long."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = " ".join(f'{name}="{_escaped(value)}"' for name, value in facts.items())
        head = (
            f"<{priority}>1 {at} {self._host or '-'} {_NAME} {os.getpid()} alert"
            f" [{_STRUCTURE} {values}] "
        )
        return f"{head}{message}".encode()[:_MOST_UDP].decode("utf-8", "ignore").encode()


def _escaped(value: str) -> str:
    """A value of structured data (RFC 5424, 6.3.3), of which long ones are cut."""
    text = value[:200]
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _local_line(priority: int, message: str) -> bytes:
    """A message as syslog(3) writes it; the time is local."""
    now = datetime.now()  # noqa: DTZ005
    at = f"{now:%b} {now.day:2d} {now:%H:%M:%S}"
    return f"<{priority}>{at} {_NAME}[{os.getpid()}]: {message}".encode()


async def _send_local(path: str, body: bytes) -> None:
    """Send to a datagram socket of this machine. Raises DeliveryError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
        local.setblocking(False)
        try:
            local.connect(path)
            async with asyncio.timeout(_SEND_S):
                # A full queue makes this wait, as while the log's daemon is restarted.
                await asyncio.get_running_loop().sock_sendall(local, body)
        except TimeoutError:
            raise DeliveryError(f"{path}: not accepted in {_SEND_S:.0f} s") from None
        except OSError as error:
            raise DeliveryError(f"{path}: {error.strerror or error}") from None


async def _send_udp(address: tuple[str, int], body: bytes) -> None:
    """Send a datagram: whether it arrives is not known. Raises DeliveryError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_SEND_S):
            found = await loop.getaddrinfo(*address, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, where = found[0]
            with socket.socket(family, kind, protocol) as remote:
                remote.setblocking(False)
                await loop.sock_sendto(remote, body, where)
    except TimeoutError:
        raise DeliveryError(f"not sent in {_SEND_S:.0f} s") from None
    except OSError as error:
        raise DeliveryError(error.strerror or type(error).__name__) from None
