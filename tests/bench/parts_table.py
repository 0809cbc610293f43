"""The tables of what `make bench` measures, and of hours with restarting nodes (`make soak`)."""

from __future__ import annotations

from typing import Any, NamedTuple

Measured = dict[str, Any]


class _Row(NamedTuple):
    """What was measured, which line has it, and how its figures and the peer's are written."""

    what: str
    line: Measured
    ours: str
    peer: str = ""
    ratio: str = ""
    target: str = ""


def _analysis(case: str) -> Measured:
    return {"bench": "analysis_tick", "switches": "64 of 64", "case": case}


_PYTHON = (
    "{cpu_ms_per_frame:.2f} ms a frame, {rss_mb:.0f} MB, first frame in {first_frame_ms:.0f} ms"
)
_BESIDE = ("{us_per_sample_ours:.1f} us", "node_exporter {us_per_sample_theirs:.1f} us")
_HEATMAP = ("{cpu_ms_per_frame:.1f} ms", "a segment a cell: {plain_cpu_ms_per_frame:.0f} ms")
_LONG = (
    "{open_ms:.0f} ms; {seek_ms_median:.0f}, {seek_ms_most:.0f} ms; {screen_seek_ms_median:.0f}, "
    "{screen_seek_ms_most:.0f} ms, the first {screen_seek_ms_first:.0f} ms; {strip_ms:.0f} ms; "
    "{rss_mb_most:.0f} MB"
)

ROWS = (
    _Row(
        "probe, all sources, 8 HCAs, 220 values a frame, 1 Hz",
        {"bench": "probe"},
        "{cpu_ms_per_frame:.2f} ms a frame, {percent_of_a_core_at_1hz:.2f} % of a core, "
        "{rss_mb:.0f} MB",
        target="0.1 %, 30 MB",
    ),
    _Row(
        "probe, GPU host: 8 HCAs, 8 GPUs of 18 NVLinks, 10 NICs, 700 values a frame, 1 Hz",
        {"bench": "probe_gpu_host"},
        "{cpu_ms_per_frame:.2f} ms a frame, {percent_of_a_core_at_1hz:.2f} % of a core, "
        "{rss_mb:.0f} MB; read in {read_ms_per_frame:.1f} ms",
        target="0.3 %, 25 ms",
    ),
    _Row(
        "the same host on the wire, 30 % of its 1,777 counters moving, bytes a second",
        {"bench": "wire_gpu_host"},
        "{bytes_per_s_packed:,.0f}",
        "plain JSON {bytes_per_s_plain:,.0f}",
        target="3,000",
    ),
    _Row(
        "probe, start of the process to the first frame",
        {"bench": "probe_first_frame"},
        "{median_s:.2f} s",
        target="1 s",
    ),
    *(
        _Row(
            f"the probe's archive under Python {version}, all sources, 8 HCAs",
            {"bench": f"probe_python_{version}"},
            _PYTHON,
        )
        for version in ("3.6", "3.8", "3.9", "3.11")
    ),
    _Row(
        "192 InfiniBand counters, back to back, CPU a sample",
        {"bench": "probe_vs_node_exporter_back_to_back"},
        *_BESIDE,
        "{ratio_median:.2f}",
        "0.1",
    ),
    _Row(
        "the same at 1 Hz, every cache cold",
        {"bench": "probe_vs_node_exporter_at_1hz"},
        *_BESIDE,
        "{ratio_median:.2f}",
        "0.1",
    ),
    _Row(
        "console, 1,024 nodes x 650 counters, 1 Hz, every port with errors at every tick: decode, "
        "rates, history, findings",
        {"bench": "console"},
        "{cores_at_1hz:.2f} of a core",
        target="0.25",
    ),
    _Row(
        "exporters' text, 600 series, CPU a page",
        {"bench": "exporters_decoding"},
        "{us_a_page_ours:.0f} us",
        "prometheus_client {us_a_page_theirs:,.0f} us",
        "1 / {ratio_median:.0f}",
        "1 / 10",
    ),
    _Row(
        "console, 1,000 exporters x 600 series every 2 s over HTTP",
        {"bench": "exporters_scraping"},
        "{cores:.2f} of a core, {rss_mb:.0f} MB",
        target="1",
    ),
    _Row(
        "console, 1,024 nodes from VictoriaMetrics, 163,840 series: a tick",
        {"bench": "prometheus"},
        "{console_cpu_ms:.0f} ms of CPU, the server {server_cpu_ms:.0f} ms; "
        "{wall_ms:,.0f} ms of wall time",
        target="1 s of wall time",
    ),
    *(
        _Row(
            f"analysis of a tick, 1,024 hosts x 8 rails, 64 switches x 64 ports: {words}",
            _analysis(case),
            "{median_s_ms:.1f} ms",
            target="10 ms",
        )
        for words, case in (
            ("healthy", "healthy"),
            ("errors at every port", "errors at every port"),
            ("an incast, a slow receiver, errors", "trouble"),
            ("a collision, a hello every 10 ticks", "collision, a hello every 10 ticks"),
        )
    ),
    _Row(
        "history of a tick of the same fabric, 841,000 values; with a hello that changes a fact",
        {"bench": "history_hello", "switches": "64 of 64"},
        "{usual_ms:.0f}; {median_s_ms:.0f} ms",
        target="a hello: 50 ms more, with the analysis",
    ),
    _Row(
        "iteration analysis of 1,024 hosts x 8 rails in 4 jobs, CPU a tick, 99 of 100 below",
        {"bench": "iteration", "jobs": 4},
        "{ms_a_tick:.1f} ms, {p99_ms:.1f} ms",
        target="5 ms",
    ),
    _Row(
        "simulated fabric, 1,024 hosts x 8 rails, 64 switches, 841,000 values a tick, 1 Hz",
        {"bench": "demo"},
        "{cores_at_1hz:.2f} of a core",
        target="0.2",
    ),
    _Row(
        "SSH, 200 sessions of a real sshd on loopback: CPU on the console to connect, a node",
        {"bench": "ssh"},
        "{connect_cpu_ms_per_node:.1f} ms",
        "agents over HTTP {connect_cpu_ms_per_node_by_http:.1f} ms",
        target="8 ms",
    ),
    _Row(
        "the same, received, decoded and checked, a node and tick",
        {"bench": "ssh"},
        "{us_per_node_tick:.0f} us",
        "agents over HTTP {us_per_node_tick_by_http:.0f} us",
    ),
    _Row(
        "the same, all in: screen, findings, recording, 200 nodes, a node and tick",
        {"bench": "shipped over ssh"},
        "{ms_per_node_tick:.2f} ms",
        target="0.25 ms",
    ),
    _Row(
        "recording, 64 hosts x 192 counters x 900 s of bursty traffic, bytes a sample",
        {"bench": "recording_64_nodes"},
        "{bytes_per_sample:.2f}",
        "VictoriaMetrics {victoria_metrics_bytes_per_sample:.2f}",
        "{ratio:.2f}",
        "0.5, 0.6",
    ),
    _Row(
        "the same, CPU a sample",
        {"bench": "recording_64_nodes"},
        "{cpu_ns_per_sample:.0f} ns",
        target="50 ns",
    ),
    _Row(
        "replay of 64 hosts, as fast as it goes",
        {"bench": "replay_64_nodes"},
        "{times_real_time:.0f} x real time",
        target="200 x",
    ),
    *(
        _Row(
            f"recording of {words}: open; reading at a seek, median and most; from the key to the "
            "drawn screen of 200 x 60; strip of the whole; memory, the screen's included",
            {"bench": "recording_long", "nodes": nodes},
            _LONG,
            target="1 s; seeks 100 ms; 1 s; 500 MB",
        )
        for nodes, words in ((1024, "4 GB, 1,024 nodes"), (64, "24 h, 64 nodes"))
    ),
    *(
        _Row(
            f"heatmap, 10,000 cells in tmux, {words} of them changing, CPU a frame",
            {"bench": "heatmap", "changing": share},
            *_HEATMAP,
            "{ratio:.2f}",
            target,
        )
        for words, share, target in (("1 %", 0.01, ""), ("20 %", 0.2, "8 ms"), ("100 %", 1.0, ""))
    ),
)
"""A row for each figure that the page gives. A line that was never measured has no row."""


def parts_table(measured: list[Measured]) -> str:
    """The rows for which there are measurements; then when these were taken."""
    lines = ["| what | fabmon | peer, same run | ratio | target |", "|---|---|---|---|---|"]
    for row in ROWS:
        found = next((each for each in measured if each.items() >= row.line.items()), None)
        if found is not None:
            found = found | {"median_s_ms": found.get("median_s", 0) * 1e3}
            cells = (row.what, row.ours.format_map(found), row.peer.format_map(found))
            lines.append(f"| {' | '.join((*cells, row.ratio.format_map(found), row.target))} |")
    return "\n".join([*lines, "", *_notes(measured)]) + "\n"


def soak_table(measured: list[Measured]) -> str:
    """The last `make soak`, a line for each ten minutes."""
    lines = [
        "| minutes | memory, median and most | CPU | open files | threads "
        "| time shown: old by, 99 of 100 below | most |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in sorted(measured, key=lambda each: each["minutes"]):
        lines.append(
            f"| {each['minutes']:.0f} | {each['rss_mb']:.0f}, {each['rss_most_mb']:.0f} MB "
            f"| {each['cores']:.2f} of a core | {each['files']} | {each['threads']} "
            f"| {each['shown_time_p99_s']:.1f} s | {each['shown_time_most_s']:.1f} s |"
        )
    return "\n".join([*lines, "", *_notes(measured)]) + "\n"


def _notes(measured: list[Measured]) -> list[str]:
    """A line for each commit that was measured, with the loads seen."""
    loads: dict[tuple[str, ...], list[float]] = {}
    for each in measured:
        key = tuple(each[name] for name in ("date", "commit", "machine"))
        loads.setdefault(key, []).append(each["load_before"])
    return [
        f"{date}, commit {commit}, {machine}, load {min(some):g} to {max(some):g}."
        for (date, commit, machine), some in loads.items()
    ]
