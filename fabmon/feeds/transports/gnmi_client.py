"""The gNMI service of a device over gRPC: its channel, encodings, subscriptions, and errors.

Needs the extra `gnmi`, whose messages are those of the published protos (gNMI 0.8 and later).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from fabmon.fabric.model import Host
from fabmon.feeds.errors import BadTrust, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.transports import openconfig
from fabmon.feeds.transports.openconfig import Keys
from fabmon.feeds.transports.received_bytes import Peer
from fabmon.secret_files import without_secrets
from fabmon.trusted_certificates import read_certificates

_PORT = 9339
"""IANA's port of gNMI; EOS uses 6030, SONiC 8080."""
_REPLY_S = 20.0
_RESOLVE_S = 3.0
_MOST_MESSAGE_BYTES = 8 << 20
_USUAL_ENCODINGS = ("JSON_IETF", "PROTO", "JSON")
_SERVICE = "/gnmi.gNMI"


def load_extra() -> None:
    """Import what the extra installs. Raises ImportError."""
    # Else gRPC writes its log to standard error, onto the screen.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in ("grpc.aio", "pygnmi.spec.v080.gnmi_pb2", "pygnmi.spec.v080.gnmi_pb2_grpc"):
        importlib.import_module(name)


async def open_channel(host: Host) -> Any:
    """The gRPC channel to a device. Raises BadTrust."""
    import grpc
    import grpc.aio

    where = f"{_bracketed(host.address or host.name)}:{host.port or _PORT}"
    options = [("grpc.max_receive_message_length", _MOST_MESSAGE_BYTES)]
    if host.tls == "no":
        return grpc.aio.insecure_channel(where, options=options)
    if host.tls == "insecure":
        raise BadTrust("gRPC cannot leave certificates unchecked: write tls=FILE with the device's")
    roots = None
    if host.tls not in (None, "yes"):
        roots = await asyncio.to_thread(_certificates, host.tls)
    return grpc.aio.secure_channel(where, grpc.ssl_channel_credentials(roots), options=options)


async def peers_of(host: Host) -> set[Peer]:
    """What the other end of a connection to a device may be; none where its name is not known."""
    port = host.port or _PORT
    with contextlib.suppress(OSError, UnicodeError, TimeoutError):
        async with asyncio.timeout(_RESOLVE_S):
            where = host.address or host.name
            found = await asyncio.get_running_loop().getaddrinfo(where, port)
            return {(str(place[0]), port) for *_, place in found}
    return set()


def _certificates(file: str) -> bytes:
    """The certificates in a file. Raises BadTrust."""
    try:
        return read_certificates(file)
    except OSError as error:
        raise BadTrust(f"{file}: {error.strerror or error}") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class GnmiClient:
    """Calls one device, with the user and password in `metadata`.

    Replies are bytes: who decodes them measures what that costs.
    """

    def __init__(self, channel: Any, metadata: Sequence[tuple[str, str]]) -> None:
        self._channel = channel
        self._metadata = metadata

    async def capabilities(self) -> bytes:
        """The device's CapabilityResponse. Raises NodeError."""
        from grpc.aio import AioRpcError

        call = self._channel.unary_unary(f"{_SERVICE}/Capabilities")
        try:
            # A CapabilityRequest without extensions is empty.
            return bytes(await call(b"", metadata=self._metadata, timeout=_REPLY_S))
        except AioRpcError as error:
            raise self._error(error) from None

    async def subscribe(
        self, paths: Sequence[str], sample_s: float | None, encoding: str
    ) -> AsyncGenerator[bytes]:
        """The SubscribeResponses of a subscription, sampled or (None) on change, until it ends.
        Raises NodeError."""
        from grpc.aio import AioRpcError

        call = self._channel.stream_stream(f"{_SERVICE}/Subscribe")(metadata=self._metadata)
        try:
            # The request stream stays open: some devices end a subscription with it.
            await call.write(_request(paths, sample_s, encoding).SerializeToString())
            while isinstance(reply := await call.read(), bytes):
                yield reply
        except AioRpcError as error:
            raise self._error(error) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    def _error(self, error: Any) -> NodeError:
        """The NodeError for a status of gRPC."""
        secrets = [value for key, value in self._metadata if key == "password"]
        return error_of(error.code().name, without_secrets(str(error.details() or ""), secrets))


def _request(paths: Sequence[str], sample_s: float | None, encoding: str) -> Any:
    """The message that subscribes to paths."""
    from pygnmi.spec.v080 import gnmi_pb2

    mode = "ON_CHANGE" if sample_s is None else "SAMPLE"
    subscriptions = [
        gnmi_pb2.Subscription(
            path=gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name=name) for name in text.split("/")]),
            mode=gnmi_pb2.SubscriptionMode.Value(mode),
            sample_interval=int((sample_s or 0) * 1e9),
        )
        for text in paths
    ]
    return gnmi_pb2.SubscribeRequest(
        subscribe=gnmi_pb2.SubscriptionList(
            subscription=subscriptions,
            mode=gnmi_pb2.SubscriptionList.Mode.Value("STREAM"),
            encoding=gnmi_pb2.Encoding.Value(encoding),
        )
    )


def usual_encoding(capabilities: bytes) -> str:
    """The encoding to ask for, of those in a CapabilityResponse. Raises Misbehaved."""
    from pygnmi.spec.v080 import gnmi_pb2

    offered = set(_decoded(gnmi_pb2.CapabilityResponse, capabilities).supported_encodings)
    known = (each for each in _USUAL_ENCODINGS if gnmi_pb2.Encoding.Value(each) in offered)
    return next(known, _USUAL_ENCODINGS[0])


def _decoded(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Misbehaved(f"no {kind.DESCRIPTOR.name} of gNMI: {error}", "gnmi") from None


def subscribe_response(reply: bytes) -> Any:
    """A decoded SubscribeResponse. Raises Misbehaved."""
    from pygnmi.spec.v080 import gnmi_pb2

    return _decoded(gnmi_pb2.SubscribeResponse, reply)


def path_elements(path: Any) -> tuple[tuple[str, Keys], ...]:
    """The first elements of a path: no longer one is known."""
    return tuple(
        openconfig.path_element(
            element.name.rpartition(":")[2],
            ((key, element.key[key]) for key in openconfig.KEYS if key in element.key),
        )
        for element in path.elem[: openconfig.MOST_DEPTH]
    )


def typed_value(typed: Any) -> Any:
    """The value of a TypedValue: a number, a text, or decoded JSON; None for other kinds.
    Raises Misbehaved for JSON of too many values."""
    kind = typed.WhichOneof("value")
    if kind in ("json_val", "json_ietf_val"):
        return openconfig.json_value(getattr(typed, kind))
    if kind in ("string_val", "ascii_val", "int_val", "uint_val", "bool_val"):
        return getattr(typed, kind)
    return None


def error_of(code: str, text: str) -> NodeError:
    """The NodeError for a status of gRPC, and what is said of it."""
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return LoginRefused(f"the device refuses: {text or code}")
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return Unreachable(f"no gNMI: {text or code}")
    if code == "RESOURCE_EXHAUSTED":
        return Misbehaved(text or code)
    return Unreachable(f"{code.lower().replace('_', ' ')}: {text}", code)
