"""Why a node cannot be watched.

NodeError
|-- Unreachable    no route, connection refused, or no answer in time
|-- HostKeyError   unknown or changed host key; the message has the command that accepts it
|-- LoginRefused   the node answered and rejected the login
|-- BadSecret      the file with the token or password cannot be used; the message says why
|-- BadTrust       the file with the certificates to trust cannot be used
|-- NoPython       no python3 >= 3.6 on the node
|-- Misbehaved     the data received does not follow the protocol
`-- Ended          the probe or the session ended; the message says how
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

from fabmon.fabric.wire.messages import clean

CHECKS = {
    "refused": "is {service} running, is the port right?",
    "reset": "is {service} on that port, does a firewall reset connections?",
    "no route": "is it up, is its address right?",
    "timeout": "is it up, does a firewall drop packets?",
    "files": "raise ulimit -n",
    "unknown name": "check the name, or set address= in the hosts file",
    "permission denied": "is our public key in its authorized_keys, is user= right?",
    "host key": "connect once with ssh, and accept its key there",
    "host key changed": "if that is expected, remove the old key with ssh-keygen -R",
    "connection lost": "did the node, its network or its sshd stop?",
    "no python": "set python= in the hosts file",
}
"""`cause` -> what to check; causes without a line have it in their messages."""

NO_CONNECTION = "no connection"
"""The `cause` of a connection that fails for a reason without a word of its own."""

_CONNECT_ERRORS = {
    errno.ECONNREFUSED: ("connection refused by", "refused"),
    errno.ECONNRESET: ("connection reset by", "reset"),
    errno.ENETUNREACH: ("no route to", "no route"),
    errno.EHOSTUNREACH: ("no route to", "no route"),
    errno.ENETDOWN: ("no route to", "no route"),
    errno.EHOSTDOWN: ("no route to", "no route"),
    errno.ETIMEDOUT: ("no answer to the TCP connection from", "timeout"),
    errno.EMFILE: ("too many open files to reach", "files"),
}
"""errno of a failed TCP connection -> the words before the address, and the `cause`."""


class NodeError(Exception):
    """An error of one node. `cause` groups equal failures; the message is for a person.

    `cause` is a short word (`refused`, `timeout`), as docs/hosts-file.md lists them; the default is
    that of the class. The message
    may quote data from a node: it is made printable and bounded here, so callers need not do it.
    """

    cause = "failed"

    def __init__(self, message: str, cause: str | None = None) -> None:
        super().__init__(clean(message))
        if cause is not None:
            self.cause = cause


class Unreachable(NodeError):
    """No route, connection refused, or no answer in time."""

    cause = NO_CONNECTION


class HostKeyError(NodeError):
    """The node's host key is unknown or has changed."""

    cause = "host key"


class LoginRefused(NodeError):
    """The node answered and rejected the login.

    `until_changed` waits until what the login was made with has changed; None if that is not
    watched. `forget` lets the next attempt be made although nothing has changed.
    """

    cause = "login refused"
    until_changed: Callable[[], Awaitable[None]] | None = None
    forget: Callable[[], object] | None = None


class BadSecret(NodeError):
    """The file with the node's token or password cannot be used."""

    cause = "secret"


class BadTrust(NodeError):
    """The file with the certificates to trust cannot be used."""

    cause = "tls"


class NoPython(NodeError):
    """The node has no Python that can run the probe."""

    cause = "no python"


class Misbehaved(NodeError):
    """The data that the node sent does not follow the protocol."""

    cause = "garbage"


class Ended(NodeError):
    """The session was up and ended."""

    cause = "ended"


def with_check(text: str, cause: str, service: str = "the server") -> str:
    """A message followed by what to check for its cause; `service` is what should answer."""
    check = CHECKS.get(cause)
    return text if check is None else f"{text.rstrip('.')}: {check.format(service=service)}"


def connect_error(error: OSError, where: str, service: str = "the server") -> Unreachable:
    """The error for a TCP connection to `where`, at which `service` should be."""
    words, cause = _CONNECT_ERRORS.get(error.errno or 0, ("", NO_CONNECTION))
    text = f"{words} {where}" if words else f"{where}: {error.strerror or error}"
    return Unreachable(with_check(text, cause, service), cause)
