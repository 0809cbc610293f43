"""What can be wrong with the way an agent is started.

AgentError      an option, a file or the place to listen; the message says what and what to do
"""

from __future__ import annotations

import errno
import ssl
from pathlib import Path
from typing import NamedTuple

from fabmon.fabric.names import is_loopback
from fabmon.feeds.access import DEFAULT_AGENT_PORT


class AgentError(Exception):
    """The agent cannot start as it was asked to."""


# Where an agent listens, and how: an address, and TLS beyond this machine.


class ListenAddress(NamedTuple):
    """An address (or name) and a TCP port, 0 for any that is free."""

    address: str = "127.0.0.1"
    port: int = DEFAULT_AGENT_PORT

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """`ADDR:PORT`, an IPv6 address in brackets. Raises AgentError."""
    address, colon, port = text.rpartition(":")
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    is_bare_v6 = bare == address and ":" in address
    if not colon or not bare or is_bare_v6 or not port.isdecimal() or int(port[:6]) > 65535:
        raise AgentError(
            f"--listen {text!r}: write ADDR:PORT, as in 127.0.0.1:{DEFAULT_AGENT_PORT} or "
            f"[::1]:{DEFAULT_AGENT_PORT}"
        )
    return ListenAddress(bare, int(port))


def tls_context(
    place: ListenAddress, certificate: Path | None, key: Path | None, *, is_insecure: bool
) -> ssl.SSLContext | None:
    """The TLS to listen with; None for none, which beyond this machine has to be wished for.

    Raises AgentError, also for files that cannot be used. Blocks: it reads them.
    """
    if certificate is None and key is None:
        if is_loopback(place.address) or is_insecure:
            return None
        raise AgentError(
            f"{place} can be reached from other machines, and without TLS they can read the token "
            "on its way: give --tls-cert and --tls-key (or --insecure, if nobody else is there)"
        )
    if certificate is None or key is None:
        missing = "--tls-cert" if certificate is None else "--tls-key"
        raise AgentError(f"TLS takes a certificate and its key: {missing} is missing")
    for file in (certificate, key):
        try:
            file.open("rb").close()
        except OSError as error:
            raise AgentError(f"{file}: {error.strerror}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a passphrase is refused: there is nobody to ask.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        why = (error.reason or str(error)).replace("_", " ").lower()
        raise AgentError(
            f"{certificate}, {key}: not a certificate and its key in PEM ({why})"
        ) from None
    return context


def explain_bind_error(error: OSError, place: ListenAddress) -> AgentError:
    """Why nothing can listen there, and what to do."""
    reasons = {
        errno.EADDRINUSE: "is taken (by another agent?): --listen ADDR:PORT takes another",
        errno.EADDRNOTAVAIL: "is not an address of this machine",
        errno.EACCES: "is not for this user: take a port above 1023",
    }
    what = reasons.get(error.errno or 0, f"cannot be listened on: {error.strerror or error}")
    return AgentError(f"{place} {what}")
