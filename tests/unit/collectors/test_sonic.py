"""SONiC's databases in a real Redis: values, and errors when it does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import tempfile
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

import pytest

from collectors.hostfs import HostFS
from collectors.readers.redis import BadReply, Redis
from collectors.readers.sonic_db import _SOCKET, HashQuery, open_databases, parse_count
from collectors.source import Denied, Failed, NoData, NoNews, Source
from collectors.sources.sonic import Sonic
from collectors.sources.sonic_queues import SonicQueues
from tests import requirements as needed
from tests.fixtures.reading import ask, read
from tests.fixtures.redisd import RedisServer
from tests.fixtures.switches import sonic_databases, sonic_switch

CAPTURE = Path(__file__).parents[4] / "shared" / "hardware" / "switch" / "sonic-counters-db.json"


@pytest.fixture
def root() -> Iterator[str]:
    """Short: the path of a unix socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fm") as directory:
        yield directory


@pytest.fixture
def server(root: str) -> Iterator[RedisServer]:
    needed.need_command("redis-server", "redis-server")
    started = RedisServer(root)
    started.start()
    yield started
    started.stop()


def test_redis_says_what_the_dump_says(root: str, server: RedisServer, tmp_path: Path) -> None:
    sonic_switch(tmp_path)
    server.fill(sonic_databases())
    for name in ("sonic", "sonic_queues"):
        assert ask(name, root) == ask(name, tmp_path)


def test_losses_of_ingress_trimming_and_codewords_are_read(tmp_path: Path) -> None:
    sonic_switch(tmp_path)
    queues, port = ask("sonic_queues", tmp_path).of("Ethernet4"), ask("sonic", tmp_path)
    assert (queues["pg0_rx_drops"], queues["pg3_rx_drops"]) == (0, 3)
    values = port.of("Ethernet4")
    assert values["phy_tx_trimmed_packets"] == 12
    assert values["phy_tx_trimmed_sent"] == 13
    assert values["phy_tx_trimmed_drops"] == 14
    assert values["phy_rx_fec_codewords_s0"] == 10**16
    assert values["phy_rx_fec_codewords_s15"] == 10
    assert "phy_rx_fec_codewords_s16" not in values


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000, "64", "-1", "٣", ",".join(["3"] * 99)])
def test_a_configuration_of_numbers_that_none_are_costs_no_port(
    root: str, server: RedisServer, number: str
) -> None:
    """The console refused all that the switch sent: of such an interval or priority no hello may
    be."""
    databases = sonic_databases()
    databases["CONFIG_DB"]["PORT_QOS_MAP|Ethernet0"] = {"pfc_enable": f"3,{number},4"}
    databases["CONFIG_DB"]["FLEX_COUNTER_TABLE|PORT"] = {"POLL_INTERVAL": number[:20]}
    server.fill(databases)
    source = Sonic(HostFS(root))
    (facts, *_) = [item.info for item in source.discover() if item.port == "Ethernet0"]
    assert (facts["pfc"], facts["pfc_priorities"]) == ("on", [3, 4])
    assert source.min_period_s <= 3600
    source.close()


def test_counters_move(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    source = Sonic(HostFS(root))
    objects = source.discover()
    first = read(source, objects)
    server.fill(sonic_databases(step=2))
    second = read(source, objects)

    def moved(metric: str) -> int:
        after, before = (each.values["Ethernet4", metric] for each in (second, first))
        assert after is not None
        assert before is not None
        return after - before

    assert moved("phy_tx_bytes") == 12_000_000_000
    assert moved("pfc_rx_pause_us_prio3") == 60_000
    assert moved("pfc_rx_pause_us_prio4") == 0
    assert first.of("Ethernet8")["phy_up"] == 0
    assert first.of("Ethernet8")["phy_speed_bps"] == 400_000_000_000
    source.close()


def test_a_snapshot_is_handed_out_once(root: str, server: RedisServer) -> None:
    """SONiC's second and the probe's drift: an old snapshot would look like a rate of zero."""
    server.fill(sonic_databases())
    source = Sonic(HostFS(root))
    source.discover()
    first = source.read({})
    with pytest.raises(NoNews):
        source.read({})
    assert source.read({}) == first, "an idle switch is idle, and not absent"
    server.fill(sonic_databases(step=1))
    assert source.read({}) != first
    source.close()


def test_queues_are_read_as_often_as_sonic_reads_them(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    source = SonicQueues(HostFS(root))
    objects = source.discover()
    assert source.min_period_s == 10.0
    values = read(source, objects).of("Ethernet0")
    assert values["queue3_tx_ecn_marked"] == 19
    assert "queue10_tx_bytes" not in values, "a multicast queue"
    assert values["pfc_watchdog_stormed"] == 0
    server.ask(
        ("SELECT", "2"),
        ("HSET", "COUNTERS:oid:0x15000000000003", "PFC_WD_STATUS", "stormed"),
        ("HSET", "COUNTERS:oid:0x15000000000003", "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED", "3"),
    )
    values = read(source, objects).of("Ethernet0")
    assert values["pfc_watchdog_stormed"] == 1
    assert values["pfc_watchdog_storms"] == 3
    source.close()


def test_the_pace_is_as_configured(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    server.ask(("SELECT", "4"), ("HSET", "FLEX_COUNTER_TABLE|PORT", "POLL_INTERVAL", "5000"))
    source = Sonic(HostFS(root))
    source.discover()
    assert source.min_period_s == 5.0
    source.close()


def test_redis_goes_away_and_comes_back(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    source = Sonic(HostFS(root))
    objects = source.discover()
    before = read(source, objects)
    server.stop()
    for _ in range(2):
        with pytest.raises(Failed, match="Redis"):
            source.read({})
    server.start()
    assert set(read(source, objects).faults.values()) == {"absent"}, "it is there, and empty"
    server.fill(sonic_databases(step=1))
    after = read(source, objects)
    assert after.values.keys() == before.values.keys()
    assert not after.faults
    source.close()


def test_a_required_password_is_reported(root: str, server: RedisServer) -> None:
    server.ask(("CONFIG", "SET", "requirepass", "secret"))
    with pytest.raises(Denied, match="asks for a password: NOAUTH"):
        ask("sonic", root)


def test_a_command_that_is_not_allowed_is_denied(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    server.ask(("ACL", "SETUSER", "default", "-hgetall"))
    with pytest.raises(Denied, match="NOPERM"):
        ask("sonic", root)


class Unprivileged:
    """Files are opened as the user nobody, who is not in the group `redis`."""

    def __enter__(self) -> None:
        needed.need_root()
        os.setresgid(65534, 65534, 0)
        os.setresuid(65534, 65534, 0)

    def __exit__(self, *_: object) -> None:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def test_the_group_that_may_is_named(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    os.chmod(root, 0o755)
    os.chown(server.socket, 0, 4)
    with Unprivileged(), pytest.raises(Denied, match=r"redis\.sock is for group adm: join it"):
        ask("sonic", root)


def test_redis_cli_is_asked_where_we_are_not_let_in(
    root: str, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On older SONiC it is a wrapper around `docker exec`, which the group docker may use."""
    needed.need_command("redis-cli", "redis-tools")
    databases = sonic_databases()
    server.fill(databases)
    expected = ask("sonic", root), ask("sonic_queues", root)
    hidden = f"{root}/open.sock"
    os.rename(server.socket, hidden)
    os.chmod(hidden, 0o777)
    os.chmod(root, 0o755)
    os.symlink(hidden, server.socket)
    tools = Path(root, "bin")
    tools.mkdir()
    wrapper = tools / "redis-cli"
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/redis-cli -s {hidden} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    os.chmod(server.directory, 0o700)
    with Unprivileged():
        assert (ask("sonic", root), ask("sonic_queues", root)) == expected
    os.remove(server.socket)
    os.rename(hidden, server.socket)


def test_what_is_no_switch_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="not a SONiC switch"):
        ask("sonic", tmp_path)


def test_a_switch_that_has_just_started_has_no_counters_yet(root: str, server: RedisServer) -> None:
    with pytest.raises(NoData, match="no ports yet"):
        ask("sonic", root)
    databases = sonic_databases()
    del databases["COUNTERS_DB"]["COUNTERS_QUEUE_NAME_MAP"]
    server.fill(databases)
    assert len(ask("sonic", root).objects) == 3
    with pytest.raises(NoData, match="no queues yet"):
        ask("sonic_queues", root)


def test_what_says_na_is_unsupported_and_what_is_gone_is_absent(
    root: str, server: RedisServer
) -> None:
    server.fill(sonic_databases())
    source = Sonic(HostFS(root))
    objects = source.discover()
    assert "phy_rx_symbol_errors" not in objects[0].metrics, "N/A from the start"
    server.ask(
        ("SELECT", "2"),
        ("HSET", "COUNTERS:oid:0x1000000000010", "SAI_PORT_STAT_IF_IN_OCTETS", "N/A"),
        ("DEL", "COUNTERS:oid:0x1000000000011"),
        ("SELECT", "0"),
        ("DEL", "PORT_TABLE:Ethernet8"),
    )
    answer = read(source, objects)
    assert answer.faults["Ethernet0", "phy_rx_bytes"] == "unsupported"
    assert answer.of("Ethernet0")["phy_tx_bytes"] == 9_000_000
    assert answer.of("Ethernet4")["phy_rx_bytes"] == "absent"
    assert answer.of("Ethernet8")["phy_up"] == "absent"
    assert answer.of("Ethernet8")["phy_rx_bytes"] == 24_000_000
    source.close()


def test_a_new_port_or_neighbour_is_noticed(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    source: Source = Sonic(HostFS(root))
    known = source.signature()
    server.fill(sonic_databases(step=5))
    assert source.signature() == known, "counters are not news"
    row = ("lldp_rem_sys_name", "gpu009", "lldp_rem_port_id", "ens9")
    server.ask(("SELECT", "0"), ("HSET", "LLDP_ENTRY_TABLE:Ethernet4", *row))
    assert source.signature() != known
    source.close()


def test_databases_in_several_instances_are_found(root: str, server: RedisServer) -> None:
    """A multi-ASIC or newer SONiC keeps them apart; the file says where."""
    needed.need_command("redis-server", "redis-server")
    other = RedisServer(f"{root}/2")
    other.start()
    databases = sonic_databases()
    server.fill({name: rows for name, rows in databases.items() if name != "COUNTERS_DB"})
    other.fill({"COUNTERS_DB": databases["COUNTERS_DB"]})
    places = Path(root, "var/run/redis/sonic-db/database_config.json")
    places.parent.mkdir()
    instances = {
        "redis": {"unix_socket_path": "/var/run/redis/redis.sock", "port": 6379},
        "chassis": {"unix_socket_path": "/2/var/run/redis/redis.sock", "port": 6380},
    }
    where = {"COUNTERS_DB": {"id": 2, "separator": ":", "instance": "chassis"}}
    places.write_text(json.dumps({"INSTANCES": instances, "DATABASES": where}))
    expected = {f"Ethernet{4 * index}" for index in range(3)}
    assert {item.port for item in ask("sonic", root).objects} == expected
    other.stop()


def test_nothing_but_reading_is_ever_sent(root: str, server: RedisServer) -> None:
    server.fill(sonic_databases())
    server.ask(("CONFIG", "RESETSTAT"))
    for source in (Sonic(HostFS(root)), SonicQueues(HostFS(root))):
        objects = source.discover()
        read(source, objects)
        source.signature()
        source.close()
    facts = server.ask(("INFO", "commandstats"))[0].decode()
    commands = set(re.findall(r"cmdstat_(\S+?):", facts))
    assert commands <= {"select", "hgetall", "hmget", "config|resetstat", "info"}


def test_a_read_is_one_round_trip(
    root: str, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fill(sonic_databases())
    trips = []
    plain = Redis.ask

    def counted(self: Redis, commands: object) -> object:
        trips.append(commands)
        return plain(self, commands)  # type: ignore[arg-type]

    monkeypatch.setattr(Redis, "ask", counted)
    source = Sonic(HostFS(root))
    source.discover()
    trips.clear()
    source.read({})
    assert len(trips) == 1
    source.close()


Writes = Iterator[bytes]


def _forever(text: bytes, pause_s: float = 0.0) -> Writes:
    while True:
        yield text
        time.sleep(pause_s)


_DEEP = b"*1\r\n" * 5000
LIES: Dict[str, Tuple[Callable[[], Writes], str]] = {
    "HTTP": (lambda: iter([b"HTTP/1.1 400 Bad Request\r\n\r\n"]), "not a reply of Redis"),
    "line": (lambda: _forever(b"+" + b"a" * 9999), "a line that does not end"),
    "list": (lambda: chain([b"*999999999\r\n"], _forever(b":1\r\n" * 9999)), "more than"),
    "bulks": (lambda: chain([b"*99999\r\n"], _forever(b"$9\r\n123456789\r\n")), "takes more"),
    "slow": (lambda: chain([b"*99999\r\n"], _forever(b":1\r\n", 0.05)), "takes more than"),
    "long": (lambda: iter([b"$1048577\r\n"]), "a value of 1048577 bytes"),
    "digits": (lambda: iter([b":" + b"9" * 5000 + b"\r\n"]), "not a reply of Redis: b'999"),
    "deep": (lambda: iter([_DEEP]), "not a reply of Redis"),
}


@pytest.fixture
def lying(root: str) -> Iterator[Callable[[Writes], str]]:
    """Listens on a socket that sends what it is given, whatever it is asked; returns its path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    threads: List[threading.Thread] = []

    def serve(writes: Writes) -> str:
        path = f"{root}/{_SOCKET}"
        os.makedirs(os.path.dirname(path))
        listener.bind(path)
        listener.listen(1)

        def answer() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.recv(1000)
                for each in writes:
                    peer.sendall(each)

        threads.append(threading.Thread(target=answer))
        threads[0].start()
        return path

    yield serve
    listener.close()
    for each in threads:
        each.join()


@pytest.mark.parametrize("name", LIES)
@pytest.mark.timeout(60)
def test_what_lies_is_refused_before_it_costs_much(
    name: str, lying: Callable[[Writes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list or a trickle without end was read for ever, in a thread that nobody waited for; a
    number of a million digits took minutes before Python 3.11."""
    writes, why = LIES[name]
    monkeypatch.setattr("collectors.readers.redis._MAX_ANSWER_S", 0.3)
    if name == "list":
        monkeypatch.setattr("collectors.readers.redis._MAX_VALUES", 20_000)
    redis = Redis(lying(writes()), 5.0)
    with pytest.raises(BadReply, match=why):
        redis.ask([("SELECT", "2")])
    redis.close()


@pytest.mark.parametrize("reply", [b":5\r\n", b"$1\r\na\r\n", b"*1\r\n$1\r\na\r\n"])
def test_an_answer_to_another_question_is_refused(
    reply: bytes, root: str, lying: Callable[[Writes], str]
) -> None:
    """It was an error of fabmon's own."""
    lying(iter([b"+OK\r\n", reply]))
    databases = open_databases(HostFS(root))
    query = HashQuery("COUNTERS_DB", "COUNTERS:oid", ("a", "b"))
    with pytest.raises(Failed, match="not the answer to COUNTERS:oid"):
        databases.ask([query])
    databases.close()
    assert parse_count("9" * 5000) is None


def texts(row: Dict[str, object]) -> Dict[str, str]:
    return {field: str(value) for field, value in row.items()}


def test_the_capture_of_a_real_switch_is_read(root: str, server: RedisServer) -> None:
    if not CAPTURE.exists():
        pytest.skip("no captures of hardware beside the repository (../shared/hardware)")
    rows = json.loads(CAPTURE.read_text())
    server.fill({"COUNTERS_DB": {key: texts(row) for key, row in rows.items() if row}})
    answer = ask("sonic", root)
    assert [item.port for item in answer.objects] == ["Ethernet0", "Ethernet4", "Ethernet8"]
    for name, oid in rows["COUNTERS_PORT_NAME_MAP"].items():
        row, values = rows[f"COUNTERS:{oid}"], answer.of(name)
        assert values["phy_rx_bytes"] == int(row["SAI_PORT_STAT_IF_IN_OCTETS"])
        assert values["pfc_tx_frames_prio5"] == int(row["SAI_PORT_STAT_PFC_5_TX_PKTS"])
        assert values["pfc_rx_pause_us_prio3"] == int(
            row["EST_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"]
        )
        assert values["phy_up"] == "absent", "the capture has no APPL_DB"
    queues = ask("sonic_queues", root)
    assert {item.port for item in queues.objects} == {"Ethernet0", "Ethernet4", "Ethernet8"}
    values = queues.of("Ethernet0")
    assert values["pfc_watchdog_stormed"] == 1
    assert values["queue3_tx_ecn_marked"] == 19
