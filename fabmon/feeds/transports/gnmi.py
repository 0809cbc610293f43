"""Switches that stream telemetry by gNMI: OpenConfig interfaces, queues and LLDP.

Counters are subscribed with `sample`, states and neighbours with `on_change`. Each kind has a
stream of its own, so that a path that a device lacks loses its own source only. Needs the extra
`gnmi`, whose messages are those of the published protos (gNMI 0.8 and later).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import (
    BadSecret,
    BadTrust,
    LoginRefused,
    Misbehaved,
    NodeError,
    Unreachable,
)
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports import openconfig
from fabmon.feeds.transports.openconfig import COUNTERS, NEIGHBOURS, QUEUES, STATE, Keys, Leaf
from fabmon.feeds.transports.polled import (
    NodeReading,
    PolledSession,
    SampleClock,
    SourceBlock,
    SourceFailure,
    poll_duration,
)
from fabmon.feeds.transports.transport import ProbeSession

_PORT = 9339
"""IANA's port of gNMI; EOS uses 6030, SONiC 8080."""
_INSTALL = 'pip install "fabmon[gnmi]"'
_SAMPLE_S = 5.0
"""The shortest interval that a switch is asked for: most read their hardware every 1 to 5 s."""
_QUEUES_S = 10.0
_FIRST_S = 20.0
_TOLERANCE_S = 5.0
_MOST_MESSAGE_BYTES = 16 << 20
_MOST_BYTES_A_SECOND = 8 << 20
_MOST_LEAVES_A_SECOND = 50_000
_MOST_TEXT = 256
_TURNED_BACK_NS = 1_000_000_000
"""A time that is earlier by more is of a clock that was set, not of a late notification."""
_MOST_NEIGHBOURS = 4096
_USUAL_ENCODINGS = ("JSON_IETF", "PROTO", "JSON")


class _Stream(NamedTuple):
    """One subscription: its source, the paths, and the sample interval (None: on change)."""

    source: str
    paths: tuple[str, ...]
    sample_s: float | None


_STREAMS = (
    _Stream(
        COUNTERS,
        (
            "interfaces/interface/state/counters",
            "interfaces/interface/ethernet/state/counters",
        ),
        _SAMPLE_S,
    ),
    _Stream(
        STATE,
        (
            "interfaces/interface/state/oper-status",
            "interfaces/interface/state/ifindex",
            "interfaces/interface/state/type",
            "interfaces/interface/state/mtu",
            "interfaces/interface/ethernet/state/port-speed",
        ),
        None,
    ),
    _Stream(QUEUES, ("qos/interfaces/interface/output/queues/queue/state",), _QUEUES_S),
    _Stream(NEIGHBOURS, ("lldp/interfaces/interface/neighbors/neighbor/state",), None),
)


class GnmiTransport:
    """Streams from devices over gRPC, with the user and password in each one's secret file."""

    def __init__(self, settings: ProbeSettings) -> None:
        self._interval_s = settings.interval_s

    async def open(self, host: Host) -> ProbeSession:
        """A session with a device. Raises BadSecret, BadTrust, and Unreachable without the
        extra."""
        try:
            await asyncio.to_thread(_load)
        except ImportError:
            raise Unreachable(f"via=gnmi needs grpcio and pygnmi: {_INSTALL}", "gnmi") from None
        metadata: list[tuple[str, str]] = []
        if host.secret is not None:
            hint = "secret= is a file with user:password"
            secret = await asyncio.to_thread(read_secret, host.secret, hint)
            user, colon, password = secret.partition(":")
            if not colon:
                raise BadSecret(f"{host.secret}: it must hold user:password, on one line")
            metadata = [("username", user), ("password", password)]
        if metadata and host.tls == "no":
            raise BadSecret("via=gnmi sends no password without TLS: leave secret= or tls=no out")
        channel = await _channel(host)
        poller = GnmiPoller(channel, metadata, self._interval_s)
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """Do nothing: each session closes its own connection."""


def _load() -> None:
    """Import what the extra installs. Raises ImportError."""
    # Else gRPC writes its log to standard error, onto the screen.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in ("grpc.aio", "pygnmi.spec.v080.gnmi_pb2", "pygnmi.spec.v080.gnmi_pb2_grpc"):
        importlib.import_module(name)


async def _channel(host: Host) -> Any:
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


def _certificates(file: str) -> bytes:
    """The certificates in a file. Raises BadTrust."""
    path = Path(file).expanduser()
    try:
        ssl.create_default_context(cafile=str(path))
        return path.read_bytes()
    except (OSError, ssl.SSLError) as error:
        raise BadTrust(f"{path}: {error.strerror or error}") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Port:
    """What is known of one interface: its values by source, and the device's times of them."""

    def __init__(self) -> None:
        self.facts: dict[str, int | str] = {}
        self.values: dict[str, dict[str, int]] = {}
        self.stamps_ns: dict[str, int] = {}
        self.sent_ns: dict[str, int] = {}
        self.clocks: dict[str, SampleClock] = {}
        self.blocks: dict[str, SourceBlock] = {}


class GnmiPoller:
    """Keeps the streams of one device running; each poll passes on what has arrived since."""

    def __init__(self, channel: Any, metadata: list[tuple[str, str]], interval_s: float) -> None:
        self._channel = channel
        self._metadata = metadata
        self._interval_s = interval_s
        self._ports: dict[str, _Port] = {}
        self._neighbours: dict[tuple[str, str], dict[str, str]] = {}
        self._failures: dict[str, SourceFailure] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._arrived = asyncio.Event()
        self._second_s = 0.0
        self._leaves = self._bytes = 0
        self._lldp: tuple[Object, ...] = ()

    async def poll(self) -> NodeReading:
        """What has arrived. Raises NodeError where the counters' stream ended or never began."""
        if not self._tasks:
            await self._start()
        if not self._ports:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_S):
                    await self._first()
        task = self._tasks[COUNTERS]
        if task.done():
            task.result()
            raise Unreachable("the device ended the subscription to its interface counters")
        blocks = [
            block for name in sorted(self._ports) for block in self._blocks(name, self._ports[name])
        ]
        neighbours = self._neighbour_objects()
        if neighbours:
            blocks.append(SourceBlock(NEIGHBOURS, neighbours, [], time.monotonic_ns()))
        failures = dict(self._failures)
        if not any(block.source == COUNTERS for block in blocks):
            text = "no counters of interfaces yet: /interfaces/interface/state/counters"
            failures[COUNTERS] = SourceFailure("absent", text)
        return NodeReading([*blocks, poll_duration(0)], {}, failures)

    async def close(self) -> None:
        """End the streams and the connection."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._channel.close()

    async def _first(self) -> None:
        """Wait until the first counters have come, or their stream has ended."""
        arrived = asyncio.ensure_future(self._arrived.wait())
        try:
            done = [arrived, self._tasks[COUNTERS]]
            await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()

    async def _start(self) -> None:
        """Ask for the encodings of the device and subscribe. Raises NodeError."""
        encoding = await self._encoding()
        for stream in _STREAMS:
            work = self._run(stream, encoding)
            self._tasks[stream.source] = asyncio.create_task(work, name=f"gNMI {stream.source}")

    async def _encoding(self) -> str:
        from grpc.aio import AioRpcError
        from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

        stub = gnmi_pb2_grpc.gNMIStub(self._channel)
        try:
            reply = await stub.Capabilities(
                gnmi_pb2.CapabilityRequest(), metadata=self._metadata, timeout=_FIRST_S
            )
        except AioRpcError as error:
            raise _error_of(error) from None
        offered = {gnmi_pb2.Encoding.Name(each) for each in reply.supported_encodings}
        return next((each for each in _USUAL_ENCODINGS if each in offered), _USUAL_ENCODINGS[0])

    async def _run(self, stream: _Stream, encoding: str) -> None:
        """Read a subscription until it ends. That of the counters raises NodeError; the others
        become failures of their sources."""
        from grpc.aio import AioRpcError
        from pygnmi.spec.v080 import gnmi_pb2_grpc

        request = _request(stream, encoding, self._interval_s)
        try:
            # The request stream stays open: some devices end a subscription with it.
            call = gnmi_pb2_grpc.gNMIStub(self._channel).Subscribe(metadata=self._metadata)
            await call.write(request)
            while (reply := await call.read()) and hasattr(reply, "update"):
                self._take(reply)
            raise Unreachable("the device ended the subscription", "gnmi")
        except AioRpcError as error:
            failure = _error_of(error)
        except NodeError as error:
            failure = error
        if stream.source == COUNTERS:
            raise failure
        self._failures[stream.source] = SourceFailure(_reason(failure), str(failure))
        self._forget(stream.source)

    def _forget(self, source: str) -> None:
        """Drop what a subscription that ended has said: nothing says any more whether it is so."""
        for port in self._ports.values():
            port.values.pop(source, None)
        if source == NEIGHBOURS:
            self._neighbours.clear()

    def _take(self, reply: Any) -> None:
        """Take a response. Raises Misbehaved for a flood."""
        self._count(0, reply.ByteSize())
        notification = reply.update
        prefix = _elements(notification.prefix)
        for update in notification.update:
            path = (*prefix, *_elements(update.path))
            for leaf in openconfig.leaves(path, _value(update.val)):
                self._count()
                self._add(leaf, notification.timestamp)
        for deleted in notification.delete:
            self._delete((*prefix, *_elements(deleted)))
        if any(COUNTERS in port.values for port in self._ports.values()):
            self._arrived.set()

    def _count(self, leaves: int = 1, size: int = 0) -> None:
        now_s = time.monotonic()
        if now_s - self._second_s >= 1:
            self._second_s, self._leaves, self._bytes = now_s, 0, 0
        self._leaves += leaves
        self._bytes += size
        if self._bytes > _MOST_BYTES_A_SECOND:
            raise Misbehaved(f"sends more than {_MOST_BYTES_A_SECOND >> 20} MiB a second", "flood")
        if self._leaves > _MOST_LEAVES_A_SECOND:
            raise Misbehaved(f"sends more than {_MOST_LEAVES_A_SECOND:,} values a second", "flood")

    def _add(self, leaf: Leaf, stamp_ns: int) -> None:
        if len(leaf.port) > _MOST_TEXT or len(leaf.neighbour) > _MOST_TEXT:
            return
        if leaf.source == NEIGHBOURS:
            key = (leaf.port, leaf.neighbour)
            if key in self._neighbours or len(self._neighbours) < _MOST_NEIGHBOURS:
                self._neighbours.setdefault(key, {})[leaf.name] = str(leaf.value)[:_MOST_TEXT]
            return
        if leaf.port not in self._ports and len(self._ports) >= openconfig.MOST_PORTS:
            return
        port = self._ports.setdefault(leaf.port, _Port())
        if leaf.name in ("ifindex", "type"):
            value = leaf.value
            port.facts[leaf.name] = value[:_MOST_TEXT] if isinstance(value, str) else value
        elif isinstance(leaf.value, int):
            port.values.setdefault(leaf.source, {})[leaf.name] = leaf.value
            before_ns = port.stamps_ns.get(leaf.source, 0)
            is_late = before_ns - _TURNED_BACK_NS < stamp_ns <= before_ns
            port.stamps_ns[leaf.source] = before_ns + 1 if is_late else stamp_ns

    def _delete(self, path: tuple[tuple[str, Keys], ...]) -> None:
        """An interface or a neighbour that is gone."""
        keys = {f"{name}/{key}": value for name, own in path for key, value in own.items()}
        port = keys.get("interface/name", "")
        names = [name for name, _ in path]
        if names[:1] == ["lldp"]:
            self._neighbours.pop((port, keys.get("neighbor/id", "")), None)
        elif names == ["interfaces", "interface"]:
            self._ports.pop(port, None)

    def _blocks(self, name: str, port: _Port) -> Iterable[SourceBlock]:
        """The blocks of an interface: one of each source, with the device's clock."""
        if not openconfig.is_port(port.facts):
            return
        now_ns = time.monotonic_ns()
        for source, values in port.values.items():
            stamp_ns = port.stamps_ns[source]
            metrics = tuple(values)
            facts = {"netdev": name, "driver": "gnmi", "ifindex": port.facts.get("ifindex")}
            known = {key: value for key, value in facts.items() if value is not None}
            objects = (Object(name, "ethernet", name, known, metrics),)
            before = port.blocks.get(source)
            if before is not None and before.objects == objects:
                objects = before.objects
            block = SourceBlock(source, objects, None, now_ns, self._every(source))
            if source == STATE:
                # On change: what is not sent again is still so.
                block = block._replace(values=list(values.values()))
            elif stamp_ns != port.sent_ns.get(source):
                clock = port.clocks.setdefault(source, SampleClock(_TOLERANCE_S))
                at_ns = clock.at(stamp_ns, now_ns)
                if at_ns is not None:
                    block = block._replace(values=list(values.values()), mono_ns=at_ns)
                port.sent_ns[source] = stamp_ns
            port.blocks[source] = block
            yield block

    def _neighbour_objects(self) -> tuple[Object, ...]:
        found = []
        for (dev, number), facts in sorted(self._neighbours.items()):
            if facts.get("system-name"):
                info = {"dev": dev, "peer_node": facts["system-name"]}
                for key, name in (("peer_port", "port-id"), ("peer_port_name", "port-description")):
                    if facts.get(name):
                        info[key] = facts[name]
                found.append(Object(f"{dev}/{number}", "neighbour", None, info, ()))
        objects = tuple(found)
        self._lldp = self._lldp if objects == self._lldp else objects
        return self._lldp

    def _every(self, source: str) -> int:
        seconds = {COUNTERS: _SAMPLE_S, QUEUES: _QUEUES_S}.get(source, 0.0)
        return max(1, round(seconds / self._interval_s))


def _request(stream: _Stream, encoding: str, interval_s: float) -> Any:
    """The message that subscribes to a stream."""
    from pygnmi.spec.v080 import gnmi_pb2

    subscriptions = []
    for text in stream.paths:
        path = gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name=name) for name in text.split("/")])
        if stream.sample_s is None:
            mode, sample_ns = "ON_CHANGE", 0
        else:
            mode, sample_ns = "SAMPLE", int(max(stream.sample_s, interval_s) * 1e9)
        subscriptions.append(
            gnmi_pb2.Subscription(
                path=path,
                mode=gnmi_pb2.SubscriptionMode.Value(mode),
                sample_interval=sample_ns,
            )
        )
    return gnmi_pb2.SubscribeRequest(
        subscribe=gnmi_pb2.SubscriptionList(
            subscription=subscriptions,
            mode=gnmi_pb2.SubscriptionList.Mode.Value("STREAM"),
            encoding=gnmi_pb2.Encoding.Value(encoding),
        )
    )


def _elements(path: Any) -> tuple[tuple[str, Keys], ...]:
    """The elements of a path, without names of modules."""
    return tuple((element.name.rpartition(":")[2], dict(element.key)) for element in path.elem)


def _value(typed: Any) -> Any:
    """The value of a TypedValue: a number, a text, or decoded JSON; None for other kinds."""
    kind = typed.WhichOneof("value")
    if kind in ("json_val", "json_ietf_val"):
        return openconfig.json_value(getattr(typed, kind))
    if kind in ("string_val", "ascii_val", "int_val", "uint_val", "bool_val"):
        return getattr(typed, kind)
    return None


def _error_of(error: Any) -> NodeError:
    """The NodeError for a status of gRPC."""
    code, text = error.code().name, str(error.details() or "")
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return LoginRefused(f"the device refuses: {text or code}")
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return Unreachable(f"no gNMI: {text or code}")
    if code == "RESOURCE_EXHAUSTED":
        return Misbehaved(text or code)
    return Unreachable(f"{code.lower().replace('_', ' ')}: {text}", code)


def _reason(failure: NodeError) -> str:
    """The reason on the wire for a source whose subscription failed."""
    if isinstance(failure, LoginRefused):
        return "denied"
    unsupported = ("UNIMPLEMENTED", "INVALID_ARGUMENT", "NOT_FOUND")
    return "unsupported" if failure.cause in unsupported else "failed"
