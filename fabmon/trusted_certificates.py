"""TLS that trusts the certificates of a file instead of those of this machine."""

from __future__ import annotations

import errno
import ssl
from pathlib import Path

from fabmon.fabric.input_files import read_input

_MOST_BYTES = 16 << 20


def read_certificates(file: str | Path) -> bytes:
    """The certificates in a file or pipe, PEM; `~` is expanded. Blocks.

    Raises OSError, also where there is none in it.
    """
    path = Path(file).expanduser()
    pem = read_input(path, _MOST_BYTES)
    try:
        if b"-----BEGIN" in pem:  # Without any text, Python trusts those of this machine.
            _context(pem)
            return pem
    except ssl.SSLError:
        pass
    raise OSError(errno.EINVAL, "the file has no PEM certificate", str(path))


def context_trusting(file: str | Path) -> ssl.SSLContext:
    """The TLS context of a client that trusts the certificates in a file. Raises OSError."""
    return _context(read_certificates(file))


def _context(pem: bytes) -> ssl.SSLContext:
    # Comments in a file may be of any character set.
    return ssl.create_default_context(cadata=pem.decode("ascii", "ignore"))
