"""Switches and managers that lie: what they answer is read or refused, and the watch goes on."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Frame, Hello, Notice, WireError, check, decode
from fabmon.feeds import token_bucket
from fabmon.feeds.errors import Misbehaved, NodeError
from fabmon.feeds.http_client import ApiServer, HttpClient, HttpReply
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.ticks import Inbox
from fabmon.feeds.token_bucket import CPU_BURST_S, CPU_SHARE, TokenBucket
from fabmon.feeds.transports import ufm
from fabmon.feeds.transports.eapi import EapiPoller, EapiTransport
from fabmon.feeds.transports.polled import PolledSession, Poller
from fabmon.feeds.transports.ufm import TelemetryEndpoint, UfmPoller, UfmTransport
from tests.builders import new_pipeline, up
from tests.fixtures.eos import Switch
from tests.fixtures.ufm import Manager, rest
from tests.fuzzing import PATIENCE_S, try_cases
from tests.unit.feeds.test_wire_fuzz import HOSTILE, PIECES

LINES = 8
SERVER = ApiServer("http://127.0.0.1:1", True)


def lie(value: Any, chance: random.Random, share: float) -> Any:
    """A JSON value, a share of whose parts and names are others."""
    if chance.random() < share:
        return chance.choice((*HOSTILE, *PIECES, 1e308, "9" * 5000))
    if isinstance(value, dict):
        return {
            key if chance.random() > share else key + chance.choice(PIECES): lie(it, chance, share)
            for key, it in value.items()
        }
    return [lie(each, chance, share) for each in value] if isinstance(value, list) else value


class Liar(HttpClient):
    """Answers as a switch or a manager does, with some of it changed."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._share = chance.choice((0.001, 0.01, 0.1, 0.5))
        self._switch, self._manager = Switch(), Manager()
        self._manager.described = chance.random() < 0.5

    async def fetch(
        self, server: ApiServer, path: str, timeout_s: float, *, json: Any = None, **_: Any
    ) -> HttpReply:
        """The changed answer."""
        if path.endswith("csv"):
            return HttpReply(self._csv().encode("utf-8", "replace"), "text/csv")
        true = rest(path.strip("/")) if json is None else self._switch.reply(json)
        return HttpReply(_document(lie(true, self._chance, self._share)), "application/json")

    def _csv(self) -> str:
        self._manager.sample += 1
        rows = [line.split(",") for line in self._manager.csv().splitlines()]
        return "\n".join(
            ",".join(str(lie(cell, self._chance, self._share)) for cell in row) for row in rows
        )


class Counting(Liar):
    """Answers the truth, and counts how often it was asked."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._share, self.asked = 0.0, 0

    async def fetch(self, *arguments: Any, **named: Any) -> HttpReply:
        """The answer."""
        self.asked += 1
        return await super().fetch(*arguments, **named)


def _document(value: Any) -> bytes:
    return json.dumps(value).encode()


def eapi_of(client: HttpClient) -> Poller:
    return EapiPoller(client, SERVER, 1.0, budget())


def ufm_of(client: HttpClient) -> Poller:
    endpoint = TelemetryEndpoint(SERVER, "/csv", "9001/csv/metrics")
    return UfmPoller(client, [endpoint], SERVER, 1.0, budget())


def budget() -> TokenBucket:
    return TokenBucket(CPU_BURST_S, CPU_SHARE, time.monotonic())


async def watched(poller: Poller, host: Host, lines: int) -> None:
    """The lines of a session through the checks and the analysis of a run. Raises NodeError and
    WireError where it is refused."""
    session = PolledSession(poller, "a", 0.001)
    limits, inbox, pipeline = HelloLimits(host), Inbox(1), new_pipeline([host])
    inbox.statuses.append(*up("a"))
    hello: Hello | None = None
    try:
        for seq in range(lines):
            message = decode(await session.readline())
            if isinstance(message, Hello):
                limits.admit(message)
                inbox.add_hello("a", hello := message, continues=False)
            elif isinstance(message, Frame) and hello is not None:
                check(message, hello)
                inbox.add_frame("a", message)
            elif isinstance(message, Notice):
                inbox.notices.append(("a", message))
            pipeline.accept(inbox.take(seq, 10**18 + seq * 10**9))
    finally:
        await session.close()


@pytest.mark.parametrize("poller_of", [eapi_of, ufm_of])
async def test_who_cost_its_share_of_the_cpu_is_not_asked_for_a_while(
    poller_of: Callable[[HttpClient], Poller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an answer costs to decode is counted, whether it can be used or not."""
    monkeypatch.setattr(ufm, "MIN_POLL_S", 0.0)
    monkeypatch.setattr("fabmon.feeds.transports.polled.PAUSE_FACTOR", 0)
    # 8 s for each function that decodes.
    spent = (number for each in itertools.count() for number in (8.0 * each, 8.0 * each + 8.0))
    monkeypatch.setattr(
        token_bucket,
        "time",
        SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: next(spent)),
    )
    client = Counting(random.Random(1))
    poller = poller_of(client)
    await poller.poll()
    asked = client.asked
    quiet = await poller.poll()
    assert client.asked == asked > 0
    assert {block.source for block in quiet.blocks if block.values is not None} == {"probe"}


async def test_a_session_waits_until_the_budget_of_the_last_one_is_there_again(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("admin:secret\n")
    secret.chmod(0o600)
    host = Host(name="a", address="127.0.0.1", secret=str(secret), tls="no")
    for transport in (EapiTransport(ProbeSettings()), UfmTransport(ProbeSettings())):
        transport._budgets.of("a").take(CPU_BURST_S + 1, time.monotonic())
        with pytest.raises(Misbehaved, match=r"0\.1 s of CPU time a second; not asked for 10 s"):
            await transport.open(host)
        await transport.close()


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("poller_of", [eapi_of, ufm_of])
def test_what_a_switch_or_manager_answers_is_read_or_refused(
    poller_of: Callable[[HttpClient], Poller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ufm, "MIN_POLL_S", 0.0)
    monkeypatch.setattr("fabmon.feeds.transports.polled.PAUSE_FACTOR", 0)

    def attempt(chance: random.Random) -> None:
        try:
            asyncio.run(watched(poller_of(Liar(chance)), Host(name="a", via="ufm"), LINES))
        except (NodeError, WireError):
            return  # Refused.

    try_cases(attempt, share=1 / 8)
