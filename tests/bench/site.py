"""A site of training hosts as its Prometheus has it: series of agents, stored scrape by scrape.

Jobs of 64 nodes alternate between computing and communicating, each with a period of its own; a
port in 500 counts symbol errors. Nothing is scraped: VictoriaMetrics gets a scrape by its import
API, Prometheus by its remote-write receiver.
"""

from __future__ import annotations

import argparse
import struct
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.openmetrics import EXPOSED

PORTS = 8
LINE_RATE_BYTES_PER_S = 50e9
OVERVIEW = (
    *("ib_tx_bytes", "ib_rx_bytes", "ib_tx_wait"),
    *("ib_symbol_errors", "ib_state", "ib_rate_bps"),
)
"""The six metrics per port that the overview and the findings use."""

_JOB_NODES = 64
_BATCH = 40_000
_READ_AGE_S = 0.3

SCRAPE_S = 15.0
_PAST_SCRAPES = 5

Floats = NDArray[np.float64]
Labels = Mapping[str, str]


class Site:
    """The counters of `nodes` nodes with 8 ports each, of the given metrics of the catalog."""

    def __init__(self, nodes: int, metrics: Sequence[str] = OVERVIEW) -> None:
        self.nodes = nodes
        self.metrics = tuple(metrics)
        self._random = np.random.default_rng(1)
        ports = nodes * PORTS
        self._job = np.repeat(np.arange(nodes) // _JOB_NODES, PORTS)
        self._counts = {name: np.zeros(ports) for name in metrics}
        self._is_damaged = self._random.random(ports) < 0.002

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        jobs = int(self._job[-1]) + 1
        share = self._random.uniform(0.25, 0.45, jobs)[self._job]
        noise = self._random.normal(1.0, 0.01, len(share))
        sent = LINE_RATE_BYTES_PER_S * share * noise * seconds
        for name, counts in self._counts.items():
            if name == "ib_tx_wait":
                counts += np.floor(sent * 2e-6)
            elif name == "ib_symbol_errors":
                counts += self._is_damaged * self._random.poisson(3.0, len(share))
            else:
                counts += np.floor(sent)

    def values(self, metric: str) -> Floats:
        """The values of a metric of all ports, in the unit of the exposition."""
        if metric == "ib_state":
            return np.full(self.nodes * PORTS, 4.0)
        if metric == "ib_rate_bps":
            return np.full(self.nodes * PORTS, LINE_RATE_BYTES_PER_S)
        return self._counts[metric]

    def series(self) -> Iterator[tuple[str, list[Labels], Floats]]:
        """Each metric with the labels and values of its series."""
        ports: list[Labels] = [
            {**node, "kind": "infiniband", "port": f"mlx5_{port}", "source": "ib"}
            for node in self._nodes()
            for port in range(PORTS)
        ]
        for name in self.metrics:
            yield EXPOSED[name].sample, ports, self.values(name)
        nodes = self._nodes()
        yield "up", nodes, np.ones(self.nodes)
        sources: list[Labels] = [{**node, "source": "ib"} for node in nodes]
        yield "fabmon_source_age_seconds", sources, np.full(self.nodes, _READ_AGE_S)
        yield "fabmon_source_up", sources, np.ones(self.nodes)

    def _nodes(self) -> list[Labels]:
        return [{"instance": f"gpu{n:05}:9838", "job": "fabmon"} for n in range(self.nodes)]


class ImportWriter:
    """Stores scrapes of a site in VictoriaMetrics by its import API."""

    def __init__(self, url: str, site: Site) -> None:
        self._url = url
        self._site = site
        self._names = [
            name + "{" + ",".join(f'{key}="{text}"' for key, text in labels.items()) + "}"
            for name, series, _ in site.series()
            for labels in series
        ]

    def store(self, at_s: float) -> None:
        """Store the counters of now as scraped at `at_s`; afterwards queries return them."""
        values = np.concatenate([values for _, _, values in self._site.series()]).tolist()
        stamp = round(at_s * 1000)
        for start in range(0, len(values), _BATCH):
            stop = start + _BATCH
            lines = [
                f"{name} {value!r} {stamp}"
                for name, value in zip(self._names[start:stop], values[start:stop], strict=True)
            ]
            _post(f"{self._url}/api/v1/import/prometheus", "\n".join(lines).encode() + b"\n")
        _post(f"{self._url}/internal/force_flush", b"")


class RemoteWriter:
    """Stores scrapes of a site by the remote-write protocol of Prometheus.

    A request is a `prometheus.WriteRequest`, snappy as one literal: its labels are encoded once,
    the values and times are placed into it.
    """

    def __init__(self, url: str, site: Site) -> None:
        self._url = url
        self._site = site
        encoded = [
            _labels({"__name__": name, **labels})
            for name, series, _ in site.series()
            for labels in series
        ]
        self._batches: list[tuple[NDArray[np.uint8], NDArray[np.intp]]] = []
        for start in range(0, len(encoded), _BATCH):
            parts, places, size = [], [], 0
            for labels in encoded[start : start + _BATCH]:
                # A sample: field 2 of the series, 16 bytes; field 1 a double, field 2 a varint.
                body = labels + b"\x12\x10\x09" + bytes(8) + b"\x10" + bytes(6)
                head = b"\x0a" + _varint(len(body))
                places.append(size + len(head) + len(labels) + 3)
                parts.append(head + body)
                size += len(head) + len(body)
            self._batches.append(
                (np.frombuffer(b"".join(parts), np.uint8).copy(), np.array(places, np.intp))
            )

    def store(self, at_s: float) -> None:
        """Store the counters of now as scraped at `at_s`."""
        values = np.concatenate([values for _, _, values in self._site.series()])
        time = np.frombuffer(_varint(round(at_s * 1000)), np.uint8)
        start = 0
        for message, places in self._batches:
            doubles = values[start : start + len(places)].astype("<f8").view(np.uint8)
            start += len(places)
            message[places[:, None] + np.arange(8)] = doubles.reshape(-1, 8)
            message[places[:, None] + 9 + np.arange(6)] = time
            body = message.tobytes()
            packed = _varint(len(body)) + b"\xfc" + struct.pack("<I", len(body) - 1) + body
            headers = {
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            }
            _post(f"{self._url}/api/v1/write", packed, headers)


def _labels(labels: Labels) -> bytes:
    """The labels of a series, sorted by name, as fields 1 of `prometheus.TimeSeries`."""
    parts = []
    for name, text in sorted(labels.items()):
        pair = b"".join(
            field + _varint(len(part)) + part
            for field, part in ((b"\x0a", name.encode()), (b"\x12", text.encode()))
        )
        parts.append(b"\x0a" + _varint(len(pair)) + pair)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _post(url: str, body: bytes, headers: Mapping[str, str] = {}) -> None:
    request = urllib.request.Request(url, body, dict(headers))
    with urllib.request.urlopen(request, timeout=120):
        pass


def writer(server: str, url: str, site: Site) -> ImportWriter | RemoteWriter:
    """What stores scrapes in a server: `prometheus` or `victoria-metrics`."""
    return (ImportWriter if server == "victoria-metrics" else RemoteWriter)(url, site)


def store_past(site: Site, to: ImportWriter | RemoteWriter) -> None:
    """Store the scrapes of the last minute."""
    start_s = time.time() - _PAST_SCRAPES * SCRAPE_S
    for scrape in range(_PAST_SCRAPES):
        site.advance(SCRAPE_S)
        to.store(start_s + scrape * SCRAPE_S)


def main() -> None:
    """Store the last minute, print a line, then store a scrape every 15 s until the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("url")
    parser.add_argument("nodes", type=int)
    parser.add_argument("--continues", action="store_true", help="the past is stored already")
    options = parser.parse_args()
    site = Site(options.nodes)
    to = writer(options.server, options.url, site)
    if not options.continues:
        store_past(site, to)
    print("stored", flush=True)
    while True:
        time.sleep(SCRAPE_S - time.time() % SCRAPE_S)
        site.advance(SCRAPE_S)
        to.store(time.time())


if __name__ == "__main__":
    main()
