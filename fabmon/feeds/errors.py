"""Why a node cannot be watched.

NodeError
|-- Unreachable    no route, refused, or no answer in time
|-- HostKeyError   unknown or changed host key; the message has the command that mends it
|-- LoginRefused   the node answered and does not let us in
|-- BadSecret      the file with its token or password cannot be used; the message says why
|-- BadTrust       the file with the certificates to trust cannot be used
|-- NoPython       no python3 >= 3.9 on the node
|-- Misbehaved     what it sent is not the wire
`-- Ended          the probe or the session ended; the message says how
"""

from __future__ import annotations

from fabmon.fabric.wire.messages import clean


class NodeError(Exception):
    """One node's trouble. `cause` groups equal failures; the message is for a person.

    `cause` is a short word (`refused`, `timeout`); without it, the class's own. The message may
    quote what a node sent: it is made printable and bounded here, so no caller has to.
    """

    cause = "failed"

    def __init__(self, message: str, cause: str | None = None) -> None:
        super().__init__(clean(message))
        if cause is not None:
            self.cause = cause


class Unreachable(NodeError):
    """No route, connection refused, or no answer in time."""

    cause = "unreachable"


class HostKeyError(NodeError):
    """The node's key is unknown or has changed."""

    cause = "host key"


class LoginRefused(NodeError):
    """The node answered and does not let us in."""

    cause = "login refused"


class BadSecret(NodeError):
    """The file with the node's token or password cannot be used."""

    cause = "secret"


class BadTrust(NodeError):
    """The file with the certificates to trust cannot be used."""

    cause = "tls"


class NoPython(NodeError):
    """There is no usable Python on the node."""

    cause = "no python"


class Misbehaved(NodeError):
    """What the node sent is not the wire."""

    cause = "garbage"


class Ended(NodeError):
    """The session was up and ended."""

    cause = "ended"
