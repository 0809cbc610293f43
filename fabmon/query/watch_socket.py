"""A Unix socket on which a running watch answers the questions of its own user.

A client sends one question as a line of JSON and reads the answer until the end of the stream. The
socket is in a directory that only its owner may enter and has mode 0600; both ends check who the
other is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from fabmon.connection_limits import Connections, LimitedSocket
from fabmon.malformed_json import MALFORMED
from fabmon.private_files import check_owner, check_place, check_private, make_directory
from fabmon.query.answers import Answer, ErrorAnswer
from fabmon.query.questions import QueryError, Question, decode_question, unexpected

MOST_ANSWER_BYTES = 64 << 20
_MOST_QUESTION_BYTES = 64 << 10
_MOST_CLIENTS = 8
_MOST_CONNECTIONS = 64
"""Those that are refused are open until they have read why."""
_QUESTION_S = 10.0
_REFUSED_S = 1.0
_ANSWER_S = 60.0
_PREFIX, _SUFFIX = "watch-", ".sock"
_TEMPORARY = "/tmp"
_RUNTIME = "/run/user"
"""Of systemd: with a directory for each user, to which XDG_RUNTIME_DIR points."""
_CREDENTIALS = struct.Struct("3i")

Ask = Callable[[Question], Awaitable[Answer]]


class NoWatch(QueryError):
    """There is no watch to ask, or it does not answer."""


def socket_directories() -> list[Path]:
    """Where the sockets of this user's watches are; a watch puts its own into the first.

    That is `$XDG_RUNTIME_DIR/fabmon`, else a directory in /tmp. An assistant passes on PATH and
    HOME alone: a watch that had the variable is then looked for where it usually points.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return [Path(runtime) / "fabmon"]
    return [Path(f"{_TEMPORARY}/fabmon-{os.getuid()}"), Path(f"{_RUNTIME}/{os.getuid()}/fabmon")]


def sockets_in(directory: Path) -> list[Path]:
    """The sockets of watches in a directory, also of those that are gone."""
    with suppress(OSError):
        return sorted(directory.glob(f"{_PREFIX}*{_SUFFIX}"))
    return []


def default_path() -> Path:
    """The socket of a watch of this process; its directory is made. Raises OSError."""
    directory = socket_directories()[0]
    make_directory(directory)
    check_private(directory, directory)
    return directory / f"{_PREFIX}{os.getpid()}{_SUFFIX}"


def _peer_uid(connection: socket.socket) -> int:
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _is_of(connection: socket.socket, uid: int) -> bool:
    """Whether the other end is a user or root."""
    return _peer_uid(connection) in (uid, 0)


@asynccontextmanager
async def answering_socket(path: Path, ask: Ask) -> AsyncIterator[None]:
    """Answer at a path, at which no other watch answers.

    Raises OSError, also where somebody else could put another socket in its place.
    """
    check_place(path.parent)
    clients: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        clients[task] = writer
        try:
            if _is_of(writer.get_extra_info("socket"), os.getuid()):
                is_busy = len(clients) > _MOST_CLIENTS
                writer.write(await (_refusal(reader) if is_busy else _reply(reader, ask)))
                async with asyncio.timeout(_ANSWER_S):
                    await writer.drain()
        except (OSError, TimeoutError):
            pass  # The client is gone, or does not read.
        finally:
            await _close(writer)
            del clients[task]

    own = _bound(path)
    server = await asyncio.start_unix_server(serve, sock=own, limit=_MOST_QUESTION_BYTES)
    try:
        yield
    finally:
        server.close()
        await asyncio.sleep(0)  # Clients that were just accepted get their task.
        waiting = [task for task in clients if task is not None]
        for writer in clients.values():
            writer.transport.abort()
        await asyncio.gather(*waiting, return_exceptions=True)
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - a local socket; nothing waits for it.


def _bound(path: Path) -> socket.socket:
    """A socket at a path that its user alone can connect to. One that a killed watch left there is
    replaced. Raises OSError."""
    made = LimitedSocket(socket.AF_UNIX, Connections(_MOST_CONNECTIONS))
    try:
        # Linux gives the file this mode. A umask would be that of all other files that are made.
        os.fchmod(made.fileno(), 0o600)
        try:
            made.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_left(path):
                raise
            path.unlink()
            made.bind(str(path))
    except OSError:
        made.close()
        raise
    return made


def _is_left(path: Path) -> bool:
    """Whether a path is a socket at which nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return stat.S_ISSOCK(path.lstat().st_mode)
        except OSError:
            pass
    return False


async def _reply(reader: asyncio.StreamReader, ask: Ask) -> bytes:
    try:
        async with asyncio.timeout(_QUESTION_S):
            line = await reader.readline()
        async with asyncio.timeout(_ANSWER_S):
            return msgspec.json.encode(await ask(decode_question(line)))
    except ValueError:
        return _error(f"the question is longer than {_MOST_QUESTION_BYTES} bytes")
    except TimeoutError:
        return _error("the question was not sent, or not answered, in time")
    except QueryError as error:
        return _error(str(error))
    except Exception as error:
        # Of fabmon itself: the watch goes on.
        return _error(unexpected(error, "query"))


async def _refusal(reader: asyncio.StreamReader) -> bytes:
    """The answer to one client too many; its question is read, or it would see a reset."""
    with suppress(ValueError, TimeoutError):
        async with asyncio.timeout(_REFUSED_S):
            await reader.readline()
    return _error("too many questions at once")


def _error(text: str) -> bytes:
    return msgspec.json.encode(ErrorAnswer(text=text))


async def ask_watch(path: Path, question: Question) -> Answer:
    """The answer of the watch behind a socket. Raises NoWatch, QueryError."""
    try:
        owner = check_owner(path, is_any_fine=os.getuid() == 0)
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=MOST_ANSWER_BYTES)
            try:
                if not _is_of(writer.get_extra_info("socket"), owner):
                    raise NoWatch(f"{path}: another user listens there")
                writer.write(msgspec.json.encode(question) + b"\n")
                writer.write_eof()
                data = await reader.read(MOST_ANSWER_BYTES)
                while part := await reader.read(1 << 20):
                    data += part
                    if len(data) > MOST_ANSWER_BYTES:
                        raise NoWatch(f"{path}: the answer is too long")
            finally:
                await _close(writer)
    except (OSError, TimeoutError) as error:
        text = getattr(error, "strerror", None) or str(error) or "no answer in time"
        raise NoWatch(f"{path}: {text}") from None
    try:
        answer: Answer | ErrorAnswer = msgspec.json.decode(data, type=Answer | ErrorAnswer)
    except MALFORMED:
        raise NoWatch(f"{path}: not an answer of fabmon, or of another version") from None
    if isinstance(answer, ErrorAnswer):
        raise QueryError(answer.text)
    return answer


async def the_watch() -> Path:
    """The socket of the only watch of this user that runs. Raises NoWatch."""
    found: list[Path] = []
    refused: list[str] = []
    for directory in socket_directories():
        try:
            # Root may ask another user's watch, but not one that only pretends to be root's.
            check_private(directory, directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            refused.append(f"{error.filename}: {error.strerror}")
        else:
            found += [path for path in sockets_in(directory) if await _answers(path)]
    if not found:
        none = "no `fabmon watch` of this user runs on this machine: name a recording"
        raise NoWatch("; ".join([*refused, none]))
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise NoWatch(f"several watches run: choose one with --socket: {names}")
    return found[0]


async def _answers(path: Path) -> bool:
    """Whether somebody listens on a socket: one that was killed leaves its socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    await _close(writer)
    return True


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_REFUSED_S):
            await writer.wait_closed()
