"""fabmon as a person runs it: a process in the lab's console namespace, and what it said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.lab import Lab
from tests.requirements import heeding_signals

FABMON = str(Path(sys.executable).with_name("fabmon"))

PATIENCE_S = 300.0
"""For all nodes to be up and for what is to be said, on a machine that is busy with other tests."""

Line = dict[str, Any]


class Watch:
    """`fabmon --format jsonl` on the lab. `lines` grows while it runs; each has `at_s`, the time
    since the start when it was read. `environment` is added to that of the tests."""

    def __init__(
        self,
        lab: Lab,
        *options: str,
        hosts: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [FABMON, "--hosts", str(hosts or lab.hosts_file)]
        command += ["--ssh-config", str(lab.ssh_config), "--format", "jsonl", *options]
        self.lines: list[Line] = []
        self.start_s = time.monotonic()
        self.process = subprocess.Popen(
            lab.console_argv(heeding_signals(command)),
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line: Line = json.loads(raw)
            line["at_s"] = time.monotonic() - self.start_s
            self.lines.append(line)

    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start_s

    def until(self, wanted: Callable[[Line], bool], timeout_s: float = PATIENCE_S) -> Line:
        """The first line that is wanted, however busy the machine is; else an assertion."""
        deadline_s = time.monotonic() + timeout_s
        seen = 0
        while time.monotonic() < deadline_s:
            for line in self.lines[seen:]:
                seen += 1
                if wanted(line):
                    return line
            time.sleep(0.02)
        raise AssertionError(f"not said in {timeout_s:g} s; last: {str(self.lines[-1:])[:2000]}")

    def until_all_up(self) -> Line:
        """The first tick in which every node is up and its ports have rates."""
        return self.until(
            lambda line: (
                line["type"] == "tick"
                and line["nodes_up"] == line["nodes_total"]
                and all(link["tx_bps"] is not None for link in line["links"])
            )
        )

    def ticks(self) -> list[Line]:
        """The ticks so far."""
        return [line for line in self.lines if line["type"] == "tick"]

    def findings(self, change: str = "open") -> list[Line]:
        """The findings that opened (or did something else) so far."""
        said = [line for line in self.lines if line["type"] == "finding"]
        return [line for line in said if line["change"] == change]

    def stop(self, number: int = signal.SIGINT) -> int:
        """End it; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=240)
        self._reader.join(timeout=240)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)


def links(tick: Line) -> dict[str, Line]:
    """A tick's links by `node/port`."""
    return {f"{link['node']}/{link['port']}": link for link in tick["links"]}
