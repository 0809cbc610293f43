"""Decoding of exporters' pages compared with prometheus_client, and a thousand exporters.

The page is a node_exporter's of a host with 8 HCAs, 600 series, all of them moving.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import statistics
import subprocess
import sys
import time

from prometheus_client.parser import text_string_to_metric_families

from fabmon.fabric.model import Host
from fabmon.feeds.live import LiveFeed, raise_file_limit
from fabmon.feeds.scrape.exporter_tables import exporter_tables
from fabmon.feeds.scrape.page_reader import PageReader
from fabmon.feeds.scrape.text_format import PageDecoder
from tests.bench.measure import cpu_s, tell
from tests.bench.process import cpu_s as cpu_of
from tests.bench.process import rss_mb

TARGETS, INTERVAL_S, SECONDS, WARM_UP = 1000, 2.0, 20, 8
PAGES, RUNS = 40, 5

_IB = (
    *("port_data_received_bytes_total", "port_data_transmitted_bytes_total"),
    *("port_packets_received_total", "port_packets_transmitted_total", "port_transmit_wait_total"),
    *("unicast_packets_received_total", "unicast_packets_transmitted_total"),
    *("multicast_packets_received_total", "multicast_packets_transmitted_total"),
    *("port_discards_transmitted_total", "port_errors_received_total", "symbol_error_total"),
    *("port_constraint_errors_received_total", "port_constraint_errors_transmitted_total"),
    *("port_receive_remote_physical_errors_total", "port_receive_switch_relay_errors_total"),
    *("link_downed_total", "link_error_recovery_total", "local_link_integrity_errors_total"),
    *("excessive_buffer_overrun_errors_total", "vl15_dropped_total", "rate_bytes_per_second"),
    *("state_id", "physical_state_id", "duplicate_requests_packets_total"),
    *("implied_nak_seq_errors_total", "local_ack_timeout_errors_total"),
    *("np_cnp_packets_sent_total", "np_ecn_marked_roce_packets_received_total"),
    *("out_of_buffer_drops_total", "out_of_sequence_packets_received_total"),
    *("packet_sequence_errors_total", "rp_cnp_packets_handled_total"),
    *("rnr_nak_retry_packets_received_total", "roce_adp_retransmits_total"),
)
_NET = (
    *("up", "carrier", "carrier_changes_total", "speed_bytes", "mtu_bytes", "receive_bytes_total"),
    *("transmit_bytes_total", "receive_packets_total", "transmit_packets_total"),
    *("receive_errs_total", "transmit_errs_total", "receive_drop_total", "transmit_drop_total"),
)


def main() -> None:
    """Print both."""
    decoding()
    scraping()


def page(seed: int, series: int = 600) -> bytes:
    """A page; the counters differ by seed."""
    numbers = random.Random(seed)
    names = [
        (f"node_infiniband_{name}", f'device="mlx5_{n}",port="1"') for name in _IB for n in range(8)
    ]
    names += [(f"node_network_{name}", f'device="eno{n}"') for name in _NET for n in range(10)]
    rest = series - len(names)
    names += [("node_cpu_seconds_total", f'cpu="{n}",mode="idle"') for n in range(rest)]
    lines: list[str] = []
    last = ""
    for name, labels in names:
        if name != last:
            lines += [f"# HELP {name} A counter.", f"# TYPE {name} counter"]
            last = name
        value = numbers.choice((numbers.randrange(10**6), numbers.randrange(10**15)))
        lines.append(f"{name}{{{labels}}} {_as_go_prints(value)}")
    return ("\n".join(lines) + "\n").encode()


def _as_go_prints(value: float) -> str:
    """An integer below 10^6, else with an exponent, like Prometheus' Go library."""
    if value < 1_000_000:
        return str(value)
    digits, _, exponent = f"{float(value):.15e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{exponent}"


def decoding() -> None:
    """The target ratio is 10."""
    pages = [page(seed) for seed in range(PAGES)]
    decoder, reader = PageDecoder(), PageReader(exporter_tables())

    def parse() -> None:
        for text in pages:
            for _ in text_string_to_metric_families(text.decode()):
                pass

    def decode() -> None:
        for text in pages:
            decoder.decode(text).values()

    def read() -> None:
        for text in pages:
            reader.read(text)

    ratios = []
    for _ in range(RUNS):
        theirs, ours, whole = (
            statistics.median(cpu_s(work, 1)) / PAGES for work in (parse, decode, read)
        )
        ratios.append((theirs / ours, ours, theirs, whole))
    ratio, ours, theirs, whole = (statistics.median(column) for column in zip(*ratios, strict=True))
    tell(
        "exporters_decoding",
        {
            "series": 600,
            "bytes": len(pages[0]),
            "us_a_page_ours": round(ours * 1e6),
            "us_a_page_theirs": round(theirs * 1e6),
            "us_a_page_to_the_wires_values": round(whole * 1e6),
            "ratio_median": round(ratio, 1),
            "ratio_min": round(min(row[0] for row in ratios), 1),
        },
    )


def scraping() -> None:
    """CPU of the scraping process, over real HTTP; the target is one core."""
    here = [sys.executable, "-m", "tests.bench.exporters"]
    with subprocess.Popen([*here, "serve"], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        with subprocess.Popen([*here, "scrape", port], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            for _ in range(WARM_UP):
                frames = int(client.stdout.readline())
            start_s, began, before = cpu_of(client.pid), time.monotonic(), frames
            while time.monotonic() - began < SECONDS:
                frames = int(client.stdout.readline())
            frames -= before
            used_s, took_s = cpu_of(client.pid) - start_s, time.monotonic() - began
            memory = rss_mb(client.pid)
            client.kill()
        server.kill()
    tell(
        "exporters_scraping",
        {
            "targets": TARGETS,
            "series_a_target": 600,
            "interval_s": INTERVAL_S,
            "cores": round(used_s / took_s, 2),
            "ms_a_scrape": round(used_s / max(1, frames) * 1e3, 2),
            "scrapes_a_second": round(frames / took_s),
            "rss_mb": round(memory),
        },
    )


async def scrape(port: int) -> None:
    """A feed of a thousand nodes; prints the number of frames so far at each tick."""
    hosts = [
        Host(
            name=f"gpu{number:04}",
            address="127.0.0.1",
            via="exporters",
            scrape=(f"node_exporter:{port}/{number}/metrics",),
        )
        for number in range(TARGETS)
    ]
    frames = 0
    async with LiveFeed(hosts, interval_s=INTERVAL_S) as feed:
        async for tick in feed:
            frames += len(tick.frames)
            if frames >= TARGETS:
                print(frames, flush=True)


class _Pages(asyncio.Protocol):
    """Replies to any request with the next page, compressed as exporters do."""

    def __init__(self, replies: list[bytes]) -> None:
        self._replies = replies
        self._next = random.randrange(len(replies))
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n") and self._transport is not None:
            self._next = (self._next + 1) % len(self._replies)
            self._transport.write(self._replies[self._next])


async def serve() -> None:
    """All the exporters in one process."""
    replies = []
    for seed in range(PAGES):
        body = gzip.compress(page(seed), 6)
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
            f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        replies.append(head.encode() + body)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Pages(replies), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    raise_file_limit()
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["scrape"]:
        asyncio.run(scrape(int(sys.argv[2])))
    else:
        main()
