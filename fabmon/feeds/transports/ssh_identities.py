"""The keys that a login may offer, as in ssh: a file that cannot be used is skipped."""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import asyncssh
from asyncssh.config import SSHConfig

from fabmon.fabric.wording import file_error

_DEFAULT_KEYS = tuple(
    f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")
)
"""What ssh offers without IdentityFile, in its order."""
_BODY = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----\s([^-]*)-----END")
_MAGIC = b"openssh-key-v1\0"
_MAX_BYTES = 1 << 20
_TEXTS_BEFORE_KEY = 3
"""Cipher, key derivation and its options come before the public key in OpenSSH's format."""


class KeyFile(NamedTuple):
    """One file: `public` are the public keys it holds or belongs to, for which an agent may sign.

    `unusable` says why it cannot be offered itself, with what to do; empty if it can.
    """

    path: str
    public: tuple[bytes, ...] = ()
    unusable: str = ""


class Identities(NamedTuple):
    """The keys of a login: `files` can be offered, `others` are named or usual and cannot.

    `agent` is the socket of an agent, or None. It may sign for the keys in `agent_keys` only; None
    is all of its keys. `is_configured` says whether ssh_config names the files.
    """

    files: tuple[KeyFile, ...]
    others: tuple[KeyFile, ...]
    certificates: tuple[str, ...]
    agent: str | None
    agent_keys: tuple[bytes, ...] | None
    is_configured: bool

    def of_agent(self, held: Iterable[bytes]) -> int:
        """How many of the keys that an agent holds would be offered."""
        return sum(self.agent_keys is None or key in self.agent_keys for key in held)

    def ways_out(self, held: Sequence[bytes]) -> Iterator[str]:
        """Why each other file cannot be offered, and what to do; not those that the agent holds."""
        for key in self.others:
            if not any(public in held for public in key.public):
                yield key.unusable


class KeyFiles:
    """Reads key files, each again only when it has changed."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[object, KeyFile]] = {}

    def identities(self, config: SSHConfig) -> Identities:
        """The keys for a target whose ssh_config is read. Blocks: it reads files."""
        named = _texts(config.get("IdentityFile"))
        files = [name for name in named if name.lower() != "none"]
        usual = _DEFAULT_KEYS if config.get("IdentityFile") is None else ()
        keys = [self._read(name) for name in files or usual]
        if not files:
            # Of the usual files only those that exist are worth a word.
            keys = [key for key in keys if os.path.lexists(_expanded(key.path))]
        agent = _agent(config.get("IdentityAgent"))
        public = tuple(blob for key in keys for blob in key.public)
        only = bool(config.get("IdentitiesOnly"))
        return Identities(
            files=tuple(key for key in keys if not key.unusable),
            others=tuple(key for key in keys if key.unusable),
            certificates=tuple(filter(_is_certificate, _texts(config.get("CertificateFile")))),
            agent=agent if public or not only else None,
            agent_keys=public if only else None,
            is_configured=bool(files),
        )

    def _read(self, name: str) -> KeyFile:
        path = _expanded(name)
        stamps = tuple(stamp(each) for each in (path, f"{path}.pub"))
        cached = self._cache.get(name)
        if cached is None or cached[0] != stamps:
            cached = stamps, _read(name)
            self._cache[name] = cached
        return cached[1]


def _read(name: str) -> KeyFile:
    path = _expanded(name)
    try:
        beside = tuple(_public(_head(f"{path}.pub")))
    except OSError:
        beside = ()
    try:
        data = _head(path)
    except FileNotFoundError:
        held = " and no agent holds its key" if beside else ""
        return KeyFile(name, beside, f"{name} does not exist{held}: name a key file that exists")
    except OSError as error:
        return KeyFile(name, beside, f"{name}: {file_error(error)}")
    public = tuple(_public(data))
    if public:
        way = f"ssh-add {name.removesuffix('.pub')}"
        return KeyFile(name, public, f"{name} is a public key, and no agent holds its key: {way}")
    try:
        key = asyncssh.import_private_key(data)
    except asyncssh.KeyEncryptionError as error:
        return KeyFile(name, beside, f"{name}: {error}")
    except (asyncssh.KeyImportError, ValueError) as error:
        if not str(error).startswith("Passphrase"):
            return KeyFile(name, beside, f"{name} is no private key that can be read: {error}")
        why = f"{name} has a passphrase, and no agent holds it: {_add(name)}"
        return KeyFile(name, beside or tuple(_public_part(data)), why)
    return KeyFile(name, (key.public_data, *beside))


def _add(name: str) -> str:
    """The command that gives a key to an agent, and starts one where there is none."""
    if os.environ.get("SSH_AUTH_SOCK"):
        return f"ssh-add {name}"
    return f'eval "$(ssh-agent)"; ssh-add {name}; then start fabmon again in that shell'


def _public(data: bytes) -> Iterator[bytes]:
    """The public keys of a file of those, or of certificates."""
    for line in data.splitlines():
        for load in (asyncssh.import_certificate, asyncssh.import_public_key):
            try:
                yield load(line).public_data
            except (asyncssh.KeyImportError, ValueError):
                continue
            break


def _public_part(data: bytes) -> Iterator[bytes]:
    """The public key in a private key of OpenSSH's format, which a passphrase does not hide."""
    found = _BODY.search(data)
    if found is None:
        return
    try:
        packed = base64.b64decode(found[1])
    except ValueError:
        return
    if not packed.startswith(_MAGIC):
        return
    at, texts = len(_MAGIC), list[bytes]()
    while len(texts) <= _TEXTS_BEFORE_KEY:
        size = int.from_bytes(packed[at : at + 4], "big")
        texts.append(packed[at + 4 : at + 4 + size])
        # The number of keys, 4 bytes, is before the public key.
        at += 4 + size + (4 if len(texts) == _TEXTS_BEFORE_KEY else 0)
    yield texts[-1]


def _agent(configured: object) -> str | None:
    """The socket of the agent: as IdentityAgent says, else as the environment does."""
    name = str(configured) if configured else "SSH_AUTH_SOCK"
    if name.lower() == "none":
        return None
    if name == "SSH_AUTH_SOCK" or name.startswith("$"):
        return os.environ.get(name.removeprefix("$")) or None
    return _expanded(name)


def _is_certificate(name: str) -> bool:
    try:
        asyncssh.import_certificate(_head(_expanded(name)))
    except (OSError, ValueError):
        return False
    return True


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _expanded(name: str) -> str:
    return os.path.expanduser(name)  # noqa: PTH111


def _head(name: str) -> bytes:
    if not stat.S_ISREG(Path(name).stat().st_mode):  # A pipe would be waited for.
        raise OSError(errno.EINVAL, "not a file", name)
    with Path(name).open("rb") as file:
        return file.read(_MAX_BYTES)


def stamp(name: str) -> Hashable:
    """What changes when a file is written; None where there is none."""
    try:
        status = Path(name).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
