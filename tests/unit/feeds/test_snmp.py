"""Switches over SNMP: a real snmpd, versions 2c and 3, compared with the kernel's counters."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.hosts.hosts_file import parse
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello, Notice
from fabmon.feeds.errors import BadSecret, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.token_bucket import CPU_BURST_S, CPU_SHARE, TokenBucket
from fabmon.feeds.transports import snmp_mibs
from fabmon.feeds.transports.polled import (
    Counter32Extender,
    PolledSession,
    SampleClock,
    newest_change,
)
from fabmon.feeds.transports.snmp import SnmpPoller, SnmpTransport
from fabmon.feeds.transports.snmp_client import (
    Oid,
    SnmpAgent,
    SnmpCredentials,
    SnmpTable,
    SnmpThread,
    _python_value,
    parse_credentials,
)
from fabmon.feeds.transports.snmp_replies import ReplyFilter
from tests.builders import hello, port
from tests.fixtures.in_namespace import ROOT, can_have_one
from tests.goldens import check_golden
from tests.requirements import need, need_package
from tests.unit.feeds.session_reading import read_messages
from tests.unit.feeds.snmp_in_namespace import FRAMES, SIZE
from tests.unit.feeds.snmp_server import COMMUNITY, USER, Snmpd

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Snmpd]:
    made = Snmpd(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def transport() -> AsyncIterator[SnmpTransport]:
    made = SnmpTransport(ProbeSettings(interval_s=0.1))
    yield made
    await made.close()


def host(agent: Snmpd, directory: Path, secret: str = COMMUNITY) -> Host:
    file = directory / "secret"
    file.write_text(f"{secret}\n")
    file.chmod(0o600)
    return Host(name="switch7", address="127.0.0.1", port=agent.port, via="snmp", secret=str(file))


async def error_of(transport: SnmpTransport, host: Host) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await (await transport.open(host)).readline()
    return caught.value


@pytest.mark.parametrize("secret", [COMMUNITY, USER])
async def test_an_agent_names_itself(
    agent: Snmpd, transport: SnmpTransport, tmp_path: Path, secret: str
) -> None:
    switch_hello = (await read_messages(await transport.open(host(agent, tmp_path, secret)), 1))[0]
    assert isinstance(switch_hello, Hello)
    assert (switch_hello.hostname, switch_hello.kernel.split()[0]) == ("switch7", "Linux")
    assert switch_hello.boot_id


def in_namespace(scene: str, directory: Path) -> dict[str, Any]:
    need("a network namespace with a veth", can_have_one(), "run as root")
    program = [sys.executable, "-W", "error", "-m", "tests.unit.feeds.snmp_in_namespace"]
    done = subprocess.run(
        ["unshare", "--net", "--mount", *program, scene, str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_the_counters_equal_those_of_the_kernel(tmp_path: Path) -> None:
    seen = in_namespace("counters", tmp_path)
    assert sorted(set(seen["ports"])) == ["far1", "far2", "swp1", "swp2"]
    before, after, kernel = seen["before"], seen["after"], seen["kernel"]
    assert kernel["phy_tx_bytes"] >= FRAMES * SIZE
    assert before["phy_tx_bytes"] is None, "the age of the first values is unknown"
    assert {metric: after[metric] for metric in kernel} == kernel
    assert (before["netdev_up"], seen["down"]["netdev_up"]) == (1, 0)
    assert before["netdev_speed_bps"] == 10e9


async def test_a_wrong_secret_has_its_own_error(
    agent: Snmpd, transport: SnmpTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("fabmon.feeds.transports.snmp_client._TIMEOUT_S", 0.2)
        error = await error_of(transport, host(agent, tmp_path, "guess"))
    assert (type(error), error.cause) == (Unreachable, "timeout")
    assert "an agent does not answer a wrong community either" in str(error)
    for wrong in ("authpassword AES otherpassword", "otherpassword AES privpassword"):
        error = await error_of(transport, host(agent, tmp_path, f"v3 fabmon SHA256 {wrong}"))
        assert isinstance(error, (LoginRefused, Unreachable))
        assert "password" not in str(error)
    error = await error_of(transport, host(agent, tmp_path, "v3 nobody SHA authpassword"))
    assert isinstance(error, LoginRefused)
    error = await error_of(transport, host(agent, tmp_path, "v3 fabmon SHA256 authpassword"))
    assert isinstance(error, LoginRefused)


async def test_an_account_without_read_access_is_reported(
    agent: Snmpd, transport: SnmpTransport, tmp_path: Path
) -> None:
    messages = await read_messages(await transport.open(host(agent, tmp_path, "system")), 1)
    assert [(each.source, each.reason) for each in messages if isinstance(each, Notice)] == [
        ("snmp", "absent")
    ]


async def test_an_agent_that_restarts_is_a_new_boot(
    agent: Snmpd, transport: SnmpTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.transports.snmp_client._TIMEOUT_S", 0.6)
    monkeypatch.setattr("fabmon.feeds.transports.snmp._REBOOT_S", 0.5)
    session = await transport.open(host(agent, tmp_path))
    first = (await read_messages(session, 3))[0]
    await asyncio.sleep(1.2)
    await asyncio.to_thread(agent.kill)
    await asyncio.to_thread(agent.start)
    again: Hello | None = None
    while again is None:
        again = next((e for e in await read_messages(session, 1) if isinstance(e, Hello)), None)
    assert isinstance(first, Hello)
    assert again.boot_id != first.boot_id
    await asyncio.to_thread(agent.kill)
    # It is not polled during its pause.
    with pytest.raises(Unreachable):
        await read_messages(session, 100)


async def test_cables_come_from_lldp(transport: SnmpTransport, tmp_path: Path) -> None:
    names = sorted(name for _, name in socket.if_nameindex() if name != "lo")
    need("a network interface", bool(names), "run where there is one")
    agent = Snmpd(tmp_path, names[0])
    agent.start()
    try:
        switch_hello = (await read_messages(await transport.open(host(agent, tmp_path)), 1))[0]
    finally:
        agent.kill()
    assert isinstance(switch_hello, Hello)
    infos = [item.info for item in switch_hello.blocks[0].objects]
    assert infos == [
        {"dev": names[0], "peer_node": "spine1", "peer_port": "Ethernet49"},
        {
            "dev": names[0],
            "peer_node": "gpu001",
            "peer_port": "ens1np0",
            "mac": "b8:ce:f6:00:00:01",
        },
    ]
    # Two neighbours on one port: it is unknown which of them is at the end of the cable.
    hellos = {
        "switch7": switch_hello,
        "spine1": hello(port("Ethernet49")),
        "gpu001": hello(port("eth0")),
    }
    hosts = [Host(name="switch7", role="switch"), Host(name="spine1"), Host(name="gpu001")]
    fabric = build(hosts, {**hellos}, PortRows(), 1)
    assert {p.name: p.peer for p in fabric.node("switch7").ports}[names[0]] is not None


async def test_nothing_blocks_the_loop(
    agent: Snmpd, transport: SnmpTransport, tmp_path: Path
) -> None:
    where = host(agent, tmp_path)
    # The SNMP thread has its own event loop, which may block.
    thread = [f"fabmon.feeds.transports.{name}" for name in ("snmp_client", "snmp_replies")]
    with blockbuster_ctx("fabmon", excluded_modules=thread):
        await read_messages(await transport.open(where), 2)


async def test_without_pysnmp_the_error_has_the_install_command(
    agent: Snmpd, transport: SnmpTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unreachable, match=r"extra fabmon\[snmp\]"):
        await transport.open(host(agent, tmp_path))


class Scripted(SnmpAgent):
    """An agent with one port; each read of traffic returns the next step."""

    def __init__(self, *steps: tuple[int, int]) -> None:
        self.steps = list(steps)
        self.requests = 0
        self.spent_s = 0.0

    async def get(self, oids: Any) -> list[int | bytes | None]:
        return [b"switch7", None]

    async def table(self, columns: Any) -> SnmpTable:
        found: dict[Oid, dict[Oid, int | bytes]] = {column: {} for column in columns}
        if snmp_mibs.IN_OCTETS in found:
            self.requests += 1
        uptime_cs, octets = self.steps[min(max(self.requests, 1), len(self.steps)) - 1]
        rows: dict[Oid, int | bytes] = {
            snmp_mibs.IF_TYPE: 6,
            snmp_mibs.IF_NAME: b"swp1",
            snmp_mibs.IF_OPER: 1,
            snmp_mibs.IN_OCTETS: octets,
            snmp_mibs.OUT_OCTETS: 0,
        }
        for column, value in rows.items():
            if column in found:
                found[column][(1,)] = value
        return SnmpTable(uptime_cs, found)


class Circling(SnmpAgent):
    """An agent whose rows repeat without end."""

    def __init__(self) -> None:
        self.requests = 0

    async def request(self, command: Any, numbers: Any, oids: Any) -> Any:
        self.requests += 1
        column = snmp_mibs.IN_OCTETS
        rows = [((*column, 1), 10), ((*column, 2), 20), ((*column, 1), 30)]
        return [(oids[0], 100), *rows]


async def test_reading_a_table_with_repeating_rows_ends() -> None:
    agent = Circling()
    table = await agent.table([snmp_mibs.IN_OCTETS])
    assert table.columns[snmp_mibs.IN_OCTETS] == {(1,): 10, (2,): 20}
    assert agent.requests == 1


class Endless(SnmpAgent):
    """An agent whose tables have no end."""

    def __init__(self) -> None:
        self._name, self.values = "switch7", 0

    async def request(self, command: Any, numbers: Any, oids: Any) -> Any:
        binds = [(oids[0], 100)]
        for row in range(1, numbers[1] + 1):
            binds += [((*each[:11], sum(each[11:]) + row), 6) for each in oids[1:]]
        self.values += len(binds)
        return binds


async def test_a_table_without_end_is_refused() -> None:
    agent = Endless()
    with pytest.raises(Misbehaved, match="switch7: a table of more than 10,000 rows"):
        await agent.table(snmp_mibs.TRAFFIC[:2])
    assert agent.values < 25_000


def test_a_text_of_an_agent_is_as_long_as_its_kind_may_be() -> None:
    univ = pytest.importorskip("pyasn1.type.univ")
    assert _python_value(univ.OctetString(b"A" * 60_000)) == b"A" * 255


def test_a_reply_that_no_agent_sends_is_refused_as_a_whole() -> None:
    univ = pytest.importorskip("pyasn1.type.univ")
    agent = SnmpAgent("switch7", None, None, None, ReplyFilter())
    row = ((1, 3, 7), univ.Integer(5))
    assert agent._read([row, ((1, 3, 8), univ.Integer(1 << 64))], 2) == [
        ((1, 3, 7), 5), ((1, 3, 8), None)
    ]  # fmt: skip
    for reply in ([], [row]):
        with pytest.raises(Misbehaved, match="2 objects requested"):
            agent._read(reply, 2)
    with pytest.raises(Misbehaved, match="more than 32 bits"):
        agent._read([((1, 3, 10**5000), univ.Integer(5))], 1)


async def test_packets_that_the_decoder_fails_on_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    thread = SnmpThread()

    async def receive() -> None:
        for _ in range(3):
            asyncio.get_running_loop().call_soon(b"".index, b"x")
        await asyncio.sleep(0)

    await thread.run(receive())
    await thread.close()
    assert caplog.messages == ["SNMP: packets are dropped: subsection not found"]


class Liar(asyncio.DatagramProtocol):
    """Answers requests with what `answers` makes of them, from the socket `voice`."""

    def __init__(self, answers: Callable[[bytes], list[bytes]], voice: socket.socket) -> None:
        self._answers = answers
        self._voice = voice

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer a request."""
        for packet in self._answers(data):
            self._voice.sendto(packet, addr)


async def lied_to(
    answers: Callable[[bytes], list[bytes]], from_elsewhere: bool = False
) -> tuple[SnmpAgent, list[int | bytes | None] | NodeError]:
    """An agent that lies, and what is read of its name."""
    asked, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for each in (asked, other):
        each.setblocking(False)
        each.bind(("127.0.0.1", 0))
    where: tuple[str, int] = asked.getsockname()
    loop, thread = asyncio.get_running_loop(), SnmpThread()
    voice = other if from_elsewhere else asked
    server, _ = await loop.create_datagram_endpoint(lambda: Liar(answers, voice), sock=asked)
    agent = await thread.agent(*where, parse_credentials("community"))
    found: list[int | bytes | None] | NodeError
    try:
        found = await thread.run(agent.get([(1, 3, 6, 1, 2, 1, 1, 5, 0)]))
    except NodeError as error:
        found = error
    await thread.close()
    server.close()
    other.close()
    return agent, found


def answer(request: bytes, objects: int = 1) -> list[bytes]:
    """The answer to a request, with its id: `objects` times the name `evil`."""
    from pyasn1.codec.ber import decoder, encoder
    from pysnmp.proto.api import v2c

    message, _ = decoder.decode(request, asn1Spec=v2c.Message())
    reply = v2c.apiMessage.get_response(message)
    name = ((1, 3, 6, 1, 2, 1, 1, 5, 0), v2c.OctetString("evil"))
    v2c.apiPDU.set_varbinds(v2c.apiMessage.get_pdu(reply), [name] * objects)
    return [encoder.encode(reply)]


async def test_an_answer_counts_from_the_address_that_was_asked() -> None:
    """Request ids count up: a switch with the same community answered for any other."""
    need_package("pysnmp")
    _, found = await lied_to(answer)
    assert found == [b"evil"]
    _, found = await lied_to(answer, from_elsewhere=True)
    assert isinstance(found, Unreachable)
    assert "no answer from there" in str(found)


def test_packets_that_nobody_asked_for_are_not_decoded() -> None:
    """100 packets of 8,000 objects took the thread of all agents a minute, and were not counted."""
    replies, decoded = ReplyFilter(), Counter[str]()
    asked, zoned = ("fe80::1", 161, 0, 2), ("fe80::1%eth0", 161, 0, 2)

    def flood(when: str) -> None:
        for _ in range(100):
            replies.decode(asked, b"x", lambda: decoded.update([when]))

    flood("before")
    with replies.awaiting(asked), replies.awaiting(asked) as second:
        replies.decode(zoned, b"x", lambda: decoded.update(["its zone"]))
        replies.decode(("fe80::2", 161), b"x", lambda: decoded.update(["another host"]))
        replies.decode(("fe80::1", 162), b"x", lambda: decoded.update(["another port"]))
        replies.decode(asked, b"x" * 16_385, lambda: decoded.update(["too large"]))
        flood("meanwhile")
    flood("after")
    assert decoded == {"its zone": 1, "meanwhile": 17}
    assert second.spent_s > 0


async def test_what_is_no_snmp_is_logged_once_in_plain_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    need_package("pysnmp")
    long_number = b"\x02\x82\x20\x00" + b"\x7f" * 8192
    pdu = b"\xa2\x82\x20\x0c" + long_number + b"\x02\x01\x00" * 2 + b"\x30\x00"
    packet = b"\x30\x82\x20\x1a" + b"\x02\x01\x01" + b"\x04\x04abcd" + pdu
    agent, _ = await lied_to(lambda _: [packet] * 2)
    assert caplog.messages == [
        f"SNMP: {agent._name} sends packets that are no SNMP: they are dropped"
    ]


def budget() -> TokenBucket:
    return TokenBucket(CPU_BURST_S, CPU_SHARE, time.monotonic())


class Costly(SnmpAgent):
    """An agent whose replies take 8 s of CPU, and are refused."""

    def __init__(self) -> None:
        self.spent_s, self.requests = 0.0, 0

    async def table(self, columns: Any) -> SnmpTable:
        self.requests += 1
        self.spent_s += 8.0
        raise Misbehaved("a table of more than 10,000 rows")


async def test_an_agent_is_left_alone_once_it_cost_its_share_of_the_cpu(
    transport: SnmpTransport, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("public\n")
    secret.chmod(0o600)
    switch = Host(name="switch7", address="127.0.0.1", port=9, via="snmp", secret=str(secret))
    session = await transport.open(switch)
    assert isinstance(session, PolledSession)
    poller = session._poller
    assert isinstance(poller, SnmpPoller)
    poller._agent = agent = Costly()
    for _ in range(2):
        with pytest.raises(Misbehaved, match="10,000 rows"):
            await poller.poll()
    quiet = await poller.poll()
    assert agent.requests == 2
    assert [block.source for block in quiet.blocks] == ["probe"]
    await session.close()
    with pytest.raises(Misbehaved, match=r"0\.1 s of CPU time a second; not asked for "):
        await transport.open(switch)


async def samples(*steps: tuple[int, int]) -> list[list[int | None] | None]:
    """The counter block of each poll, with the clock relative to the first."""
    thread = SnmpThread()
    poller = SnmpPoller(thread, Scripted(*steps), 1.0, budget())
    blocks: list[list[int | None] | None] = []
    start_ns: int | None = None
    for _ in steps:
        poller.pause_until_s = 0.0
        block = next(block for block in (await poller.poll()).blocks if block.source == "snmp")
        start_ns = block.mono_ns if start_ns is None else start_ns
        values = None if block.values is None else [block.mono_ns - start_ns, *block.values]
        blocks.append(values)
    await thread.close()
    return blocks


async def test_unchanged_counters_are_no_sample() -> None:
    blocks = await samples(*((100 + 100 * second, 5 + second // 3 * 4) for second in range(7)))
    assert blocks[0] == [0, 1, None, None], "the age of the first values is unknown"
    assert blocks[1:3] == blocks[4:6] == [None, None]
    assert blocks[6] == [5_500_000_000, 1, 13, 0], "read between the last two polls"


async def test_an_agent_is_not_polled_during_its_pause() -> None:
    thread = SnmpThread()
    agent = Scripted((100, 5), (200, 6))
    poller = SnmpPoller(thread, agent, 1.0, budget())
    await poller.poll()
    poller.pause_until_s += 60
    quiet = await poller.poll()
    assert agent.requests == 1
    assert [block.values for block in quiet.blocks if block.source == "snmp"] == [None]
    await thread.close()


def test_a_clock_that_jumps_is_not_followed() -> None:
    clock = SampleClock(5.0)
    second = 1_000_000_000
    assert clock.at(100 * second, 7 * second) == 7 * second
    assert clock.at(100 * second, 8 * second) is None
    assert clock.at(103 * second, 9 * second) == 10 * second
    assert clock.at(9000 * second, 10 * second) == 11 * second
    assert clock.at(50 * second, 12 * second) == 13 * second
    assert clock.at(51 * second, 13 * second) == 14 * second


def test_a_clock_that_hardly_moves_is_not_followed() -> None:
    """Its counters had rates of more than any port has: those of a second over a nanosecond."""
    clock = SampleClock(5.0)
    second = 1_000_000_000
    assert clock.at(100 * second, 7 * second) == 7 * second
    assert clock.at(100 * second + 1, 8 * second) == 8 * second
    assert clock.at(100 * second + 2, 9 * second) == 9 * second


def test_a_port_that_counts_while_its_switch_answers_does_not_move_the_clock() -> None:
    """Its time came one reply late and was taken for a step back: the clock ran 3 s in 2 s."""
    clock, second = SampleClock(10.0), 1_000_000_000
    ports = {"early": 8_700_000_000, "late": 10_800_000_000}
    newest = newest_change({}, ports)
    assert newest is not None
    start_ns = clock.at(newest, 0)
    assert start_ns == 0
    for reply in range(1, 101):
        # Both count every 2 s, after the reply has listed the first one and before the second.
        name = "early" if reply % 2 else "late"
        now = {**ports, name: ports[name] + 2 * second}
        newest = newest_change(ports, now)
        assert newest is not None
        clock.at(newest, reply * second)
        ports = now
    assert clock.now_ns == pytest.approx(100 * second, abs=2 * second)


def test_a_clock_that_jumps_ahead_and_back_is_silent_for_no_longer_than_a_sample() -> None:
    clock, second = SampleClock(5.0), 1_000_000_000
    assert clock.at(100 * second, 0) == 0
    assert clock.at(9000 * second, 2 * second) == 2 * second
    assert clock.at(104 * second, 4 * second) == 4 * second
    assert clock.at(106 * second, 6 * second) == 6 * second
    assert clock.at(105 * second, 8 * second) is None
    assert clock.at(107 * second, 10 * second) == 7 * second


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_32_bit_counters_continue_after_a_wrap(start: int, steps: list[int]) -> None:
    wide, true = Counter32Extender(), start
    assert wide.extend(("swp1", "x"), start) == start
    for step in steps:
        true += step
        assert wide.extend(("swp1", "x"), true % 2**32) == true


def test_a_decreased_counter_is_a_reset_and_an_absent_one_is_none() -> None:
    wide = Counter32Extender()
    assert wide.extend(("swp1", "x"), 1000) == 1000
    assert wide.extend(("swp1", "x"), None) is None
    assert wide.extend(("swp1", "x"), 10) == 10


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("public", SnmpCredentials("public")),
        ("two words: here", SnmpCredentials("two words: here")),
        ("v3 me SHA-1 12345678", SnmpCredentials("", "me", "SHA", "12345678")),
        (
            "v3 me sha-256 'a b c d e' aes-128 12345678",
            SnmpCredentials("", "me", "SHA256", "a b c d e", "AES", "12345678"),
        ),
    ],
)
def test_secrets(line: str, meant: SnmpCredentials) -> None:
    assert parse_credentials(line) == meant


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("v3 me", "v3 USER AUTH PASSWORD"),
        ("v3 me ROT13 hunter2hunter2", "unknown authentication: use one of MD5, SHA"),
        ("v3 me SHA hunter2hunter2 ROT13 hunter2hunter2", "unknown encryption"),
        ("v3 me SHA hunter2", "8 characters or more"),
        ("v3 me SHA 'hunter2", "a quote that is not closed"),
    ],
)
def test_bad_secrets_are_explained_and_not_repeated(line: str, reason: str) -> None:
    with pytest.raises(BadSecret, match=reason) as caught:
        parse_credentials(line)
    assert "hunter2" not in str(caught.value)


def test_via_snmp_is_a_switch() -> None:
    (found,) = parse("leaf1 via=snmp secret=/etc/fabmon/snmp\n", "hosts.txt")
    assert found.role == "switch"


def test_fabmon_shows_the_switch(tmp_path: Path) -> None:
    """End to end: hosts file, snmpd, rates, and the printed table."""
    seen = in_namespace("table", tmp_path)
    assert seen["status"] == 0, seen["errors"]
    text = "\n".join(seen["out"].splitlines()[:-2])
    # The traffic depends on the speed of this machine.
    text = re.sub(r"[0-9.]+\s[kM]b/s", "some Mb/s", text)
    text = re.sub(r"(?<!\S)(0\.\d+|[1-9][0-9.]*)\s%", "some %", text)
    check_golden(GOLDENS / "snmp-table.txt", re.sub(r" {2,}", "  ", text) + "\n")
