"""Where an engine is and how it is asked: its URL, who we are, whom we trust.

Passwords and tokens are in files that nobody else can read: a command line is seen by everybody.
"""

from __future__ import annotations

import base64
import ssl
from urllib.parse import urlsplit, urlunsplit

import msgspec

from fabmon.fabric.messages import clean
from fabmon.feeds.errors import NodeError
from fabmon.feeds.prometheus.errors import EngineError
from fabmon.feeds.secrets import token_from

_API = "/api/v1"


class BadAccess(EngineError):
    """A URL, a file or an option cannot be used; the message says which, and what to do."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an engine.

    `url` is what comes before `/api/v1`, a path prefix included. `token_file` holds a bearer token,
    `password_file` a line `user:password`; at most one of them. `ca_file` are certificates to
    trust instead of the system's; `insecure` trusts any. `tenant` is sent as `X-Scope-OrgID`.
    """

    url: str
    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    tenant: str | None = None


def base_url(text: str) -> str:
    """The URL before `/api/v1`, without a slash at its end. Raises BadAccess."""
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        raise BadAccess(f"{text}: the port of a URL is 1 to 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadAccess(f"{text}: write the engine's URL, as in http://prometheus:9090")
    if parts.username is not None or parts.password is not None:
        raise BadAccess(
            f"{parts.hostname}: a password in a URL is seen by everybody on this machine: write "
            "user:password into a file of yours, and name it as password_file under [prometheus]"
        )
    if parts.query or parts.fragment:
        raise BadAccess(f"{text}: write the URL without what follows its path")
    path = parts.path.partition(_API)[0].rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def headers(access: Access) -> dict[str, str]:
    """Who we are. Blocks: it reads files. Raises BadAccess."""
    if access.token_file and access.password_file:
        raise BadAccess("a token or a password, not both: leave token_file or password_file out")
    said = {}
    try:
        if access.token_file:
            said["Authorization"] = f"Bearer {token_from(access.token_file)}"
        if access.password_file:
            pair = token_from(access.password_file)
            if ":" not in pair:
                raise BadAccess(f"{access.password_file}: write user:password into it")
            said["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    except NodeError as error:
        raise BadAccess(str(error)) from None
    if access.tenant:
        if not (access.tenant.isascii() and access.tenant.isprintable()):
            raise BadAccess(f"tenant {clean(access.tenant)!r}: printable ASCII only")
        said["X-Scope-OrgID"] = access.tenant
    return said


def trust(access: Access) -> ssl.SSLContext | bool:
    """Whose certificates are taken: an aiohttp `ssl` argument. Blocks. Raises BadAccess."""
    if access.insecure:
        return False
    if access.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or "no certificates in it"
        raise BadAccess(f"{access.ca_file}: {why}") from None
