"""Who we are to an SNMP agent: a community, or a user of version 3."""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from fabmon.feeds.errors import BadSecret, LoginRefused, Misbehaved, NodeError, Unreachable

AUTH = ("MD5", "SHA", "SHA224", "SHA256", "SHA384", "SHA512")
PRIV = ("DES", "AES", "AES192", "AES256", "AES192C", "AES256C")
"""As net-snmp calls them; `C` is Cisco's way to lengthen a key."""

_FORM = "v3 USER AUTH PASSWORD [PRIV PASSWORD]"


class SnmpCredentials(NamedTuple):
    """`user` of version 3, or a `community` of version 2c. Without `priv` nothing is encrypted."""

    community: str = ""
    user: str = ""
    auth: str = ""
    auth_password: str = ""
    priv: str = ""
    priv_password: str = ""


def credentials(secret: str) -> SnmpCredentials:
    """What a secret's line says. Raises BadSecret, which does not repeat it.

    A line that begins with `v3 ` is a user, as in `v3 fabmon SHA256 "a password" AES another`; any
    other is a community.
    """
    if not secret.startswith("v3 "):
        return SnmpCredentials(community=secret)
    try:
        words = shlex.split(secret)[1:]
    except ValueError:
        raise BadSecret("the secret has a quote that is never closed") from None
    if len(words) not in (3, 5):
        raise BadSecret(f"a secret of version 3 is {_FORM}: {len(words) + 1} words are there")
    user, auth, auth_password, priv, priv_password = (*words, "", "")[:5]
    auth, priv = (word.upper().replace("-", "").replace("SHA1", "SHA") for word in (auth, priv))
    priv = "AES" if priv == "AES128" else priv
    if auth not in AUTH:
        raise BadSecret(f"no authentication of that name: one of {', '.join(AUTH)}")
    if len(words) == 5 and priv not in PRIV:
        raise BadSecret(f"no encryption of that name: one of {', '.join(PRIV)}")
    short = min(len(word) for word in (auth_password, priv_password) if word or priv)
    if short < 8:
        raise BadSecret("a password of version 3 has 8 characters or more")
    return SnmpCredentials("", user, auth, auth_password, priv, priv_password)


# One SNMP agent, asked through pysnmp: tables by GETBULK, errors as ours.
#
# pysnmp spends 0.1 ms of CPU on a value, and reads files when it starts: all of it happens on a
# thread of its own, so that the screen does not wait for it.


Oid = tuple[int, ...]
Result = TypeVar("Result")

UPTIME: Oid = (1, 3, 6, 1, 2, 1, 1, 3)
_VALUES_A_REPLY = 40
"""Values asked for at once: some 1,200 bytes, which no network has to cut into pieces."""

_MAX_ROWS = 10_000
_TIMEOUT_S = 1.5
_RETRIES = 2

INSTALL = 'pip install "fabmon[snmp]"'


class SnmpTable(NamedTuple):
    """Columns of a table at one time. `columns` maps a column to {index: value}.

    `uptime_cs` is the agent's uptime, in hundredths of a second, as the first rows were read; None
    where it does not say.
    """

    uptime_cs: int | None
    columns: dict[Oid, dict[Oid, int | bytes]]


class SnmpThread:
    """The thread on which agents are asked, and the engines that they share by credentials."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._engines: dict[SnmpCredentials, Any] = {}

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something on the thread; cancelling the wait cancels it there."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), daemon=True)
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def agent(self, address: str, port: int, secret: SnmpCredentials) -> SnmpAgent:
        """An agent at an address. Raises Unreachable for a name that is not known."""
        return await self.run(self._agent(address, port, secret))

    async def close(self) -> None:
        """End the thread."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(self._thread.join)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    async def _end(self) -> None:
        for engine in self._engines.values():
            engine.close_dispatcher()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _agent(self, address: str, port: int, secret: SnmpCredentials) -> SnmpAgent:
        if importlib.util.find_spec("pysnmp") is None:
            raise Unreachable(f"via=snmp needs pysnmp, which is not installed: {INSTALL}", "pysnmp")
        from pysnmp.error import PySnmpError
        from pysnmp.hlapi.v3arch import asyncio as hlapi

        if secret not in self._engines:
            self._engines[secret] = hlapi.SnmpEngine()
        try:
            kind = hlapi.Udp6TransportTarget if ":" in address else hlapi.UdpTransportTarget
            target = await kind.create((address, port), timeout=_TIMEOUT_S, retries=_RETRIES)
        except (PySnmpError, OSError) as error:
            raise Unreachable(f"{address}: {error}", "unknown name") from None
        return SnmpAgent(f"{address}:{port}", self._engines[secret], target, _auth(hlapi, secret))


class SnmpAgent:
    """Asks one agent. Its methods run on the thread of `Asking`."""

    def __init__(self, name: str, engine: Any, target: Any, auth: Any) -> None:
        self._name = name
        self._engine = engine
        self._target = target
        self._auth = auth

    async def get(self, oids: Sequence[Oid]) -> list[int | bytes | None]:
        """Single values; None for one that the agent does not have. Raises NodeError."""
        from pysnmp.hlapi.v3arch import asyncio as hlapi

        binds = await self._ask(hlapi.get_cmd, [], oids)
        return [value for _, value in binds]

    async def table(self, columns: Sequence[Oid]) -> SnmpTable:
        """All rows of some columns. Raises NodeError.

        A column is done at the first object outside of it. The agent's order is checked, so that
        one that goes in circles ends.
        """
        from pysnmp.hlapi.v3arch import asyncio as hlapi

        found: dict[Oid, dict[Oid, int | bytes]] = {column: {} for column in columns}
        at = {column: column for column in columns}
        uptime_cs: int | None = None
        while at:
            asked = list(at)
            # As many rows as fill a reply, and the uptime in front of them.
            rows = max(1, _VALUES_A_REPLY // len(asked))
            binds = await self._ask(hlapi.bulk_cmd, [1, rows], [UPTIME, *at.values()])
            if uptime_cs is None and isinstance(binds[0][1], int):
                uptime_cs = binds[0][1]
            if len(binds) < 1 + len(asked):
                raise Misbehaved(f"{self._name}: {len(asked)} columns asked, fewer answered")
            for position, (oid, value) in enumerate(binds[1:]):
                column = asked[position % len(asked)]
                if column not in at:
                    continue
                inside = oid[: len(column)] == column and oid > at[column]
                if value is None or not inside or len(found[column]) >= _MAX_ROWS:
                    del at[column]
                    continue
                found[column][oid[len(column) :]] = value
                at[column] = oid
        return SnmpTable(uptime_cs, found)

    async def _ask(
        self, command: Any, numbers: Sequence[int], oids: Sequence[Oid]
    ) -> list[tuple[Oid, int | bytes | None]]:
        from pysnmp.error import PySnmpError
        from pysnmp.hlapi.v3arch import asyncio as hlapi

        binds = [hlapi.ObjectType(hlapi.ObjectIdentity(oid)) for oid in oids]
        try:
            problem, status, _, answer = await command(
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
        if problem is not None:
            raise self._explained(problem)
        if int(status):
            words = f"{self._name}: refused: {status.prettyPrint()}"
            raise LoginRefused(words) if int(status) in (6, 16) else Unreachable(words, "refused")
        return [(tuple(oid), _plain(value)) for oid, value in answer]

    def _explained(self, problem: Any) -> NodeError:
        from pysnmp.proto import errind

        if isinstance(problem, errind.RequestTimedOut):
            seconds = _TIMEOUT_S * (_RETRIES + 1)
            why = "a wrong community is not answered either" if _community(self._auth) else "UDP"
            return Unreachable(f"{self._name}: no answer in {seconds:g} s ({why})", "timeout")
        refusals = (
            errind.UnknownUserName,
            errind.UnknownSecurityName,
            errind.WrongDigest,
            errind.AuthenticationFailure,
            errind.AuthenticationError,
            errind.UnsupportedSecurityLevel,
            errind.DecryptionError,
            errind.NoAccessEntry,
        )
        if isinstance(problem, refusals):
            return LoginRefused(f"{self._name}: {problem}: check the file of secret=")
        return Unreachable(f"{self._name}: {problem}")


def _plain(value: Any) -> int | bytes | None:
    """A value as Python has it; None for what is not there."""
    from pyasn1.type.univ import Integer, OctetString

    if isinstance(value, Integer):
        return int(value)
    return bytes(value) if isinstance(value, OctetString) else None


def _community(auth: Any) -> bool:
    return bool(auth.message_processing_model < 3)


def _auth(hlapi: Any, secret: SnmpCredentials) -> Any:
    if not secret.user:
        return hlapi.CommunityData(secret.community, mpModel=1)
    auth = {
        "MD5": hlapi.USM_AUTH_HMAC96_MD5,
        "SHA": hlapi.USM_AUTH_HMAC96_SHA,
        "SHA224": hlapi.USM_AUTH_HMAC128_SHA224,
        "SHA256": hlapi.USM_AUTH_HMAC192_SHA256,
        "SHA384": hlapi.USM_AUTH_HMAC256_SHA384,
        "SHA512": hlapi.USM_AUTH_HMAC384_SHA512,
    }
    priv = {
        "": hlapi.USM_PRIV_NONE,
        "DES": hlapi.USM_PRIV_CBC56_DES,
        "AES": hlapi.USM_PRIV_CFB128_AES,
        "AES192": hlapi.USM_PRIV_CFB192_AES_BLUMENTHAL,
        "AES256": hlapi.USM_PRIV_CFB256_AES_BLUMENTHAL,
        "AES192C": hlapi.USM_PRIV_CFB192_AES,
        "AES256C": hlapi.USM_PRIV_CFB256_AES,
    }
    return hlapi.UsmUserData(
        secret.user,
        secret.auth_password,
        secret.priv_password or None,
        authProtocol=auth[secret.auth],
        privProtocol=priv[secret.priv],
    )
