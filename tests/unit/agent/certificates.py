"""A certificate for this machine, made by openssl as an administrator would."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.requirements import need_command


class Pair(NamedTuple):
    certificate: Path
    key: Path


def pair(directory: Path, name: str = "localhost") -> Pair:
    """A certificate that signs itself, for a name and for 127.0.0.1, and its key."""
    need_command("openssl", "openssl")
    made = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"),
            *("-out", str(made.certificate), "-keyout", str(made.key)),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    return made
