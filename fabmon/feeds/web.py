"""What all that is read over HTTP has in common: TLS as a hosts file asks for it, and reasons."""

from __future__ import annotations

import errno
import ipaddress
import ssl
from pathlib import Path

import aiohttp

from fabmon.feeds.errors import BadTrust, Misbehaved, NodeError, Unreachable

_CAUSES = {
    errno.ECONNREFUSED: ("connection refused by", "refused"),
    errno.ECONNRESET: ("connection reset by", "reset"),
    errno.ENETUNREACH: ("no route to", "no route"),
    errno.EHOSTUNREACH: ("no route to", "no route"),
    errno.ETIMEDOUT: ("no answer to the TCP connection from", "timeout"),
    errno.EMFILE: ("too many open files (raise ulimit -n) to reach", "files"),
}


def is_loopback(address: str) -> bool:
    """Whether an address cannot be reached from other machines; a name other than localhost can."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def trust(tls: str | None, address: str) -> ssl.SSLContext | None:
    """The TLS that a host's `tls` means, None for none. Blocks: it reads certificates.

    `no`: none. `yes`: the certificates that this machine trusts. `insecure`: anybody. Else a file
    of certificates to trust. Without a `tls`: none on this machine, `yes` beyond it. Raises
    BadTrust.
    """
    if tls == "no" or (tls is None and is_loopback(address)):
        return None
    if tls in (None, "yes"):
        return ssl.create_default_context()
    if tls == "insecure":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    file = Path(tls).expanduser()
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        why = "holds no certificate in PEM"
    except OSError as error:
        why = error.strerror or str(error)
    raise BadTrust(f"{file}: {why}; tls= is yes, no, insecure or a file with certificates")


def explain(error: Exception, where: str, timeout_s: float) -> NodeError:
    """What an error of aiohttp's client means, for the server at `where` (`address:port`).

    `timeout_s` is the time that there was, for its end. Another exception is raised as it is.
    """
    if isinstance(error, TimeoutError):
        return Unreachable(f"no answer from {where} in {timeout_s:g} s", "timeout")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        fix = "tls=FILE names the certificates to trust"
        return Unreachable(f"the certificate of {where} is not trusted: {why}; {fix}", "tls")
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return Unreachable(f"no TLS at {where}; tls=no goes without it", "tls")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(f"no address for {error.host}: {error.strerror}", "unknown name")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Unreachable(f"{where} hung up without an answer; does it want tls=yes?", "ended")
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.InvalidURL)):
        return Misbehaved(f"{where} does not answer in HTTP; does it want tls=yes?", "not http")
    if isinstance(error, aiohttp.ClientOSError):
        words, cause = _CAUSES.get(error.errno or 0, ("", "unreachable"))
        text = f"{words} {where}" if words else f"{where}: {error.strerror or error}"
        return Unreachable(text, cause)
    if isinstance(error, aiohttp.ClientError):
        return Unreachable(f"{where}: {error}", "unreachable")
    raise error
