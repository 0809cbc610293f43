"""Posts to receivers over HTTP. Redirects are not followed: they would move credentials."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp

from fabmon import secret_files
from fabmon.alerts.settings import DeliveryError, HttpReceiver
from fabmon.fabric.wire.messages import clean
from fabmon.limited_thread import LimitedThread
from fabmon.secret_files import LEAST_HIDDEN, SecretError, check_encrypted, secrets_in
from fabmon.trusted_certificates import context_trusting

Result = TypeVar("Result")

TIMEOUT_S = 10.0
_JSON = {"Content-Type": "application/json"}
_MOST_QUOTED = 200
_MOST_READ = 4096
_QUOTED_WITHIN_S = 2.0
"""How long the text of an error is waited for: the status is known without it."""
_REFUSALS = (400, 413, 422)
"""Statuses that are about what was sent, and not about who sent it or when."""
_PLAIN = frozenset({"", "/", "Bearer", "Basic"})
_LEAST_SECRET = 6
"""Characters of a part of an address that may be a password."""


class HttpPoster:
    """The connection to one receiver."""

    def __init__(self, receiver: HttpReceiver) -> None:
        self._receiver = receiver
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | bool | None = None
        self._thread = LimitedThread(TIMEOUT_S)

    async def read(self, reader: Callable[[], Result]) -> Result:
        """What is read from files, in a thread. Raises DeliveryError, also after TIMEOUT_S."""
        try:
            return await self._thread.call(reader)
        except TimeoutError:
            why = f"the files of its secrets and certificates cannot be read in {TIMEOUT_S:.0f} s"
            raise DeliveryError(why) from None

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Post JSON. Raises DeliveryError unless the reply is 2xx, and before a secret would be
        sent in clear text. Its message has no part of the address, none of `secrets`, which are
        in the body, and no token, whatever the receiver quotes."""
        receiver = self._receiver
        if receiver.has_secret:
            try:
                check_encrypted(url, is_insecure=receiver.insecure)
            except SecretError as error:
                raise DeliveryError(str(error)) from None
        authorization = await self.read(self._authorization)
        if self._tls is None and url.startswith("https:"):
            self._tls = await self.read(self._tls_context)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # An idle connection would take whatever its receiver sends.
                connector=aiohttp.TCPConnector(force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # What it says of an error is quoted, as it came.
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            )
        try:
            async with self._session.post(
                url,
                data=body,
                headers={**_JSON, **authorization, **(headers or {})},
                ssl=self._tls if self._tls is not None else True,
                allow_redirects=False,
            ) as reply:
                if not 200 <= reply.status < 300:
                    known = {*authorization.values(), *secrets}
                    for value in authorization.values():
                        known.update(
                            each for each in secrets_in(value) if len(each) >= LEAST_HIDDEN
                        )
                    why = _without_secrets(await _text_of(reply), url, known)[:_MOST_QUOTED]
                    raise DeliveryError(
                        f"HTTP {reply.status} {why}".rstrip(), is_refusal=reply.status in _REFUSALS
                    )
        except TimeoutError:
            raise DeliveryError(f"no answer in {TIMEOUT_S:.0f} s") from None
        except aiohttp.ClientConnectorCertificateError:
            raise DeliveryError(
                "its certificate is not trusted: ca_file names those to trust"
            ) from None
        except aiohttp.ClientOSError as error:
            # asyncio's own text has the address.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else ""
            raise DeliveryError(why or type(error).__name__) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise DeliveryError(type(error).__name__) from None

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()

    def _authorization(self) -> dict[str, str]:
        receiver = self._receiver
        if receiver.token_file is not None:
            return {"Authorization": f"Bearer {read_secret(receiver.token_file)}"}
        if receiver.password_file is not None:
            pair = base64.b64encode(read_secret(receiver.password_file).encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def _tls_context(self) -> ssl.SSLContext | bool:
        if self._receiver.insecure:
            return False
        file = self._receiver.ca_file
        try:
            return ssl.create_default_context() if file is None else context_trusting(file)
        except OSError as error:
            raise DeliveryError(f"ca_file {file}: {error.strerror or error}") from None


async def _text_of(reply: aiohttp.ClientResponse) -> str:
    """The begin of the text of an error, as far as it comes."""
    said = b""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_QUOTED_WITHIN_S):
            while len(said) < _MOST_READ and (part := await reply.content.read(_MOST_READ)):
                said += part
    return " ".join(clean(said[:_MOST_READ].decode(errors="replace")).split())


def _without_secrets(said: str, url: str, secrets: Collection[str]) -> str:
    """A text without the path of an address, parts of it that may be secret, and secrets."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    hidden = {path, parts.path, unquote(path), *secrets, *" ".join(secrets).split()}
    hidden |= {each for each in re.split(r"[/?&=]", path) if len(each) >= _LEAST_SECRET}
    for each in sorted(hidden - _PLAIN, key=len, reverse=True):
        said = said.replace(each, "…")
    return said


def read_secret(path: str) -> str:
    """The secret in a file that its owner alone can read. Blocks. Raises DeliveryError."""
    try:
        return secret_files.read_secret(path)
    except SecretError as error:
        raise DeliveryError(str(error)) from None
