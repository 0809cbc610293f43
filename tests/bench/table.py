"""Writes the measurements of tests/bench/shipped.json into docs/performance.md.

`python -m tests.bench.table [LINES]`: LINES is a file with JSON lines of `make bench-shipped`; each
replaces the line with the same number of nodes. Without it only the page is written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/bench/shipped.json"
PAGE = ROOT / "docs/performance.md"
BEGIN, END = "<!-- shipped: begin -->\n", "<!-- shipped: end -->\n"

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


def results() -> list[dict[str, Any]]:
    """The kept measurements, by number of nodes."""
    kept: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    return kept


def table(measured: list[dict[str, Any]]) -> str:
    """The measurements as a table, a column for each number of nodes."""
    heads = [f"{each['nodes']:,} nodes" for each in measured]
    lines = [f"| | {' | '.join(heads)} | target at 1,024 |", "|---|" + "---|" * (len(heads) + 1)]
    for what, key, form, target in _ROWS:
        cells = " | ".join(form.format(each[key]) for each in measured)
        lines.append(f"| {what} | {cells} | {target} |")
    notes = [
        f"{each['nodes']:,} nodes: {each['date']}, commit {each['commit']}, {each['machine']}, "
        f"median of {each['runs']}, load {each['load_before']:g} before it."
        for each in measured
    ]
    return "\n".join([*lines, "", *notes]) + "\n"


def page(text: str, measured: list[dict[str, Any]]) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(measured)}\n{END}{after}"


def main() -> None:
    """Keep new measurements, and write the page."""
    kept = {each["nodes"]: each for each in results()} if RESULTS.exists() else {}
    for name in sys.argv[1:]:
        for line in Path(name).read_text().splitlines():
            measured = json.loads(line)
            if measured.get("bench") == "shipped":
                kept[measured["nodes"]] = measured
    measured = [kept[nodes] for nodes in sorted(kept)]
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), measured))


if __name__ == "__main__":
    main()
