"""A fabric manager: telemetry in CSV, REST over TLS, and the fabric that they report."""

from __future__ import annotations

import asyncio
import base64
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Frame, Hello, Notice
from fabmon.feeds.errors import Misbehaved, NodeError, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports import ufm_formats
from fabmon.feeds.transports.transport import ProbeSession
from fabmon.feeds.transports.ufm import UfmTransport
from fabmon.feeds.transports.ufm_formats import PortName, name_from_description
from tests.fixtures.ufm import BYTES_A_PERIOD, LEAF1, PERIOD_S, SPINE, Manager, rest
from tests.goldens import check_golden
from tests.unit.feeds.certificates import self_made
from tests.unit.feeds.session_reading import read_messages, values_of

GOLDENS = Path(__file__).parent / "goldens"
TOKEN = "OGUY7TwLvTmFkXyTkcsEWD9KKNvq6f"
LOGINS = {
    f"Basic {TOKEN}": "ufmRestV3",
    "Basic " + base64.b64encode(b"admin:123456").decode(): "ufmRest",
}


class Served:
    """A manager on two ports: telemetry without TLS, REST with TLS."""

    def __init__(self, directory: Path) -> None:
        self.manager = Manager()
        self.csv: Any = self.manager.csv
        self.requests: list[str] = []
        self.telemetry_logins: set[str] = set()
        self.secret = directory / "secret"
        self.secret.write_text(f"{TOKEN}\n")
        self.secret.chmod(0o600)
        self._context, self.trusted = self_made(directory)
        self._runners: list[web.AppRunner] = []
        self.port = self.rest_port = 0

    async def start(self) -> None:
        telemetry, api = web.Application(), web.Application()
        telemetry.router.add_get("/csv/metrics", self._telemetry)
        api.router.add_get("/{version}/resources/{what}", self._rest)
        for app, context in ((telemetry, None), (api, self._context)):
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            self._runners.append(runner)
        self.port, self.rest_port = (runner.addresses[0][1] for runner in self._runners)

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    def host(self, **more: Any) -> Host:
        given = {
            "port": self.rest_port,
            "scrape": (str(self.port),),
            "secret": str(self.secret),
            "tls": str(self.trusted),
            **more,
        }
        return Host(name="ufm", address="127.0.0.1", via="ufm", **given)

    async def _telemetry(self, request: web.Request) -> web.Response:
        self.telemetry_logins.add(request.headers.get("Authorization", ""))
        return web.Response(text=self.csv())

    async def _rest(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        version = LOGINS.get(request.headers.get("Authorization", ""))
        if version != request.match_info["version"]:
            return web.Response(status=401)
        return web.json_response(rest(request.match_info["what"]))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def transport(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UfmTransport]:
    monkeypatch.setattr("fabmon.feeds.transports.ufm.MIN_POLL_S", 0.0)
    monkeypatch.setattr("fabmon.feeds.transports.ufm._CLOCK_TOLERANCE_S", 1e9)
    made = UfmTransport(ProbeSettings(interval_s=0.05))
    yield made
    await made.close()


async def first(transport: UfmTransport, host: Host) -> tuple[Hello, Frame, list[Notice]]:
    messages = await read_messages(await transport.open(host), 1)
    hello, frame = messages[0], messages[-1]
    assert isinstance(hello, Hello)
    assert isinstance(frame, Frame)
    return hello, frame, [each for each in messages if isinstance(each, Notice)]


async def with_samples(session: ProbeSession, hello: Hello) -> Frame:
    """The next frame with new samples: a page may have been requested before there were any."""
    while True:
        frame = (await read_messages(session, 1))[-1]
        assert isinstance(frame, Frame)
        blocks = zip(hello.blocks, frame.blocks, strict=True)
        if any(block.source.startswith("ufm ") and values for block, values in blocks):
            return frame


async def test_nodes_ports_and_cables_are_named_by_rest(
    served: Served, transport: UfmTransport
) -> None:
    hello, _, notices = await first(transport, served.host())
    assert notices == []
    fabric = build([Host(name="ufm", via="ufm")], {"ufm": hello}, PortRows(), 1)
    lines = []
    for node in fabric.nodes:
        lines.append(f"{node.name} {node.role} under {node.group or '-'}")
        for port in node.ports:
            peer = fabric.ports[port.peer].id if port.peer is not None else "-"
            lines.append(f"  {port.name} {port.label} {port.role} -> {peer}")
    check_golden(GOLDENS / "ufm-fabric.txt", "\n".join(lines) + "\n")


async def test_words_become_bytes_and_wide_counters_do_not_saturate(
    served: Served, transport: UfmTransport
) -> None:
    served.manager.sample = 1
    hello, frame, _ = await first(transport, served.host())
    values = values_of(hello, frame, "31", "ib-leaf1")
    assert values["ib_tx_bytes"] == 4 * 10**12 + BYTES_A_PERIOD
    assert values["ib_tx_wait"] == 5 * 10**9 + 1000
    assert hello.metrics["ib_tx_wait"].kind == "wrap64"
    assert (values["ib_state"], values["ib_rate_bps"]) == (4, 400e9)
    down = values_of(hello, frame, "2", "ib-spine1")
    assert (down["ib_state"], down["ib_phys_state"]) == (1, 2)
    assert values_of(hello, frame, "mlx5_0", "gpu001")["ib_rx_bytes"] is not None


async def test_each_node_has_the_clock_of_its_samples(
    served: Served, transport: UfmTransport
) -> None:
    session = await transport.open(served.host())
    hello, before = await read_messages(session, 1)
    (same,) = await read_messages(session, 1)
    served.manager.behind = {SPINE}
    served.manager.sample = 1
    assert isinstance(hello, Hello)
    assert isinstance(before, Frame)
    assert isinstance(same, Frame)
    after = await with_samples(session, hello)
    steps: dict[str | None, int | None] = {}
    for block, old, now in zip(hello.blocks, before.blocks, after.blocks, strict=True):
        if block.source.startswith("ufm ") and old is not None:
            there = now is not None and now[0] is not None and old[0] is not None
            steps[block.objects[0].node] = now[0] - old[0] if there else None  # type: ignore
    assert steps["ib-leaf1"] == PERIOD_S * 1_000_000_000
    assert steps["ib-spine1"] is None
    telemetry = [n for n, b in enumerate(hello.blocks) if b.source.startswith("ufm ")]
    assert all(same.blocks[number] is None for number in telemetry)


async def test_a_port_without_a_new_sample_has_no_value(
    served: Served, transport: UfmTransport
) -> None:
    session = await transport.open(served.host())
    hello = (await read_messages(session, 1))[0]
    lines = served.manager.csv().splitlines()
    old = next(line for line in lines if f",0x{LEAF1},31," in line)
    served.manager.sample = 1
    new = served.manager.csv().splitlines()
    new[lines.index(old)] = old
    served.csv = lambda: "\n".join(new)
    assert isinstance(hello, Hello)
    after = await with_samples(session, hello)
    assert values_of(hello, after, "31", "ib-leaf1")["ib_tx_bytes"] is None
    assert values_of(hello, after, "1", "ib-leaf1")["ib_tx_bytes"] is not None


async def test_a_port_whose_time_stays_in_the_future_does_not_stop_its_node(
    served: Served, transport: UfmTransport
) -> None:
    def ahead() -> str:
        lines = served.manager.csv().splitlines()
        at = next(place for place, line in enumerate(lines) if f",0x{LEAF1},31," in line)
        lines[at] = f"4000000000000000,{lines[at].partition(',')[2]}"
        return "\n".join(lines)

    served.csv = ahead
    session = await transport.open(served.host())
    hello = (await read_messages(session, 1))[0]
    served.manager.sample = 1
    assert isinstance(hello, Hello)
    after = await with_samples(session, hello)
    assert values_of(hello, after, "31", "ib-leaf1")["ib_tx_bytes"] is None
    assert values_of(hello, after, "1", "ib-leaf1")["ib_tx_bytes"] is not None


async def test_a_user_and_password_use_another_path_than_a_token(
    served: Served, transport: UfmTransport
) -> None:
    served.secret.write_text("admin:123456\n")
    assert (await first(transport, served.host()))[2] == []
    assert set(served.requests) == {
        f"/ufmRest/resources/{w}" for w in ("ports", "systems", "links")
    }
    assert served.telemetry_logins == {""}


async def test_without_rest_names_come_from_descriptions(
    served: Served, transport: UfmTransport
) -> None:
    served.manager.described = True
    hello, _, _ = await first(transport, served.host(secret=None))
    nodes = {item.node for block in hello.blocks for item in block.objects if item.node}
    assert nodes == {"ib-spine1", "ib-leaf1", "ib-leaf2", "gpu001", "gpu002"}
    assert served.requests == []


async def test_a_refused_login_affects_only_the_names(
    served: Served, transport: UfmTransport
) -> None:
    served.secret.write_text("wrong\n")
    session = await transport.open(served.host())
    messages = await read_messages(session, 3)
    notices = [each for each in messages if isinstance(each, Notice)]
    assert [(each.source, each.reason) for each in notices] == [("ufm_rest", "denied")]
    assert "wrong" not in notices[0].text
    assert isinstance(messages[0], Hello)
    nodes = {item.node for block in messages[0].blocks for item in block.objects if item.node}
    assert LEAF1 in nodes
    assert len(served.requests) == 1


async def error_of(transport: UfmTransport, host: Host) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await (await transport.open(host)).readline()
    return caught.value


async def test_every_failure_has_its_reason(served: Served, transport: UfmTransport) -> None:
    error = await error_of(transport, served.host(scrape=("nine",)))
    assert "write [https:]PORT/PATH" in str(error)
    error = await error_of(transport, served.host(scrape=(f"{served.port}/csv/other",)))
    assert "HTTP 404" in str(error)
    served.csv = lambda: "<html>"
    error = await error_of(transport, served.host())
    assert isinstance(error, Misbehaved)
    assert "this is no telemetry in CSV: column timestamp is missing" in str(error)
    await served.stop()
    error = await error_of(transport, served.host(secret=None))
    assert (type(error), error.cause) == (Unreachable, "refused")


async def test_one_endpoint_of_two_may_fail(served: Served, transport: UfmTransport) -> None:
    both = (f"{served.port}", f"{served.port}/csv/xcset/low_freq_debug")
    _, _, notices = await first(transport, served.host(scrape=both))
    assert [(each.source, each.reason) for each in notices] == [(f"ufm {both[1]}", "failed")]


async def test_telemetry_that_does_not_change_is_late(
    served: Served, transport: UfmTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await transport.open(served.host())
    await read_messages(session, 1)
    monkeypatch.setattr("fabmon.feeds.transports.ufm.LATE_PERIODS", 0)
    notices: list[Notice] = []
    while not notices:  # a slow answer gives the manager some rest first
        notices = [each for each in await read_messages(session, 1) if isinstance(each, Notice)]
    assert [each.reason for each in notices] == ["late"]
    assert re.search(r"no new data for \d+ s; its period is 30 s", notices[0].text)


async def test_nothing_blocks_the_loop(served: Served, transport: UfmTransport) -> None:
    with blockbuster_ctx("fabmon"):
        await first(transport, served.host())


UNNAMED = "unnamed-000000000000f00d"


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;ib-leaf1:MQM9700/U1", PortName("ib-leaf1", "7", "switch")),
        ("gpu001 mlx5_3", PortName("gpu001", "mlx5_3", "host")),
        ("gpu001 HCA-1", PortName("f00d", "7", "switch")),
        ("MT4129 ConnectX7   Mellanox Technologies", PortName(UNNAMED, "7", "host")),
        ("localhost mlx5_0", PortName(UNNAMED, "7", "host")),
        ("Quantum Mellanox Technologies", PortName("f00d", "7", "switch")),
        ("", PortName("f00d", "7", "switch")),
    ],
)
def test_descriptions_of_nodes(description: str, name: PortName) -> None:
    assert name_from_description(description, "f00d", "7") == name


HEAD = b"timestamp,port_num,node_guid,PortXmitDataExtended\n"


def test_rows_that_are_left_out_are_said() -> None:
    whole = "timestamp,port_guid,port_num\n1,0x1,1\n\n"
    assert ufm_formats.parse_telemetry(whole.encode(), "").limits == ()
    for cut in ("1,0x1\n", "x,0x1,1\n", "1,0x1,1,1\n"):
        telemetry = ufm_formats.parse_telemetry((whole + cut).encode(), "")
        assert (len(telemetry.rows), telemetry.limits) == (
            1,
            ("rows without a time, or with more or fewer cells than the header, are left out",),
        )


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (HEAD + b"1,1,1,1\n" * 65_536, "more than 65,536 lines"),
        (HEAD.strip() + b",a" * 40_000, "than 65,536 bytes in one"),
        (HEAD + b'1,1,1,"' + b"xxx\n" * 65_500, "this is no CSV"),
    ],
)
def test_more_telemetry_than_any_fabric_has_is_refused(body: bytes, what: str) -> None:
    with pytest.raises(Misbehaved, match=what):
        ufm_formats.parse_telemetry(body, "here")


@pytest.mark.parametrize("entries", [b"[]," * 2_000_000, b"{}," * 1_000_000, b'"a",' * 2_000_000])
def test_more_values_than_any_fabric_has_are_refused_before_they_are_decoded(
    entries: bytes,
) -> None:
    with pytest.raises(Misbehaved, match="resources/ports: more than 2,000,000 values"):
        ufm_formats.parse_fabric(b"[" + entries + b"1]", b"[]", b"[]")


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1e999", "nan", str(2**64), ""])
def test_a_number_that_no_counter_can_have_is_none(number: str) -> None:
    text = f"1,1,1,{number}\n{number},1,1,7\n"
    rows = ufm_formats.parse_telemetry(HEAD + text.encode(), "here").rows
    assert [row.values for row in rows if row.time_us == 1] == [[None]]
    port = f'[{{"name":"a_1","active_speed":"NDR","active_width":"{number}x"}}]'
    assert ufm_formats.parse_fabric(port.encode(), b"[]", b"[]").states == [None] * 3


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ((b'{"error":"starting"}', b"[]", b"[]"), "resources/ports: this is no list"),
        ((b'[{"name":"a_1"}]', b"null", b"[]"), "resources/systems: this is no list"),
        ((b'[{"name":"a_1"}]', b"[]", b"7"), "resources/links: this is no list"),
        ((b"[]", b"[]", b"[]"), "resources/ports: no port"),
        ((b'[7,{"name":[]}]', b"[]", b"[]"), "resources/ports: no port"),
    ],
)
def test_an_answer_that_names_nothing_is_no_fabric_without_ports(
    replies: tuple[bytes, bytes, bytes], why: str
) -> None:
    """All names of ports and nodes were gone, and nothing said so, while UFM started."""
    with pytest.raises(Misbehaved, match=why):
        ufm_formats.parse_fabric(*replies)


def test_entries_that_are_left_out_are_said() -> None:
    fabric = ufm_formats.parse_fabric(b'[{"name":"a_1"},{"name":["b_1"]}]', b"[]", b"[]")
    assert len(fabric.ports) == 1
    assert fabric.limits == ("entries of UFM's REST API with values that are no text are left out",)
    assert ufm_formats.parse_fabric(b'[{"name":"a_1"}]', b"[]", b"[]").limits == ()


@pytest.mark.parametrize("rows", [b"", b"never,1,2,3\n", b"1,2\n"])
def test_telemetry_without_a_row_is_not_a_fabric_without_ports(rows: bytes) -> None:
    with pytest.raises(
        Misbehaved, match="here: no row with a time and as many cells as the header"
    ):
        ufm_formats.parse_telemetry(HEAD + rows, "here")


async def test_nothing_is_kept_of_ports_that_are_gone(
    served: Served, transport: UfmTransport
) -> None:
    names = iter(range(1, 100))

    def renamed() -> str:
        served.manager.sample += 1
        return Manager.csv(served.manager).replace("fc6a1c0300a1", f"fc6a1c03{next(names):04d}")

    served.csv = renamed
    session = await transport.open(served.host(secret=None))
    await read_messages(session, 20)
    (endpoint,) = session._poller._endpoints  # type: ignore[attr-defined]
    ports = len(served.manager.csv().splitlines()) - 1
    assert len(endpoint._sampled_us) == ports
    assert len(endpoint._clocks) <= ports
    await session.close()


@given(st.binary(max_size=300), st.booleans())
def test_no_telemetry_body_raises_an_unexpected_error(junk: bytes, headed: bool) -> None:
    try:
        telemetry = ufm_formats.parse_telemetry((HEAD if headed else b"") + junk, "here")
    except Misbehaved:
        return
    assert all(len(row.values) == len(telemetry.metrics) for row in telemetry.rows)


async def test_fabmon_shows_the_fabric(served: Served, tmp_path: Path) -> None:
    """End to end: hosts file, telemetry, REST, and the printed table."""
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(
        f"ufm via=ufm address=127.0.0.1 port={served.rest_port} scrape={served.port} "
        f"secret={served.secret} tls={served.trusted}\n"
    )

    def moving() -> str:
        served.manager.sample += 1
        return Manager.csv(served.manager)

    served.csv = moving
    program = [str(Path(sys.executable).with_name("fabmon")), "--hosts", str(hosts), "--once"]
    done = await asyncio.to_thread(
        subprocess.run, program, capture_output=True, text=True, timeout=240, check=False
    )
    lines = done.stdout.splitlines()
    assert "6/6 nodes up" in lines[-1], done.stderr
    check_golden(GOLDENS / "ufm-table.txt", "\n".join(lines[:-2]) + "\n")
