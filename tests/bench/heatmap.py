"""CPU of a heatmap frame: 200 x 50 cells in a real terminal (tmux), so many of them changing.

Beside it, in the same run, the plain way to do it in Textual: a widget that makes a segment a cell.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.strip import Strip
from textual.widget import Widget

from fabmon.tui.cells import LEVEL, Codes, Look, scale
from fabmon.tui.metrics import HEAT_METRICS
from fabmon.tui.palette import Depth, palette
from fabmon.tui.widgets.heatgrid import HeatGrid
from tests.bench.measure import tell
from tests.tui.plain_rows import plain_rows

COLUMNS, ROWS, FRAMES, FPS = 200, 50, 60, 20
RUNS = 3
SHARES = (0.01, 0.20, 1.0)


class Plain(Widget):
    """The naive widget: every cell a segment with a style of its own, the whole drawn anew."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: Codes = np.zeros((ROWS, COLUMNS), np.uint16)

    def show(self, codes: Codes, *_: object) -> None:
        self._codes = codes
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= ROWS:
            return Strip.blank(self.size.width)
        cells = self._codes[y].tolist()
        return Strip(
            [Segment("█", Style(color=Color.from_rgb(c * 8 % 256, c * 5 % 256, 96))) for c in cells]
        )


class Bench(App[None]):
    """Draws `FRAMES` frames at `FPS` and says what they cost beside as many idle ticks."""

    CSS = "HeatGrid, Plain { width: 100%; height: 100%; } Screen { overflow: hidden; }"

    def __init__(self, way: str, share: float, out: Path) -> None:
        super().__init__()
        look = Look(palette(Depth.TRUECOLOR), scale(HEAT_METRICS[0], Depth.TRUECOLOR, False))
        self._way: HeatGrid | Plain = HeatGrid(look) if way == "fabmon" else Plain()
        self._frames = frames(share)
        self._out = out
        self._rows = plain_rows(ROWS, COLUMNS)
        self._step = 0
        self._start_s = 0.0
        self._idle_s = 0.0

    def compose(self) -> ComposeResult:
        yield self._way

    def on_mount(self) -> None:
        self._way.show(self._frames[0], self._rows)
        self.set_timer(0.5, self._begin)

    def _begin(self) -> None:
        self._start_s = time.process_time()
        self.set_interval(1 / FPS, self._next)

    def _next(self) -> None:
        self._step += 1
        if self._step == FRAMES:
            self._idle_s = time.process_time() - self._start_s
            self._start_s = time.process_time()
        elif FRAMES < self._step <= 2 * FRAMES:
            self._way.show(self._frames[self._step - FRAMES], self._rows)
        elif self._step == 2 * FRAMES + 5:
            used_s = time.process_time() - self._start_s
            size = f"{self.size.width}x{self.size.height}"
            self._out.write_text(
                json.dumps({"ms": (used_s - self._idle_s) / FRAMES * 1e3, "terminal": size})
            )
            self.exit()


def frames(share: float) -> list[Codes]:
    """Levels like a fabric's: ports of a node are similar; `share` of the cells move each frame."""
    random = np.random.default_rng(7)
    top = len(scale(HEAT_METRICS[0], Depth.TRUECOLOR, False).edges)
    assert top <= LEVEL
    blocks = random.integers(1, top, (ROWS, COLUMNS // 8))
    codes: Codes = np.repeat(blocks, 8, axis=1).astype(np.uint16)
    made = [codes]
    for _ in range(FRAMES + 1):
        codes = codes.copy()
        moving: NDArray[np.intp] = random.permutation(codes.size // 8)[
            : int(codes.size // 8 * share)
        ]
        flat = codes.reshape(-1, 8)
        flat[moving] = random.integers(1, top, (len(moving), 1))
        made.append(codes)
    return made


def in_tmux(way: str, share: float) -> dict[str, Any]:
    """One run in a terminal of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out, server = Path(folder) / "out.json", f"fabmon-bench-{Path(folder).name}"
        run = [sys.executable, "-m", "tests.bench.heatmap", "--run", way, str(share), str(out)]
        command = "env COLORTERM=truecolor TERM=xterm-256color " + shlex.join(run)
        size = ["-x", str(COLUMNS), "-y", str(ROWS + 1)]
        subprocess.run(["tmux", "-L", server, "new-session", "-d", *size, command], check=True)
        deadline_s = time.monotonic() + 60
        while not out.exists() or not out.read_text():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"no result of {way} in tmux")
            time.sleep(0.2)
        subprocess.run(["tmux", "-L", server, "kill-server"], check=False, capture_output=True)
        result: dict[str, Any] = json.loads(out.read_text())
        return result


def main() -> None:
    """Print the CPU of a frame for each share of changing cells, as ratios to the plain way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=3, metavar=("WAY", "SHARE", "OUT"))
    run = parser.parse_known_args()[0].run
    if run:
        Bench(run[0], float(run[1]), Path(run[2])).run()
        return
    if shutil.which("tmux") is None:
        tell("heatmap", {"skipped": "apt install tmux"})
        return
    for share in SHARES:
        pairs = [(in_tmux("fabmon", share), in_tmux("plain", share)) for _ in range(RUNS)]
        ours = [one["ms"] for one, _ in pairs]
        theirs = [other["ms"] for _, other in pairs]
        tell(
            "heatmap",
            {
                "cells": ROWS * COLUMNS,
                "changing": share,
                "terminal": pairs[0][0]["terminal"],
                "cpu_ms_per_frame": round(statistics.median(ours), 2),
                "plain_cpu_ms_per_frame": round(statistics.median(theirs), 2),
                "ratio": round(
                    statistics.median(o / t for o, t in zip(ours, theirs, strict=True)), 3
                ),
            },
        )


if __name__ == "__main__":
    main()
