"""Writes the kept measurements of tests/bench/*.json into docs/performance.md.

`python -m tests.bench.table [LINES]`: LINES is a file with JSON lines of `make bench-shipped` and
`make bench-growth`; each replaces the line with the same number of nodes and the same server.
Without it only the page is written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/performance.md"
BENCHES = ("shipped", "growth")
"""Each has its measurements in tests/bench/NAME.json, and a table between marks on the page."""

_SHIPPED_NODES = (256, 1024)
"""Columns of the first table; other numbers of nodes are in the second alone."""

_ROWS = (
    # what, key, format, target at 1,024 nodes
    ("first counters on the screen", "first_cells_s", "{:.1f} s", "1.5 s"),
    ("all nodes", "all_nodes_s", "{:.1f} s", "6 s"),
    ("CPU: screen, findings, recording", "cores", "{:.2f} of a core", "0.30"),
    ("memory", "rss_mb", "{:.0f} MB", "350 MB"),
    ("the time shown is old by, at most", "shown_time_most_s", "{:.1f} s", "3 s"),
    ("looks without LIVE", "not_live_share", "{:.1%}", "1 %"),
    ("key to screen, median", "key_p50_ms", "{:.0f} ms", "60 ms"),
    ("key to screen, 99th percentile", "key_p99_ms", "{:.0f} ms", "150 ms"),
)

_SERVERS = {"": "streamed", "victoria-metrics": "VictoriaMetrics", "prometheus": "Prometheus"}

Measured = dict[str, Any]


def results(bench: str) -> list[Measured]:
    """The kept measurements of a bench, by number of nodes."""
    kept: list[Measured] = json.loads(_kept(bench).read_text())
    return kept


def _kept(bench: str) -> Path:
    return ROOT / f"tests/bench/{bench}.json"


def table(measured: list[Measured]) -> str:
    """The measurements as shipped, a column for each number of nodes."""
    measured = [each for each in measured if each["nodes"] in _SHIPPED_NODES]
    heads = [f"{each['nodes']:,} nodes" for each in measured]
    lines = [f"| | {' | '.join(heads)} | target at 1,024 |", "|---|" + "---|" * (len(heads) + 1)]
    for what, key, form, target in _ROWS:
        cells = " | ".join(form.format(each[key]) for each in measured)
        lines.append(f"| {what} | {cells} | {target} |")
    return "\n".join([*lines, "", *map(_note, measured)]) + "\n"


def growth_table(measured: list[Measured]) -> str:
    """Streamed and scraped sites, a line for each; some were measured by ticks alone."""
    lines = [
        "| nodes | by | CPU | memory | a tick: wall time | CPU of console, of server "
        "| all nodes after | key, median and 99th percentile |",
        "|---|" + "---|" * 7,
    ]
    for each in measured:
        tick = "| | "
        if each.get("server"):
            tick = (
                f"| {each['tick_s']:.1f} s | {each['tick_console_cpu_s']:.2f} s, "
                f"{each['tick_server_cpu_s']:.2f} s "
            )
        cpu, memory, whole, keys = "", "", "", ""
        if "cores" in each:
            cpu, memory = f"{each['cores']:.2f} of a core", f"{each['rss_mb']:.0f} MB"
            whole = f"{each['all_nodes_s']:.1f} s"
            keys = f"{each['key_p50_ms']:.0f}, {each['key_p99_ms']:.0f} ms"
        by = _SERVERS[each.get("server", "")]
        lines.append(f"| {each['nodes']:,} | {by} | {cpu} | {memory} {tick}| {whole} | {keys} |")
    return "\n".join([*lines, "", *map(_note, measured)]) + "\n"


def _note(each: Measured) -> str:
    server = each.get("server", "")
    by = f" by {_SERVERS[server]}" if server else ""
    runs = f"median of {each['runs']}, " if "runs" in each else ""
    return (
        f"{each['nodes']:,} nodes{by}: {each['date']}, commit {each['commit']}, "
        f"{each['machine']}, {runs}load {each['load_before']:g} before it."
    )


def page(text: str) -> str:
    """The page with the tables between their marks."""
    shipped, scraped = map(results, BENCHES)
    for bench, made in (("shipped", table(shipped)), ("growth", growth_table(shipped + scraped))):
        begin, end = (f"<!-- {bench}: {mark} -->\n" for mark in ("begin", "end"))
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{made}\n{end}{after}"
    return text


def main() -> None:
    """Keep new measurements, and write the page."""
    lines = [line for name in sys.argv[1:] for line in Path(name).read_text().splitlines()]
    for bench in BENCHES:
        kept = {(each.get("server", ""), each["nodes"]): each for each in results(bench)}
        for measured in map(json.loads, lines):
            if measured.get("bench") == bench:
                kept[measured.get("server", ""), measured["nodes"]] = measured
        ordered = sorted(kept.values(), key=lambda each: (each["nodes"], each.get("server", "")))
        _kept(bench).write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
