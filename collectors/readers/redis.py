"""Redis: a client for its protocol that only reads, and the command `redis-cli` in its place.

https://redis.io/docs/latest/develop/reference/protocol-spec/ (RESP2). Commands are sent together as
arrays of bulk strings; replies arrive in order and are `bytes`, `int`, `None`, lists of these, or a
`RedisError` in the place of the reply that a command would have had.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from typing import Any, List, Sequence, Tuple, Union

from collectors.source import Denied

_RECEIVE_BYTES = 262144
_MAX_REPLY_BYTES = 64 * 1024 * 1024
_MAX_VALUES = 1 << 20
"""In all replies to one call; of a large switch 100,000 are asked for."""
_MAX_BULK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
_MAX_DIGITS = 20
_MAX_ANSWER_S = 10.0
"""What listens there may be no Redis, and may send without end, or a byte now and then."""

REFUSALS = ("NOAUTH", "NOPERM", "WRONGPASS")
"""First words of the errors with which Redis refuses a client."""

Address = Union[str, Tuple[str, int]]
"""The path of a unix socket, or a host and a port."""

Command = Sequence[str]


class RedisError(Exception):
    """The error that Redis sent instead of a reply, as in `NOAUTH Authentication required.`"""


class BadReply(OSError):
    """The reply is not Redis' protocol, or the connection ended within it."""


class Redis:
    """One connection. Raises OSError when it cannot be opened.

    No call waits longer than `timeout_s` for the next bytes, nor 10 s in all.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.name = f"Redis at {address if isinstance(address, str) else '%s:%d' % address}"
        self._buffer = b""
        self._at = 0
        self._received = self._values = 0
        self._until_s = 0.0
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise

    def ask(self, commands: Sequence[Command]) -> List[Any]:
        """The replies of all commands, sent together. Raises OSError when the connection fails."""
        if not commands:
            return []
        self._buffer, self._at = b"", 0
        self._received = self._values = 0
        self._until_s = time.monotonic() + _MAX_ANSWER_S
        self._socket.sendall(b"".join([encode_command(command) for command in commands]))
        return [self._reply() for _ in commands]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _reply(self, is_item: bool = False) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise BadReply(f"more than {_MAX_VALUES} values")
        end = self._line()
        kind, text = self._buffer[self._at : self._at + 1], self._buffer[self._at + 1 : end]
        self._at = end + 2
        try:
            if kind == b"$":
                return self._bulk(_number(text))
            # What is asked for here has no lists in a list.
            if kind == b"*" and not is_item:
                count = _number(text)
                return None if count < 0 else [self._reply(True) for _ in range(count)]
            if kind == b":":
                return _number(text)
        except ValueError:
            raise BadReply(f"not a reply of Redis: {text[:40]!r}") from None
        if kind == b"+":
            return text
        if kind == b"-":
            return RedisError(text.decode("utf-8", "replace"))
        raise BadReply(f"not a reply of Redis: {kind + text[:40]!r}")

    def _bulk(self, length: int) -> Any:
        if length < 0:
            return None
        if length > _MAX_BULK_BYTES:
            raise BadReply(f"a value of {length} bytes")
        while len(self._buffer) < self._at + length + 2:
            self._more()
        end = self._at + length
        found = self._buffer[self._at : end]
        self._at = end + 2
        return found

    def _line(self) -> int:
        """The end of the line that begins at the current position."""
        while True:
            end = self._buffer.find(b"\r\n", self._at, self._at + _MAX_LINE_BYTES)
            if end >= 0:
                return end
            if len(self._buffer) - self._at > _MAX_LINE_BYTES:
                raise BadReply("a line that does not end")
            self._more()

    def _more(self) -> None:
        if time.monotonic() > self._until_s:
            raise BadReply(f"its answer takes more than {_MAX_ANSWER_S:g} s")
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise BadReply("Redis closed the connection")
        self._received += len(data)
        if self._received > _MAX_REPLY_BYTES:
            raise BadReply("a reply that does not end")
        self._buffer = self._buffer[self._at :] + data
        self._at = 0


def _number(text: bytes) -> int:
    """A number. Raises ValueError, also for one of more digits than any has: before Python 3.11 the
    time to read it grows with their square."""
    if len(text) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return int(text)


def encode_command(command: Command) -> bytes:
    """A command in the protocol's form."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        data = word.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class RedisCli:
    """Runs `redis-cli`, one process for all commands of a call.

    It may have access where this account has not: on older SONiC it is a wrapper around `docker
    exec`, which the group docker may use. Its output has one line per value; the output of an ECHO
    marks the end of each reply, since the size of a hash is not known. `denied` is why Redis itself
    refused.
    """

    name = "redis-cli"
    _END = "fabmon-end-of-reply"

    def __init__(self, denied: str, timeout_s: float) -> None:
        found = shutil.which(self.name)
        if found is None:
            raise Denied(denied)
        self._path = found
        self._denied = denied
        self._timeout_s = timeout_s

    def ask(self, commands: Sequence[Sequence[str]]) -> List[Any]:
        """The replies in the form of `Redis.ask`. Raises Denied when redis-cli is refused too."""
        try:
            return self._run(commands)
        except OSError as error:
            raise Denied(f"{self._denied} (and redis-cli: {error})") from error

    def close(self) -> None:
        """Nothing to close."""

    def _run(self, commands: Sequence[Sequence[str]]) -> List[Any]:
        import subprocess

        script = "".join(
            f"{' '.join(map(json.dumps, command))}\nECHO {self._END}\n" for command in commands
        )
        try:
            done = subprocess.run(
                [self._path, "--raw"],
                input=script.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.SubprocessError as error:
            raise OSError(f"no answer: {error}") from error
        replies = done.stdout.decode("utf-8", "replace").split(f"{self._END}\n")[:-1]
        if done.returncode or len(replies) != len(commands):
            message = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            raise OSError(message.split("\n")[0][:200] or "no reply")
        return [_cli_reply(command, reply) for command, reply in zip(commands, replies)]


def _cli_reply(command: Sequence[str], text: str) -> Any:
    """A reply's text as values: an empty line is an absent value, one alone an absent hash."""
    lines = text.split("\n")[:-1]
    if lines and lines[0].split(" ")[0] in REFUSALS:
        return RedisError(lines[0])
    if command[0] == "HGETALL" and lines == [""]:
        return []
    return [line.encode() or None for line in lines]
