"""Writes the kept measurements of tests/bench/*.json into docs/performance.md.

`python -m tests.bench.table [LINES]`: LINES is a file with JSON lines of `make bench`, `soak`,
`bench-shipped` or `bench-growth`; each replaces the line of the same benchmark and case, those of a
soak all of the last one. Without it only the page is written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bench.parts_table import Measured, parts_table, soak_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/performance.md"
BENCHES = ("shipped", "growth", "parts", "soak")
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

_CASE = ("bench", "nodes", "server", "switches", "case", "of", "jobs", "changing", "minutes")
"""What distinguishes the lines of one benchmark."""


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
    shipped, scraped, parts, soak = map(results, BENCHES)
    made = (table(shipped), growth_table(shipped + scraped), parts_table(parts), soak_table(soak))
    for bench, tables in zip(BENCHES, made, strict=True):
        begin, end = (f"<!-- {bench}: {mark} -->\n" for mark in ("begin", "end"))
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{tables}\n{end}{after}"
    return text


def merged(bench: str, kept: list[Measured], lines: list[Measured]) -> list[Measured]:
    """The measurements of a bench: those of `lines` replace the kept ones of the same case."""
    new = [each for each in lines if _bench(each) == bench and "skipped" not in each]
    if bench == "soak" and new:
        kept = []
    by_case = {_case(each): each for each in (*kept, *new)}
    return [by_case[case] for case in sorted(by_case)]


def _bench(each: Measured) -> str:
    """Which of the kept files a line is for."""
    return str(each["bench"]) if each["bench"] in BENCHES else "parts"


def _case(each: Measured) -> tuple[str, ...]:
    values = (each.get(name, "") for name in _CASE)
    return tuple(f"{value:09}" if isinstance(value, int | float) else value for value in values)


def main() -> None:
    """Keep new measurements, and write the page."""
    names = sys.argv[1:]
    lines = [json.loads(line) for name in names for line in Path(name).read_text().splitlines()]
    for bench in BENCHES:
        measured = merged(bench, results(bench), lines)
        _kept(bench).write_text(json.dumps(measured, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
