"""`fabmon trace`: asked of a real probe, what a person reads, and what can go wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fabmon.analysis.traced_paths import spreads
from fabmon.fabric.flows.endpoints import NoEndpoint
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wire.messages import Trace, WireError, decode
from fabmon.feeds.live import LiveFeed
from fabmon.report.output import as_json, json_schema
from fabmon.report.trace import (
    ForwardedTraceRecord,
    TraceRecord,
    forwarded_trace,
    forwarded_trace_table,
    infiniband_rails,
    trace_table,
)
from tests.builders import START_NS
from tests.goldens import check_golden
from tests.unit.feeds.fakes import FakeClock, FakeNodes
from tests.unit.feeds.wire_lines import are, watch
from tests.unit.test_cli import fabmon, fabmon_here
from tests.unit.test_forwarding import TABLES, fabric_of, tables_of
from tests.unit.test_traced_paths import SPORT, Net

GOLDENS = Path(__file__).parent / "goldens"
SCHEMA = Path(__file__).parents[2] / "docs" / "trace.schema.json"


def record() -> TraceRecord:
    """Five flows: two over one link, one past a silent switch to a silent host, one too long."""
    net = Net()
    paths = [
        net.path("10.1.1.0", "10.2.1.1", "10.3.1.0", "10.1.2.1", sport=SPORT),
        net.path("10.1.1.0", "10.2.3.1", "10.3.2.0", "10.1.2.1", sport=SPORT + 1),
        net.path("10.1.1.0", "10.2.1.1", "10.3.1.0", "10.1.2.1", sport=SPORT + 2),
        net.path("10.1.1.0", "", "10.3.1.0", "", "", "", end="silent", sport=SPORT + 3),
        net.path("10.1.1.0", "10.9.9.9", end="far", sport=SPORT + 4),
    ]
    return TraceRecord(
        time=utc(START_NS),
        src=net.src,
        dst=net.dst,
        dport=4791,
        dscp=26,
        sports_from="default",
        paths=paths,
        spreads=spreads(net.fabric, paths),
        notes=["spine3 is failed: no route to host: its hops may be without a name"],
    )


def test_the_table_has_flows_of_one_way_together_and_then_the_links_they_use() -> None:
    check_golden(GOLDENS / "trace.txt", trace_table(record()))


def test_without_switches_that_tell_their_links_answers_that_differ_are_counted() -> None:
    net = Net(watched=())
    paths = [
        net.path("10.1.1.0", via, "10.1.2.1", sport=sport)
        for sport, via in enumerate(("10.2.1.1", "10.2.3.1", "10.2.1.1"), SPORT)
    ]
    known = TraceRecord(
        time=utc(START_NS),
        src=net.src,
        dst=net.dst,
        dport=4791,
        dscp=0,
        sports_from="option",
        paths=paths,
        spreads=spreads(net.fabric, paths),
        notes=[],
    )
    check_golden(GOLDENS / "trace-unnamed.txt", trace_table(known))


def test_the_object_follows_its_schema() -> None:
    schema = json_schema(TraceRecord | ForwardedTraceRecord)
    check_golden(SCHEMA, schema.decode())
    jsonschema.validate(json.loads(as_json(record())), json.loads(schema))
    jsonschema.validate(json.loads(as_json(forwarded())), json.loads(schema))


def forwarded(**info: Any) -> ForwardedTraceRecord:
    """The path between two hosts below different leaves, by forwarding tables."""
    fabric = fabric_of(tables_of(**info))
    src, dst = (infiniband_rails(fabric, name, None) for name in ("gpu1", "gpu3"))
    return forwarded_trace(Connections(fabric, {}), src, dst, START_NS)


def test_on_infiniband_the_tables_give_the_path_and_who_shares_it() -> None:
    check_golden(GOLDENS / "trace-infiniband.txt", forwarded_trace_table(forwarded()))
    (path,) = forwarded().paths
    assert [(hop.node, hop.out_port, hop.host_pairs) for hop in path.hops] == [
        ("leaf1", "p5", 4),
        ("spine1", "p2", 4),
        ("leaf2", "p1", 3),
    ]


def test_where_tables_do_not_give_the_path_the_reason_is_given() -> None:
    adaptive = forwarded(engine="ar_updn")
    assert adaptive.paths == []
    assert adaptive.notes == [
        "no single path: adaptive routing (routing_engine ar_updn of the subnet manager)"
    ]
    partly = forwarded(tables={"leaf1": TABLES["leaf1"]}, left_out=3)
    assert "  unknown\n" in forwarded_trace_table(partly)
    assert partly.notes[0].endswith("is not known; 3 tables had no room")
    with pytest.raises(NoEndpoint, match=r"dump_fts: denied; sources=\+ib_fabric on one node"):
        forwarded(tables={}, error="dump_fts: denied")


def test_the_rails_of_a_trace_are_found_by_name() -> None:
    fabric = fabric_of(tables_of())
    assert [port.id for port in infiniband_rails(fabric, "gpu1", "mlx5_0")] == ["gpu1/mlx5_0"]
    assert infiniband_rails(fabric, "gpu1", "mlx5_7") == []
    assert infiniband_rails(Net().fabric, Net().src.node, None) == []


def test_help() -> None:
    done = fabmon("trace", "--help")
    assert done.returncode == 0
    check_golden(GOLDENS / "trace-help.txt", done.stdout)


async def traced(feed: LiveFeed, sports: tuple[int, ...]) -> list[Trace]:
    """All parts of the answer to a trace of the loopback."""
    assert feed.trace("here", "127.0.0.1", "127.0.0.1", sports, seconds=10) == ""
    parts: list[Trace] = []
    async with asyncio.timeout(240):
        async for tick in feed:
            parts += [part for _, part in tick.answers if isinstance(part, Trace)]
            if parts and parts[-1].done:
                break
    return parts


async def test_a_trace_from_a_real_probe() -> None:
    hosts = [Host(name="here", via="local")]
    # A node that is silent for 2.5 intervals is asked for nothing.
    async with LiveFeed(hosts, interval_s=2.0) as feed:
        await watch(feed, are(NodeState.UP, "here"))
        paths = [part.path for part in await traced(feed, (SPORT, SPORT + 1)) if part.path]
        assert [path.sport for path in paths] == [SPORT, SPORT + 1]
        assert {path.end for path in paths} == {"reached"}
        assert {hop[0][0] for path in paths for hop in path.hops} == {"127.0.0.1"}
        refused = feed.trace("here", "127.0.0.1", "127.0.0.1", (SPORT,), seconds=10)
        assert refused == "here already runs a trace"
        # A burst is another kind of request: it need not wait.
        assert feed.burst("here", ("lo",), 0.1, 10.0) == ""


async def test_a_request_that_the_probe_refuses_comes_back_with_the_reason() -> None:
    hosts = [Host(name="here", via="local")]
    async with LiveFeed(hosts, interval_s=0.2) as feed:
        await watch(feed, are(NodeState.UP, "here"))
        (part,) = await traced(feed, tuple(range(1, 40)))
        assert part.error == "sports must be a list of 1 to 32 ports"


async def test_a_node_without_a_probe_of_ours_says_so() -> None:
    clock, nodes = FakeClock(), FakeNodes()
    hosts = [Host(name="sw1", via="snmp")]
    async with LiveFeed(hosts, clock=clock, transports=nodes) as feed:
        await anext(feed)
        await clock.run(0.1)
        said = feed.trace("sw1", "10.0.0.1", "10.0.0.2", (SPORT,), seconds=10)
        assert said == "sw1 is read through snmp, which has no fabmon probe that could trace"


async def test_a_node_that_sends_unrequested_traces_is_disconnected() -> None:
    clock, nodes = FakeClock(), FakeNodes()
    async with LiveFeed([Host(name="gpu001")], clock=clock, transports=nodes) as feed:
        await anext(feed)
        await clock.run(0.1)
        session = nodes.sessions["gpu001"]
        session.greet()
        session.put(*[b'["trace", {"id": 1, "done": true}]\n'] * 5)
        await clock.run(0.5)
        (status,) = feed.statuses
        assert status.state in (NodeState.LOST, NodeState.FAILED)
        assert "a trace that was not requested" in status.reason


def test_a_line_that_is_no_trace_is_refused() -> None:
    with pytest.raises(WireError):
        decode(b'["trace", {"id": 1, "path": {"sport": 1, "end": "x", "hops": [[["a"]]]}}]')


@pytest.mark.parametrize(("hops", "answers"), [(65, 1), (2, 4)])
def test_a_path_of_more_than_a_probe_sends_is_refused(hops: int, answers: int) -> None:
    """A line of 8 MiB was kept as 64 MB, for each of many paths."""

    def line(hops: int, answers: int) -> bytes:
        path = {"sport": 1, "end": "far", "hops": [[["10.0.0.1", 5]] * answers] * hops}
        return json.dumps(["trace", {"id": 1, "path": path}]).encode()

    assert decode(line(64, 3))
    with pytest.raises(WireError, match=r"not a wire message: .* length"):
        decode(line(hops, answers))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["gpu001", "gpu9", "--host", "gpu[001-002]"],
            "--hosts and --host do not name gpu9: ",
        ),
        (["gpu001", "gpu02", "--host", "gpu[001-002]"], "did you mean gpu002?"),
        (["gpu001", "gpu001", "--host", "gpu001"], "gpu001 to gpu001 crosses no link"),
        (
            ["a", "b", "--host", "a via=http", "--host", "b"],
            "a is read through http, which has no fabmon probe that could trace: "
            "use ssh, exec, local",
        ),
        (
            ["a", "b", "--host", "a", "--host", "b via=exporters"],
            "b is read through exporters, which does not report its addresses",
        ),
        (["a", "b", "--host", "a,b", "--sport", "70000"], "1<=x<=65535"),
        (
            ["a", "b", "--host", "a,b", *(f"--sport={n}" for n in range(1, 34))],
            "--sport: 33 source ports, 32 at most",
        ),
    ],
)
def test_a_mistake_is_named_before_anything_is_reached(
    arguments: list[str], complaint: str
) -> None:
    done = fabmon_here("trace", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_a_host_that_cannot_be_reached_is_status_3_with_the_reason(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("here via=local\ngpu001 address=127.0.0.1 port=1\n")
    done = fabmon("trace", "here", "gpu001", "--hosts", str(hosts))
    assert done.returncode == 3
    assert "gpu001 is failed: " in done.stderr
    assert "refused" in done.stderr
