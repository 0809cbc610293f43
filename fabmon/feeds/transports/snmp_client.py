"""An SNMP client over pysnmp: credentials, single values, and tables by GETBULK.

pysnmp spends 0.1 ms of CPU on a value and reads files when it starts: all of it runs on a thread of
its own, so that the screen is not delayed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import shlex
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fabmon.fabric.time_wording import interval
from fabmon.fabric.wording import needed_extra
from fabmon.feeds.errors import BadSecret, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.transports.snmp_replies import ReplyFilter

_LOG = logging.getLogger("fabmon.feeds")

_AUTH: Mapping[str, str] = {
    "MD5": "USM_AUTH_HMAC96_MD5",
    "SHA": "USM_AUTH_HMAC96_SHA",
    "SHA224": "USM_AUTH_HMAC128_SHA224",
    "SHA256": "USM_AUTH_HMAC192_SHA256",
    "SHA384": "USM_AUTH_HMAC256_SHA384",
    "SHA512": "USM_AUTH_HMAC384_SHA512",
}
_PRIV: Mapping[str, str] = {
    "DES": "USM_PRIV_CBC56_DES",
    "AES": "USM_PRIV_CFB128_AES",
    "AES192": "USM_PRIV_CFB192_AES_BLUMENTHAL",
    "AES256": "USM_PRIV_CFB256_AES_BLUMENTHAL",
    "AES192C": "USM_PRIV_CFB192_AES",
    "AES256C": "USM_PRIV_CFB256_AES",
}
"""net-snmp's name of a protocol -> pysnmp's. `C` is Cisco's way to lengthen a key."""

_FORM = "v3 USER AUTH PASSWORD [PRIV PASSWORD]"
_MIN_PASSWORD_LENGTH = 8

_UPTIME: tuple[int, ...] = (1, 3, 6, 1, 2, 1, 1, 3)
_VALUES_PER_REPLY = 40
"""Values requested at once: about 1,200 bytes, which fit into one packet."""

_MAX_ROWS = 10_000
"""Rows of a table: more are refused."""
_MAX_TEXT = 255
"""Bytes of a value that are kept: the length of a DisplayString (RFC 2579)."""
_TIMEOUT_S = 1.5
_RETRIES = 2

_INSTALL = needed_extra("snmp")

_AUTHORIZATION_ERROR, _NO_ACCESS = 16, 6
"""Values of SNMP's error-status for a request that is not permitted."""

Oid = tuple[int, ...]
Result = TypeVar("Result")


class SnmpCredentials(NamedTuple):
    """`user` of version 3, or a `community` of version 2c. Without `priv` nothing is encrypted."""

    community: str = ""
    user: str = ""
    auth: str = ""
    auth_password: str = ""
    priv: str = ""
    priv_password: str = ""


def parse_credentials(secret: str) -> SnmpCredentials:
    """The credentials in the line of a secret file. Raises BadSecret, which does not quote it.

    A line that begins with `v3 ` is a user, as in `v3 fabmon SHA256 "a password" AES another`; any
    other line is a community.
    """
    if not secret.startswith("v3 "):
        return SnmpCredentials(community=secret)
    try:
        words = shlex.split(secret)[1:]
    except ValueError:
        raise BadSecret("the secret has a quote that is not closed") from None
    if len(words) not in (3, 5):
        raise BadSecret(f"a secret of version 3 is {_FORM}: this one has {len(words) + 1} words")
    user, auth, auth_password, priv, priv_password = (*words, "", "")[:5]
    auth, priv = (word.upper().replace("-", "").replace("SHA1", "SHA") for word in (auth, priv))
    priv = "AES" if priv == "AES128" else priv
    if auth not in _AUTH:
        raise BadSecret(f"unknown authentication: use one of {', '.join(_AUTH)}")
    if len(words) == 5 and priv not in _PRIV:
        raise BadSecret(f"unknown encryption: use one of {', '.join(_PRIV)}")
    shortest = min(len(word) for word in (auth_password, priv_password) if word or priv)
    if shortest < _MIN_PASSWORD_LENGTH:
        raise BadSecret(f"a password of version 3 has {_MIN_PASSWORD_LENGTH} characters or more")
    return SnmpCredentials("", user, auth, auth_password, priv, priv_password)


class SnmpTable(NamedTuple):
    """Columns of a table at one time. `columns` maps a column to {row index: value}.

    `uptime_cs` is the agent's uptime, in hundredths of a second, when the first rows were read;
    None if it does not report one.
    """

    uptime_cs: int | None
    columns: dict[Oid, dict[Oid, int | bytes]]

    def number(self, column: Oid, row: Oid) -> int | None:
        """The integer in a cell; None if there is none."""
        value = self.columns[column].get(row)
        return value if isinstance(value, int) else None

    def text(self, column: Oid, row: Oid) -> str:
        """The text in a cell; empty if there is none."""
        value = self.columns[column].get(row)
        return value.decode("utf-8", "replace").strip("\0 ") if isinstance(value, bytes) else ""

    def raw(self, column: Oid, row: Oid) -> bytes:
        """The bytes in a cell; empty if there are none."""
        value = self.columns[column].get(row)
        return value if isinstance(value, bytes) else b""


class SnmpThread:
    """The thread for all SNMP requests, and pysnmp's engines, one for each set of credentials."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._engines: dict[SnmpCredentials, Any] = {}
        self._replies = ReplyFilter()
        self._has_failed = False

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the thread; cancelling the wait cancels it there."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), daemon=True)
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def agent(self, address: str, port: int, credentials: SnmpCredentials) -> SnmpAgent:
        """The agent at an address. Raises Unreachable for an unknown name, or without pysnmp."""
        return await self.run(self._agent(address, port, credentials))

    async def close(self) -> None:
        """Cancel all requests and end the thread."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._cancel_all(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(self._thread.join)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(self._log_once)
        loop.run_forever()
        loop.close()

    def _log_once(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log the first packet that pysnmp fails on: anyone can send as many as they like."""
        if not self._has_failed:
            self._has_failed = True
            _LOG.warning("SNMP: packets are dropped: %s", context.get("exception"))

    async def _cancel_all(self) -> None:
        for engine in self._engines.values():
            engine.close_dispatcher()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _agent(self, address: str, port: int, credentials: SnmpCredentials) -> SnmpAgent:
        if importlib.util.find_spec("pysnmp") is None:
            missing = f"via=snmp needs pysnmp, which is not installed: {_INSTALL}"
            raise Unreachable(missing, "pysnmp")
        from pysnmp.error import PySnmpError
        from pysnmp.hlapi.v3arch import asyncio as hlapi

        if credentials not in self._engines:
            self._engines[credentials] = hlapi.SnmpEngine()
        try:
            kind = hlapi.Udp6TransportTarget if ":" in address else hlapi.UdpTransportTarget
            target = await self._replies.target(kind).create(
                (address, port), timeout=_TIMEOUT_S, retries=_RETRIES
            )
        except (PySnmpError, OSError) as error:
            raise Unreachable(f"{address}: {error}", "unknown name") from None
        engine, auth = self._engines[credentials], _auth_data(hlapi, credentials)
        return SnmpAgent(f"{address}:{port}", engine, target, auth, self._replies)


class SnmpAgent:
    """Sends requests to one agent. Its methods run on the thread of `SnmpThread`.

    `spent_s` is the CPU time that its replies took here.
    """

    def __init__(
        self, name: str, engine: Any, target: Any, auth: Any, replies: ReplyFilter
    ) -> None:
        self._name = name
        self._engine = engine
        self._target = target
        self._auth = auth
        self._replies = replies
        self.spent_s = 0.0

    async def get(self, oids: Sequence[Oid]) -> list[int | bytes | None]:
        """Single values; None for one that the agent does not have. Raises NodeError."""
        binds = await self.request("get_cmd", [], oids)
        return [value for _, value in binds[: len(oids)]]

    async def table(self, columns: Sequence[Oid]) -> SnmpTable:
        """All rows of some columns. Raises NodeError.

        A column ends at the first object outside of it. OIDs must increase, so that reading ends
        even if an agent returns the same rows again and again; a table without end is Misbehaved.
        """
        found: dict[Oid, dict[Oid, int | bytes]] = {column: {} for column in columns}
        last = {column: column for column in columns}
        uptime_cs: int | None = None
        while last:
            requested = list(last)
            # As many rows as fit into a reply, after the uptime.
            rows = max(1, _VALUES_PER_REPLY // len(requested))
            binds = await self.request("bulk_cmd", [1, rows], [_UPTIME, *last.values()])
            if uptime_cs is None and isinstance(binds[0][1], int):
                uptime_cs = binds[0][1]
            for position, (oid, value) in enumerate(binds[1:]):
                column = requested[position % len(requested)]
                if column not in last:
                    continue
                inside = oid[: len(column)] == column and oid > last[column]
                if value is None or not inside:
                    del last[column]
                    continue
                if len(found[column]) >= _MAX_ROWS:
                    raise Misbehaved(f"{self._name}: a table of more than {_MAX_ROWS:,} rows")
                found[column][oid[len(column) :]] = value
                last[column] = oid
        return SnmpTable(uptime_cs, found)

    async def request(
        self, command: str, numbers: Sequence[int], oids: Sequence[Oid]
    ) -> list[tuple[Oid, int | bytes | None]]:
        """Send one of pysnmp's commands: (OID, value) of each object, as many as `oids` at least.
        Raises NodeError."""
        from pysnmp.error import PySnmpError
        from pysnmp.hlapi.v3arch import asyncio as hlapi

        binds = [hlapi.ObjectType(hlapi.ObjectIdentity(oid)) for oid in oids]
        with self._replies.awaiting(self._target.transport_address) as awaited:
            try:
                indication, status, _, reply = await getattr(hlapi, command)(
                    self._engine,
                    self._auth,
                    self._target,
                    hlapi.ContextData(),
                    *numbers,
                    *binds,
                    lookupMib=False,
                )
            except PySnmpError as error:
                raise Unreachable(f"{self._name}: {error}") from None
            finally:
                self.spent_s += awaited.spent_s
        if indication is not None:
            raise self._error(indication)
        if int(status):
            text = f"{self._name}: request rejected: {status.prettyPrint()}"
            if int(status) in (_NO_ACCESS, _AUTHORIZATION_ERROR):
                raise LoginRefused(text)
            raise Unreachable(text, "refused")
        return self._read(reply, len(oids))

    def _read(
        self, reply: Sequence[tuple[Iterable[int], Any]], least: int
    ) -> list[tuple[Oid, int | bytes | None]]:
        binds = [(tuple(oid), _python_value(value)) for oid, value in reply]
        if len(binds) < least:
            raise Misbehaved(f"{self._name}: {least} objects requested, {len(binds)} sent")
        if any(max(oid, default=0) >= 1 << 32 for oid, _ in binds):
            raise Misbehaved(f"{self._name}: an OID with a number of more than 32 bits")
        return binds

    def _error(self, indication: Any) -> NodeError:
        from pysnmp.proto import errind

        if isinstance(indication, errind.RequestTimedOut):
            seconds = _TIMEOUT_S * (_RETRIES + 1)
            is_v2 = self._auth.message_processing_model < 3
            why = "an agent does not answer a wrong community either" if is_v2 else "UDP"
            return Unreachable(
                f"{self._name}: no answer from there in {interval(seconds)} ({why})", "timeout"
            )
        rejections = (
            errind.UnknownUserName,
            errind.UnknownSecurityName,
            errind.WrongDigest,
            errind.AuthenticationFailure,
            errind.AuthenticationError,
            errind.UnsupportedSecurityLevel,
            errind.DecryptionError,
            errind.NoAccessEntry,
        )
        if isinstance(indication, rejections):
            return LoginRefused(f"{self._name}: {indication}: check the file of secret=")
        return Unreachable(f"{self._name}: {indication}")


def _python_value(value: Any) -> int | bytes | None:
    """A pysnmp value as an integer of up to 64 bits or bytes; None for an object that does not
    exist, and for a larger integer."""
    from pyasn1.type.univ import Integer, OctetString

    if isinstance(value, Integer):
        return int(value) if abs(int(value)) < 1 << 64 else None
    return bytes(value)[:_MAX_TEXT] if isinstance(value, OctetString) else None


def _auth_data(hlapi: Any, credentials: SnmpCredentials) -> Any:
    if not credentials.user:
        return hlapi.CommunityData(credentials.community, mpModel=1)
    return hlapi.UsmUserData(
        credentials.user,
        credentials.auth_password,
        credentials.priv_password or None,
        authProtocol=getattr(hlapi, _AUTH[credentials.auth]),
        privProtocol=getattr(hlapi, _PRIV.get(credentials.priv, "USM_PRIV_NONE")),
    )
