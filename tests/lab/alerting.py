"""`fabmon watch` with a real Alertmanager, in the lab's console namespace, and what arrives.

`python -m tests.lab.alerting FOLDER OPTIONS...`: the options are those of `fabmon watch`. Lines of
JSON are printed, with the time by the monotonic clock: when all nodes are up, and each
notification. Commands are read from standard input: `kill-watch` ends fabmon with SIGKILL and
starts it again as a service manager does, `restart-alertmanager` stops Alertmanager and starts it
again.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.fabric import Lab
from tests.unit.alerts.alertmanager import Alertmanager, posts
from tests.unit.feeds.prometheus_servers import free_port

_PROJECT = Path(__file__).parents[2]
_NODES = re.compile(r'^fabmon_watch_nodes\{state="(\w+)"\} (\d+)', re.MULTILINE)

Event = dict[str, Any]


class Alerting:
    """The process in the console namespace; `events` grows while it runs."""

    def __init__(self, lab: Lab) -> None:
        options = ["--hosts", str(lab.hosts_file), "--ssh-config", str(lab.ssh_config)]
        folder = lab.directory / "alerting"
        folder.mkdir()
        command = [sys.executable, "-m", "tests.lab.alerting", str(folder), *options]
        self.events: list[Event] = []
        self._process = subprocess.Popen(
            lab.console_argv(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_PROJECT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def carry_out(self, command: str) -> None:
        """Have a command carried out; returns when all nodes are up after it."""
        assert self._process.stdin is not None
        seen = len(self.events)
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        self.until(lambda _: any("all_up" in each for each in self.events[seen:]), 300)

    def until(self, wanted: Callable[[Event], bool], timeout_s: float) -> Event:
        """The first event that is wanted; else an assertion."""
        end_s = time.monotonic() + timeout_s
        while True:
            for event in self.events:
                if wanted(event):
                    return event
            assert time.monotonic() < end_s, f"not in {timeout_s:g} s: {self.events}"
            assert self._process.poll() is None, f"ended: {self.events}"
            time.sleep(0.02)

    def notifications(self) -> list[tuple[str, str, str]]:
        """What was notified so far: status, finding and severity."""
        said = [each for each in self.events if "status" in each]
        return [(each["status"], each["finding"], each["severity"]) for each in said]

    def __enter__(self) -> Alerting:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._reader.join(10)
        self._process.stdout.close()


def _print(event: Event) -> None:
    print(json.dumps({"at_s": time.monotonic(), **event}), flush=True)


def _started(folder: Path, options: list[str], port: int) -> subprocess.Popen[bytes]:
    config = ["--config", str(folder / "fabmon.toml"), "--metrics", f"127.0.0.1:{port}"]
    fabmon = str(Path(sys.executable).with_name("fabmon"))
    with (folder / "watch.log").open("ab") as log:
        return subprocess.Popen([fabmon, "watch", *config, *options], stdout=log, stderr=log)


def _print_when_up(port: int) -> None:
    """Wait until no node has another state than up."""
    end_s = time.monotonic() + 240
    while time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                states = {
                    state: int(count) for state, count in _NODES.findall(page.read().decode())
                }
        except OSError:
            states = {}
        if states.get("up") and sum(states.values()) == states["up"]:
            _print({"all_up": states["up"]})
            return
        time.sleep(0.2)
    raise SystemExit(f"not all nodes are up: {states}")


def main() -> None:
    """Run until the end of standard input."""
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    port = free_port()

    def notified(body: bytes) -> None:
        for alert in json.loads(body)["alerts"]:
            labels = alert["labels"]
            event = {"status": alert["status"], "finding": labels["finding"]}
            _print({**event, "severity": labels["severity"]})

    with posts(notified) as hook, Alertmanager(folder / "alertmanager", hook.url) as server:
        (folder / "fabmon.toml").write_text(
            # An alert expires after four: fabmon is back by then on a busy machine too.
            "[alerts]\nresend_s = 8\nkeep_open_s = 0\n"
            f'[alerts.receivers.main]\ntype = "alertmanager"\nurl = "{server.url}"\n'
        )
        watch = _started(folder, options, port)
        try:
            _print_when_up(port)
            for command in map(str.strip, sys.stdin):
                if command == "kill-watch":
                    watch.kill()
                    watch.wait()
                    watch = _started(folder, options, port)
                elif command == "restart-alertmanager":
                    server.stop()
                    server.start()
                _print_when_up(port)
        finally:
            watch.send_signal(signal.SIGTERM)
            watch.wait(240)


if __name__ == "__main__":
    main()
