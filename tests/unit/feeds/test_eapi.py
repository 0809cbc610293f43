"""Arista switches over eAPI: a server with real TLS that replies like EOS."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from blockbuster import blockbuster_ctx

from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.hosts.hosts_file import HostsFileError, parse
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Frame, Hello, Notice
from fabmon.feeds.errors import BadSecret, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports import eapi_show
from fabmon.feeds.transports.eapi import EapiTransport
from tests import requirements
from tests.builders import hello, port
from tests.fixtures.eos import BYTES_A_SECOND, Switch
from tests.goldens import check_golden
from tests.unit.feeds.certificates import self_made
from tests.unit.feeds.session_reading import read_messages, values_of

GOLDENS = Path(__file__).parent / "goldens"
CAPTURES = Path(__file__).parents[4] / "shared" / "hardware" / "switch"
LOGIN = "Basic " + base64.b64encode(b"fabmon:pa:ss").decode()


class Served:
    """A switch served over TLS; records the requests."""

    def __init__(self, directory: Path) -> None:
        self.switch = Switch()
        self.reply: Any = self.switch.reply
        self.status = 200
        self.logins: set[str] = set()
        self.secret = directory / "secret"
        self.secret.write_text("fabmon:pa:ss\n")
        self.secret.chmod(0o600)
        self._context, self.trusted = self_made(directory)
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/command-api", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def host(self, **more: Any) -> Host:
        given = {"secret": str(self.secret), "tls": str(self.trusted), **more}
        return Host(name="leaf1", address="127.0.0.1", port=self.port, via="eapi", **given)

    async def _answer(self, request: web.Request) -> web.Response:
        self.logins.add(request.headers.get("Authorization", ""))
        if request.headers.get("Authorization") != LOGIN:
            return web.Response(status=401)
        if self.status != 200:
            return web.Response(status=self.status, headers={"Location": "http://127.0.0.1:1/"})
        return web.json_response(self.reply(await request.json()))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def transport(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EapiTransport]:
    monkeypatch.setattr("fabmon.feeds.transports.polled.PAUSE_FACTOR", 0)
    made = EapiTransport(ProbeSettings(interval_s=0.05))
    yield made
    await made.close()


async def first_frame(served: Served, transport: EapiTransport) -> tuple[Hello, Frame]:
    messages = await read_messages(await transport.open(served.host()), 1)
    hello, frame = messages[0], messages[-1]
    assert isinstance(hello, Hello)
    assert isinstance(frame, Frame)
    return hello, frame


async def test_the_data_of_a_switch_becomes_a_hello(
    served: Served, transport: EapiTransport
) -> None:
    switch_hello, _ = await first_frame(served, transport)
    facts = {
        "hostname": switch_hello.hostname,
        "kernel": switch_hello.kernel,
        "boot_id": switch_hello.boot_id,
    }
    lines = [json.dumps(facts)]
    for block in switch_hello.blocks:
        lines.append(f"{block.source} every {block.every}")
        for item in block.objects:
            metrics = " ".join(item.metrics)
            lines.append(f"  {item.id} {item.kind} {json.dumps(item.info)} {metrics}".rstrip())
    check_golden(GOLDENS / "eapi-hello.txt", "\n".join(lines) + "\n")


async def test_counters_are_in_the_catalogs_units(served: Served, transport: EapiTransport) -> None:
    served.switch.second = 2
    values = values_of(*(await first_frame(served, transport)), "Ethernet1/1")
    assert values["phy_tx_bytes"] == 7_000 + 2 * BYTES_A_SECOND
    assert values["phy_rx_packets"] == 2 * BYTES_A_SECOND // 8000 + 11
    assert values["netdev_speed_bps"] == 400e9
    assert values["pfc_rx_frames"] == values["pfc_rx_frames_prio3"] == 200
    assert values["pfc_rx_frames_prio4"] == 0
    assert values["queue3_tx_drops"] == values["phy_tx_discards"] == 24
    assert values["queue0_tx_bytes"] == 2 * 2 * 4_000_000
    assert values["phy_tx_ecn_marked"] == values["queue3_tx_ecn_marked"] == 1000
    assert "queue4_tx_ecn_marked" not in values


async def test_rates_use_the_clock_of_the_switch(served: Served, transport: EapiTransport) -> None:
    session = await transport.open(served.host())
    switch_hello, first = await read_messages(session, 1)
    assert isinstance(switch_hello, Hello)
    assert isinstance(first, Frame)
    position = [block.source for block in switch_hello.blocks].index("interfaces")
    (same,) = await read_messages(session, 1)
    assert isinstance(same, Frame)
    assert same.blocks[position] is None
    served.switch.second = 3
    (later,) = await read_messages(session, 1)
    assert isinstance(later, Frame)
    before, after = first.blocks[position], later.blocks[position]
    assert before is not None
    assert after is not None
    assert after[0] - before[0] == 3_000_000_000  # type: ignore[operator]


async def test_an_interface_whose_time_stays_in_the_future_does_not_stop_the_others(
    served: Served, transport: EapiTransport
) -> None:
    def ahead(request: Any) -> Any:
        reply = served.switch.reply(request)
        for shown in reply["result"]:
            port = shown.get("interfaces", {}).get("Ethernet3/1", {})
            if "interfaceCounters" in port:
                port["interfaceCounters"]["counterRefreshTime"] = 4e9
        return reply

    served.reply = ahead
    session = await transport.open(served.host())
    switch_hello, before = await read_messages(session, 1)
    (same,) = await read_messages(session, 1)
    served.switch.second = 3
    (after,) = await read_messages(session, 1)
    assert isinstance(switch_hello, Hello)
    assert isinstance(before, Frame)
    assert isinstance(same, Frame)
    assert isinstance(after, Frame)
    position = [block.source for block in switch_hello.blocks].index("interfaces")
    assert same.blocks[position] is None
    assert values_of(switch_hello, after, "Ethernet1/1")["phy_tx_bytes"] == (
        7_000 + 3 * BYTES_A_SECOND
    )


async def test_an_unknown_command_affects_only_its_own_source(
    served: Served, transport: EapiTransport
) -> None:
    ecn, pfc = (
        "show qos interfaces ecn counters queue",
        "show priority-flow-control counters detail",
    )
    served.switch.missing = {ecn}
    served.switch.denied = {pfc}
    messages = await read_messages(await transport.open(served.host()), 3)
    assert isinstance(messages[0], Hello)
    assert {block.source for block in messages[0].blocks} == {
        "interfaces", "pfc", "queues", "lldp", "probe",
    }  # fmt: skip
    notices = [each for each in messages if isinstance(each, Notice)]
    assert [(each.source, each.reason, each.text) for each in notices] == [
        ("pfc_prio", "denied", f"{pfc}: Authorization denied for command"),
        ("ecn", "unsupported", f"{ecn}: Invalid input (at token 1)"),
    ]
    assert all(ecn not in commands for commands in served.switch.requests[-2:])


async def test_an_empty_source_is_absent_until_it_has_data(
    served: Served, transport: EapiTransport
) -> None:
    real = served.switch.reply

    def without_pfc(request: Any) -> dict[str, Any]:
        reply = real(request)
        reply["result"][1] = {"interfaceCounters": {}}
        return reply

    served.reply = without_pfc
    session = await transport.open(served.host())
    messages = await read_messages(session, 1)
    assert [(n.event, n.source, n.reason) for n in messages if isinstance(n, Notice)] == [
        ("lost", "pfc", "absent")
    ]
    served.reply = real
    messages = await read_messages(session, 1)
    assert [type(each) for each in messages] == [Hello, Frame]


async def test_a_reboot_is_reported_and_an_adjusted_clock_is_not(
    served: Served, transport: EapiTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.transports.eapi._SLOW_S", 0.0)
    session = await transport.open(served.host())
    first = (await read_messages(session, 1))[0]
    served.switch.booted_s += 20
    assert [type(each) for each in await read_messages(session, 1)] == [Frame]
    served.switch.booted_s += 4000
    again = (await read_messages(session, 1))[0]
    assert isinstance(first, Hello)
    assert isinstance(again, Hello)
    assert first.boot_id != again.boot_id


async def test_slow_commands_are_sent_once_a_minute(
    served: Served, transport: EapiTransport
) -> None:
    await read_messages(await transport.open(served.host()), 3)
    assert ["show version" in commands for commands in served.switch.requests] == [
        True,
        False,
        False,
    ]


async def test_polling_pauses_after_a_reply(
    served: Served, transport: EapiTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.transports.polled.PAUSE_FACTOR", 1_000_000)
    messages = await read_messages(await transport.open(served.host()), 3)
    assert [type(each) for each in messages] == [Hello, Frame, Frame, Frame]
    assert len(served.switch.requests) == 1


async def error_of(transport: EapiTransport, host: Host) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await (await transport.open(host)).readline()
    return caught.value


async def test_every_failure_has_its_reason(
    served: Served, transport: EapiTransport, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("fabmon:guess\n")
    wrong.chmod(0o600)
    error = await error_of(transport, served.host(secret=str(wrong)))
    assert isinstance(error, LoginRefused)
    assert "check the file of secret=" in str(error)
    assert "guess" not in str(error)

    error = await error_of(transport, served.host(tls="yes"))
    assert isinstance(error, Unreachable)
    assert (error.cause, "tls=FILE names the certificates" in str(error)) == ("tls", True)

    error = await error_of(transport, served.host(tls="/nowhere.pem"))
    assert "/nowhere.pem: No such file or directory; tls= is yes, no, insecure or a file" in str(
        error
    )

    served.status = 404
    assert "management api http-commands" in str(await error_of(transport, served.host()))
    served.status = 302
    assert "HTTP 302" in str(await error_of(transport, served.host()))
    served.status = 200
    served.reply = lambda request: {"jsonrpc": "2.0", "result": [1]}
    assert "do not match the 8 commands sent" in str(await error_of(transport, served.host()))
    served.reply = lambda request: ["?"]
    assert "eAPI: Expected `object`" in str(await error_of(transport, served.host()))

    await served.stop()
    error = await error_of(transport, served.host())
    assert (type(error), error.cause) == (Unreachable, "refused")


async def test_a_reply_without_end_is_rejected(
    served: Served, transport: EapiTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.http_client.MAX_BODY_BYTES", 1000)
    assert isinstance(await error_of(transport, served.host()), Misbehaved)


async def test_a_switch_that_quotes_the_password_does_not_show_it(
    served: Served, transport: EapiTransport
) -> None:
    error = {"code": 1005, "message": "no privilege for fabmon with pa:ss"}
    served.reply = lambda request: {"error": error}
    said = str(await error_of(transport, served.host()))
    assert said == "show interfaces: no privilege for fabmon with …"


async def test_more_interfaces_than_any_chassis_has_are_refused_before_a_hello_is_made(
    served: Served, transport: EapiTransport
) -> None:
    port = {"hardware": "ethernet", "interfaceCounters": {"inOctets": 1}}
    many = {"interfaces": {f"Ethernet{number}": port for number in range(16_385)}}
    served.reply = lambda request: {
        "result": [many if each == "show interfaces" else {} for each in request["params"]["cmds"]]
    }
    error = await error_of(transport, served.host())
    assert (type(error), str(error)) == (
        Misbehaved, "show interfaces: more than 16,384 entries"
    )  # fmt: skip


async def test_a_secret_that_others_can_read_is_rejected(
    served: Served, transport: EapiTransport
) -> None:
    served.secret.chmod(0o644)
    with pytest.raises(BadSecret, match="chmod 600"):
        await transport.open(served.host())
    served.secret.chmod(0o600)
    served.secret.write_text("just-a-token\n")
    with pytest.raises(BadSecret, match="user:password"):
        await transport.open(served.host())
    assert served.logins == set()


async def test_insecure_accepts_any_certificate(served: Served, transport: EapiTransport) -> None:
    messages = await read_messages(await transport.open(served.host(tls="insecure")), 1)
    assert isinstance(messages[0], Hello)


async def test_nothing_blocks_the_loop(served: Served, transport: EapiTransport) -> None:
    with blockbuster_ctx("fabmon"):
        await read_messages(await transport.open(served.host()), 2)


async def test_polling_resumes_when_the_switch_is_back(
    served: Served, transport: EapiTransport
) -> None:
    session = await transport.open(served.host())
    await read_messages(session, 1)
    await served.stop()
    with pytest.raises(Unreachable):
        await read_messages(session, 1)
    await served.start()
    messages = await read_messages(await transport.open(served.host()), 1)
    assert isinstance(messages[0], Hello)


async def test_cables_come_from_lldp(served: Served, transport: EapiTransport) -> None:
    switch_hello, _ = await first_frame(served, transport)
    gpu = hello(port("mlx5_0", mac="b8:ce:f6:00:00:01"))
    spine = hello(Object("Ethernet9/1", "ethernet", "Ethernet9/1", {}, ("netdev_up",)))
    hosts = [Host(name="leaf1", role="switch"), Host(name="gpu001"), Host(name="spine1")]
    fabric = build(hosts, {"leaf1": switch_hello, "gpu001": gpu, "spine1": spine}, PortRows(), 1)
    ends = {each.name: each.peer for each in fabric.node("leaf1").ports}
    assert ends["Ethernet1/1"] == fabric.node("gpu001").ports[0].row
    assert ends["Ethernet2/1"] == fabric.node("spine1").ports[0].row
    assert ends["Ethernet3/1"] is None
    assert {p.name: p.role for p in fabric.node("leaf1").ports}["Management1"] == "management"


def test_via_eapi_is_a_switch_and_needs_a_secret() -> None:
    (host,) = parse("leaf1 via=eapi secret=/etc/fabmon/eos\n", "hosts.txt")
    assert host.role == "switch"
    with pytest.raises(HostsFileError, match="via=eapi needs a secret: add secret=FILE"):
        parse("leaf1 via=eapi\n", "hosts.txt")


def test_captures_of_a_real_switch_are_read() -> None:
    requirements.need_path(str(CAPTURES), "captures of real switches beside the checkout")
    shown = json.loads((CAPTURES / "arista-show-interfaces.json").read_text())
    read = eapi_show.interfaces(shown)
    assert [item.id for item in read.objects] == ["Ethernet1"]
    assert read.objects[0].info == {
        "netdev": "Ethernet1",
        "driver": "eos",
        "mac": "44:4c:a8:cd:33:7e",
    }
    assert dict(zip(read.objects[0].metrics, read.values, strict=True))["netdev_speed_bps"] == 10e9
    assert read.refreshed_ns == {"Ethernet1": 1478085320927135000}
    shown = json.loads((CAPTURES / "arista-show-lldp-neighbors-detail.json").read_text())
    infos = {item.info["dev"]: item.info for item in eapi_show.neighbours(shown).objects}
    assert infos["Ethernet8"] == {
        "dev": "Ethernet8", "peer_node": "78m3", "peer_port": "eth3", "mac": "00:0f:53:2e:ce:d1",
    }  # fmt: skip
    assert infos["Ethernet47"] == {
        "dev": "Ethernet47", "peer_node": "ms01.bru01", "peer_port": "597",
    }  # fmt: skip


def test_interfaces_that_are_left_out_are_said() -> None:
    """Of 200 interfaces with a text as MTU none was shown, and nothing said so."""
    left_out = ("interfaces with values that are no counters are left out, such as Ethernet2",)
    good = {"hardware": "ethernet", "interfaceCounters": {"inOctets": 1}}
    bad = {**good, "mtu": "x"}
    shown = eapi_show.interfaces(
        {"interfaces": {"Ethernet1": good, "Ethernet3": bad, "Ethernet2": [good]}}
    )
    assert ([each.port for each in shown.objects], shown.limits) == (["Ethernet1"], left_out)
    wrong = {"rxFrames": "x"}
    assert eapi_show.pfc({"interfaceCounters": {"Ethernet2": wrong}}).limits == left_out
    priorities = {"interfaces": {"Ethernet2": {"priorities": {"3": wrong}}}}
    assert eapi_show.pfc_priorities(priorities).limits == left_out
    classes: dict[str, Any] = {"trafficClasses": {"TC3": {"enqueuedBytes": []}}}
    queues = {"ingressVoqCounters": {"interfaces": {"Ethernet2": classes}}}
    assert eapi_show.queues(queues).limits == left_out


async def test_a_switch_whose_interfaces_are_all_left_out_says_so(
    served: Served, transport: EapiTransport
) -> None:
    bad = {"hardware": "ethernet", "mtu": "x", "interfaceCounters": {"inOctets": 1}}
    served.reply = lambda request: {
        "result": [
            {"interfaces": {"Ethernet1": bad}} if each == "show interfaces" else {}
            for each in request["params"]["cmds"]
        ]
    }
    messages = await read_messages(await transport.open(served.host()), 2)
    (why,) = (each for each in messages if getattr(each, "source", "") == "interfaces")
    assert isinstance(why, Notice)
    assert (why.reason, why.text) == (
        "failed",
        "show interfaces: interfaces with values that are no counters are left out, such as"
        " Ethernet1",
    )


def test_values_of_the_wrong_type_are_no_data() -> None:
    for lie in (7, 0.5, "x", [1], {"a": 1}, True):
        port = {"hardware": "ethernet", "interfaceCounters": lie}
        assert len(eapi_show.interfaces({"interfaces": {"Ethernet1": port}}).objects) == 1
        assert not eapi_show.ecn(
            {"intfQueueCounters": {"Ethernet1": {"queueCounters": lie}}}
        ).objects
        told = {"lldpNeighbors": {"Ethernet1": {"lldpNeighborInfo": lie}}}
        assert not eapi_show.neighbours(told).objects


@pytest.mark.parametrize("name", ["٣", "03", "²", "8", "9" * 5000])
def test_a_priority_or_queue_that_no_switch_has_is_left_out(name: str) -> None:
    frames = {"rxFrames": 1, "txFrames": 2}
    pfc = {"interfaces": {"Ethernet1": {"priorities": {name: frames}}}}
    assert not eapi_show.pfc_priorities(pfc).objects
    classes = {"trafficClasses": {f"TC{name}": {"enqueuedBytes": 1}}}
    queues = {"interfaces": {"Ethernet1": {"ucastQueues": classes}}}
    assert not eapi_show.queues({"egressQueueCounters": queues}).objects


@pytest.mark.parametrize("time_s", [1e308, -1.0, 1e12])
def test_a_port_with_a_time_that_no_clock_shows_is_left_out(time_s: float) -> None:
    counters = {"counterRefreshTime": time_s, "inOctets": 1}
    good = {"hardware": "ethernet", "interfaceCounters": {"counterRefreshTime": 5.0}}
    bad = {"hardware": "ethernet", "interfaceCounters": counters}
    shown = eapi_show.interfaces({"interfaces": {"Ethernet1": bad, "Ethernet2": good}})
    assert [each.port for each in shown.objects] == ["Ethernet2"]
    assert shown.refreshed_ns == {"Ethernet2": 5 * 10**9}


def test_jericho_counts_virtual_output_queues() -> None:
    counts = {"enqueuedBytes": 1, "enqueuedPackets": 2, "droppedPackets": 3, "droppedBytes": 4}
    shown = {"ingressVoqCounters": {"interfaces": {"Et1": {"trafficClasses": {"TC7": counts}}}}}
    read = eapi_show.queues(shown)
    assert dict(zip(read.objects[0].metrics, read.values, strict=True)) == {
        "queue7_tx_bytes": 1, "queue7_tx_packets": 2, "queue7_tx_drops": 3,
    }  # fmt: skip


async def test_fabmon_shows_the_switch(served: Served, tmp_path: Path) -> None:
    """End to end: hosts file, TLS, rates, and the printed table."""
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(
        f"leaf1 via=eapi address=127.0.0.1 port={served.port} "
        f"secret={served.secret} tls={served.trusted}\n"
    )
    real = served.switch.reply

    def later(request: Any) -> dict[str, Any]:
        served.switch.second += 1
        return real(request)

    served.reply = later
    program = [str(Path(sys.executable).with_name("fabmon")), "--hosts", str(hosts), "--once"]
    run = asyncio.to_thread(
        subprocess.run, program, capture_output=True, text=True, timeout=240, check=False
    )
    done = await run
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    check_golden(GOLDENS / "eapi-table.txt", "\n".join(lines[:-2]) + "\n")
    assert msgspec.json.decode(json.dumps(lines[-1].split("  ")[1])) == "1/1 nodes up"
