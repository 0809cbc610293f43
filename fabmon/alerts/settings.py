"""The table [alerts] of fabmon.toml."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, time, tzinfo
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from fabmon.secret_files import SecretError, check_encrypted

ALERTS_LOG = "fabmon.alerts"
"""The logger of receivers that are lost and found again."""


class AlertsError(Exception):
    """Any error of alerts: a SettingError, or a DeliveryError."""


class SettingError(AlertsError):
    """A value of the table [alerts] cannot be used; `keys` is its path in fabmon.toml."""

    def __init__(self, keys: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class DeliveryError(AlertsError):
    """A receiver could not be reached, or refused what was sent.

    The message has no address: that of a webhook is often its password. `is_refusal`: the receiver
    answered that it does not take this message, whenever it is sent.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)(?:\s+(\S+))?")


class QuietHours(msgspec.Struct, frozen=True):
    """From a time of day up to another one, in a zone (None: this machine's). Over midnight where
    the second is earlier; the whole day where both are equal."""

    begin: time
    end: time
    zone: tzinfo | None = None

    def has(self, time_ns: int) -> bool:
        """Whether a time is in them."""
        at = datetime.fromtimestamp(time_ns / 1e9, UTC).astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end


def parse_quiet_hours(text: str) -> QuietHours | None:
    """`22:00-07:00` or `22:00-07:00 Europe/Berlin`; None without hours. Raises ValueError."""
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise ValueError("write hours such as 22:00-07:00, with a zone or without")
    try:
        zone = (
            None if found[5] is None else UTC if found[5] == "UTC" else zoneinfo.ZoneInfo(found[5])
        )
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {found[5]}: write one such as Europe/Berlin"
        ) from None
    begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    return QuietHours(begin, end, zone)


Severity = Annotated[
    Literal["note", "warning", "critical"],
    msgspec.Meta(description="note, warning or critical, in quotes"),
]
OpenFor = Annotated[float, msgspec.Meta(ge=0, le=86_400, description="0 to 86400 seconds")]
Resend = Annotated[float, msgspec.Meta(ge=1, le=3600, description="1 to 3600 seconds")]
GroupAbove = Annotated[int, msgspec.Meta(ge=1, le=1000, description="1 to 1000 alerts")]
PerMinute = Annotated[int, msgspec.Meta(ge=1, le=6000, description="1 to 6000 messages")]


class BaseReceiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all receivers have in common. None: as in [alerts]."""

    min_severity: Severity | None = None
    causes: tuple[str, ...] | None = None
    jobs: tuple[str, ...] | None = None
    users: tuple[str, ...] | None = None
    quiet_hours: str | None = None
    quiet_min_severity: Severity | None = None


class HttpReceiver(BaseReceiver, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What receivers over HTTP have in common.

    `token_file` has a bearer token, `password_file` a line `user:password`; both are read for every
    message, so that they may be replaced. `ca_file` has certificates to trust instead of those of
    the system; `insecure` accepts any, and allows secrets over http.
    """

    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False

    @property
    def has_secret(self) -> bool:
        """Whether a message, or its address, has a secret."""
        return bool(self.token_file or self.password_file)


class AlertmanagerReceiver(
    HttpReceiver, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="alertmanager"
):
    """A Prometheus Alertmanager; `url` is without /api/v2/alerts."""

    url: str


class WebhookReceiver(
    HttpReceiver, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="webhook"
):
    """An address that is posted every change of an alert.

    `url_file` has the address where it is a secret. `secret_file` has the key of the signature.
    `template` is the name of a built-in body or a file; `fields` and the line of `key_file`, as
    `{key}`, are further values of it.
    """

    url: str = ""
    url_file: str | None = None
    secret_file: str | None = None
    template: str | None = None
    key_file: str | None = None
    fields: dict[str, str] = {}

    @property
    def has_secret(self) -> bool:
        """Whether a message, or its address, has a secret."""
        return bool(super().has_secret or self.url_file or self.key_file)


class ExecReceiver(BaseReceiver, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="exec"):
    """A command that is run for every change of an alert, as a list of its words."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, description="a list of words")]
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=600, description="0.1 to 600 seconds")] = (
        10.0
    )


class JournaldReceiver(
    BaseReceiver, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="journald"
):
    """The journal of this machine, by the path of its socket."""

    socket: str = "/run/systemd/journal/socket"


Facility = Annotated[
    Literal[
        "user",
        "daemon",
        "local0",
        "local1",
        "local2",
        "local3",
        "local4",
        "local5",
        "local6",
        "local7",
    ],
    msgspec.Meta(description="a facility: daemon, user or local0 to local7, in quotes"),
]


class SyslogReceiver(
    BaseReceiver, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="syslog"
):
    """Syslog: `address` is the path of a socket of this machine, or HOST:PORT for UDP."""

    address: str = "/dev/log"
    facility: Facility = "daemon"


def udp_address(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`; None for the path of a socket. Raises ValueError."""
    if text.startswith("/"):
        return None
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path or parts.username or not parts.port:
        raise ValueError(text)
    return parts.hostname, parts.port


Receiver = AlertmanagerReceiver | WebhookReceiver | ExecReceiver | JournaldReceiver | SyslogReceiver


class AlertsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [alerts]; config/fabmon.example.toml explains every key."""

    cluster: str = ""
    link: str = ""
    min_severity: Severity = "warning"
    causes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    open_for_s: OpenFor = 0.0
    keep_open_s: OpenFor = 300.0
    quiet_hours: str = ""
    quiet_min_severity: Severity = "critical"
    group_above: GroupAbove = 20
    max_per_minute: PerMinute = 60
    resend_s: Resend = 60.0
    receivers: dict[str, Receiver] = {}


def receivers_text(config: AlertsConfig) -> str:
    """`alerts to am (alertmanager at am:9093), log (journald)`: the receivers by name, with the
    host of a URL, never the rest of it, which may be a secret."""
    if not config.receivers:
        return "no receiver in [alerts]: findings are only printed"
    named = []
    for name, receiver in config.receivers.items():
        kind = str(receiver.__struct_config__.tag)
        url = receiver.url if isinstance(receiver, AlertmanagerReceiver | WebhookReceiver) else ""
        where = urlsplit(url).netloc
        named.append(f"{name} ({kind} at {where})" if where else f"{name} ({kind})")
    return f"alerts to {', '.join(named)}"


def check(config: AlertsConfig, causes: Collection[str]) -> None:
    """Raise SettingError for a cause that is none of `causes`, or a URL that cannot be used."""
    _check_causes(config.causes, ("causes",), causes)
    _check_quiet_hours(config.quiet_hours, ("quiet_hours",))
    if config.link:
        _check_url(config.link, ("link",))
    for name, receiver in config.receivers.items():
        place = ("receivers", name)
        _check_causes(receiver.causes or (), (*place, "causes"), causes)
        _check_quiet_hours(receiver.quiet_hours or "", (*place, "quiet_hours"))
        if isinstance(receiver, SyslogReceiver):
            _check_syslog(receiver.address, (*place, "address"))
        if not isinstance(receiver, HttpReceiver):
            continue
        if isinstance(receiver, WebhookReceiver) and bool(receiver.url) == bool(receiver.url_file):
            raise SettingError(place, f"receiver {name}: write url or url_file")
        if receiver.url:
            _check_url(receiver.url, (*place, "url"))
        if receiver.url and receiver.has_secret:
            try:
                check_encrypted(receiver.url, is_insecure=receiver.insecure)
            except SecretError as error:
                raise SettingError((*place, "url"), str(error)) from None
        if receiver.token_file and receiver.password_file:
            raise SettingError(
                (*place, "token_file"), "token_file and password_file: at most one of them"
            )


def _check_causes(named: Collection[str], keys: tuple[str, ...], causes: Collection[str]) -> None:
    for name in named:
        if name not in causes:
            near = difflib.get_close_matches(name, causes, n=1)
            known = f"the causes are {', '.join(sorted(causes))}"
            hint = f"did you mean {near[0]}?" if near else known
            raise SettingError(keys, f"there is no cause {name!r}: {hint}")


def _check_quiet_hours(text: str, keys: tuple[str, ...]) -> None:
    try:
        parse_quiet_hours(text)
    except ValueError as error:
        raise SettingError(keys, str(error)) from None


def _check_syslog(address: str, keys: tuple[str, ...]) -> None:
    try:
        udp_address(address)
    except ValueError:
        raise SettingError(
            keys, "write the path of a socket, or HOST:PORT, as in loghost:514"
        ) from None


def _check_url(url: str, keys: tuple[str, ...]) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        # Raises ValueError where the port is no number.
        _ = parts.port
    except ValueError:
        is_usable = False
    if not is_usable:
        raise SettingError(keys, "write a URL that begins with http:// or https://")
    if parts.username or parts.password:
        raise SettingError(keys, "credentials do not belong in a URL: use password_file")
