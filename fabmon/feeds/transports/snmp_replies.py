"""Which packets pysnmp may decode: a few for each request, from the address that was asked.

pysnmp takes an answer from any address, with request ids that count up: an agent that is asked with
the same community could answer for others. It decodes what nobody asked for too, at 0.1 ms a value,
on the thread that all agents share.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_LOG = logging.getLogger("fabmon.feeds")

_MOST_BYTES = 16_384
"""Bytes of a packet: 40 values of 255 bytes with their OIDs."""
_MOST_PACKETS = 9
"""Packets of one request: with version 3 two reports and an answer, for it and two repetitions."""


class Awaited:
    """One request: the packets that are still taken for it, and the CPU time that they took."""

    def __init__(self) -> None:
        self.packets = _MOST_PACKETS
        self.spent_s = 0.0


class ReplyFilter:
    """The requests of all agents that wait for an answer. It is used on one thread."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[str, int], list[Awaited]] = {}
        self._has_failed = False

    @contextmanager
    def awaiting(self, address: Sequence[Any]) -> Iterator[Awaited]:
        """Take packets from this address meanwhile."""
        waiting = self._awaited.setdefault(_key(address), [])
        waiting.append(awaited := Awaited())
        try:
            yield awaited
        finally:
            waiting.remove(awaited)
            if not waiting:
                del self._awaited[_key(address)]

    def decode(self, address: Sequence[Any], packet: bytes, decoder: Callable[[], object]) -> None:
        """Have a packet decoded if something waits for it; what the decoder raises is logged once:
        anyone can send as many as they like."""
        waiting = self._awaited.get(_key(address), ())
        awaited = next((each for each in waiting if each.packets), None)
        if awaited is None or len(packet) > _MOST_BYTES:
            return
        awaited.packets -= 1
        began_s = time.thread_time()
        try:
            decoder()
        except Exception:  # pysnmp and pyasn1 raise any kind, in their own words
            if not self._has_failed:
                self._has_failed = True
                host, port = _key(address)
                text = "SNMP: %s:%d sends packets that are no SNMP: they are dropped"
                _LOG.warning(text, host, port)
        finally:
            awaited.spent_s += time.thread_time() - began_s

    def target(self, kind: Any) -> Any:
        """A transport target of pysnmp, for IPv4 or IPv6, whose packets are filtered."""
        replies = self

        class Transport(kind.PROTO_TRANSPORT):  # type: ignore[misc]
            def register_callback(self, callback: Callable[..., object]) -> None:
                def filtered(transport: Any, address: Sequence[Any], packet: bytes) -> None:
                    replies.decode(address, packet, lambda: callback(transport, address, packet))

                super().register_callback(filtered)

        class Target(kind):  # type: ignore[misc]
            PROTO_TRANSPORT = Transport

        return Target


def _key(address: Sequence[Any]) -> tuple[str, int]:
    """Host and port of a socket's address; of IPv6 without its zone."""
    return str(address[0]).partition("%")[0], int(address[1])
