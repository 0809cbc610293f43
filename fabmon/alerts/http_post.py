"""Posts to receivers over HTTP. Redirects are not followed: they would move credentials."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping

import aiohttp

from fabmon import secret_files
from fabmon.alerts.settings import DeliveryError, HttpReceiver
from fabmon.fabric.wire.messages import clean
from fabmon.secret_files import SecretError, check_encrypted
from fabmon.trusted_certificates import context_trusting

TIMEOUT_S = 10.0
_JSON = {"Content-Type": "application/json"}
_MOST_QUOTED = 200


class HttpPoster:
    """The connection to one receiver."""

    def __init__(self, receiver: HttpReceiver) -> None:
        self._receiver = receiver
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | bool | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Post JSON. Raises DeliveryError unless the reply is 2xx, and before a secret would be
        sent in clear text."""
        receiver = self._receiver
        if receiver.has_secret:
            try:
                check_encrypted(url, is_insecure=receiver.insecure)
            except SecretError as error:
                raise DeliveryError(str(error)) from None
        authorization = await asyncio.to_thread(self._authorization)
        if self._tls is None and url.startswith("https:"):
            self._tls = await asyncio.to_thread(self._tls_context)
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
                    said = (await reply.content.read(_MOST_QUOTED)).decode(errors="replace")
                    why = " ".join(clean(said).split())
                    raise DeliveryError(f"HTTP {reply.status} {why}".rstrip())
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


def read_secret(path: str) -> str:
    """The secret in a file that its owner alone can read. Blocks. Raises DeliveryError."""
    try:
        return secret_files.read_secret(path)
    except SecretError as error:
        raise DeliveryError(str(error)) from None
