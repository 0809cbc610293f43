"""fabmon as a user starts it: agents over HTTP, the screen in a real terminal, all defaults on.

Findings, screen and the ring recording are on. Measured from outside: CPU and memory of the
process, how old the time on the screen is, how often it does not say LIVE, and how long a key takes
to the screen, half of them Escape. `--nodes`, `--seconds` and `--runs` are options; the bench is
worth little on a machine that does anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from getpass import getuser
from pathlib import Path

from tests.bench import ssh
from tests.bench.agents import address
from tests.bench.measure import about
from tests.bench.process import cpu_s, rss_mb
from tests.terminals import Tmux

PORT = 19837
WIDTH, HEIGHT = 200, 55
_SETTLE_S = 8.0
_CONNECT_S, _KEY_S, _BETWEEN_KEYS_S = 120.0, 8.0, 0.7
_NODES_UP = re.compile(r"(\d+)/(\d+) nodes")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)Z")


@contextmanager
def watched(nodes: int, restart_s: float = 0.0, is_ssh: bool = False) -> Iterator[Tmux]:
    """A terminal in which fabmon watches that many agents, with a home of its own; with `is_ssh`
    through a real sshd on loopback."""
    with tempfile.TemporaryDirectory(prefix="fabmon-bench-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        token = home / "token"
        token.write_text("bench" * 9 + "\n")
        token.chmod(0o600)
        way = f"via=http port={PORT} tls=no secret={token}"
        if is_ssh:
            way = f"port={ssh.SSH_PORT} user={getuser()}"
        lines = [
            f"gpu{n:04} address={address(n)} {way} group=leaf{n // 32:02}" for n in range(nodes)
        ]
        (home / "hosts.txt").write_text("\n".join(lines) + "\n")
        sizes = [str(nodes), str(PORT), str(restart_s)]
        command = [sys.executable, "-m", "tests.bench.agents", *sizes]
        sshd = ssh.server(ssh.find_sshd() or "sshd", home, PORT) if is_ssh else nullcontext()
        with sshd, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agents:
            assert agents.stdout is not None
            if not agents.stdout.readline():
                raise SystemExit(f"the agents did not start: is port {PORT} in use?")
            options = ["--hosts", f"{name}/hosts.txt"]
            options += ["--ssh-config", f"{name}/ssh_config"] if is_ssh else []
            screen = Tmux(started(options, name), WIDTH, HEIGHT)
            try:
                yield screen
            finally:
                screen.close()
                agents.terminate()


def started(arguments: Sequence[str], home: str) -> str:
    """The command line that starts fabmon with a home of its own."""
    where = {"HOME": home, "XDG_RUNTIME_DIR": home, "PATH": os.environ["PATH"]}
    terminal = {"TERM": "tmux-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    env = [f"{key}={value}" for key, value in (where | terminal).items()]
    fabmon = str(Path(sys.executable).parent / "fabmon")
    return f"exec {shlex.join(['env', '-i', *env, fabmon, *arguments])}"


def lag_s(text: str) -> float | None:
    """How old the time in the header is, up to a second more than shown; None without one."""
    found = _CLOCK.search(text.partition("\n")[0])
    if found is None:
        return None
    hours, minutes, seconds = map(int, found.groups())
    return (time.time() - (hours * 3600 + minutes * 60 + seconds)) % 86_400


def _connect(screen: Tmux, started_s: float) -> tuple[float, float]:
    """Seconds from the start to the first counters, and to those of all nodes."""
    first_s = None
    while time.monotonic() - started_s < _CONNECT_S:
        found = _NODES_UP.search(screen.text())
        if found is not None and int(found[1]):
            first_s = first_s or time.monotonic() - started_s
            if found[1] == found[2]:
                return first_s, time.monotonic() - started_s
        time.sleep(0.05)
    raise SystemExit(f"not all nodes were up after {_CONNECT_S:g} s:\n{screen.text()}")


def _press(screen: Tmux, key: str, is_help: bool) -> float:
    """Seconds from a key to the screen that it leads to."""
    start_s = time.monotonic()
    screen.keys(key)
    while time.monotonic() - start_s < _KEY_S:
        if ("help:" in screen.text()) == is_help:
            break
        time.sleep(0.004)
    return time.monotonic() - start_s


def measure(nodes: int, seconds: float, is_ssh: bool = False) -> dict[str, float]:
    """The figures of one run."""
    with watched(nodes, is_ssh=is_ssh) as screen:
        figures = watch(screen, seconds, _SETTLE_S)
    return figures | {"ms_per_node_tick": figures["cores"] / nodes * 1e3}


def watch(screen: Tmux, seconds: float, settle_s: float) -> dict[str, float]:
    """The figures of a fabmon that was just started, over `seconds`; keys are pressed."""
    first_s, all_s = _connect(screen, time.monotonic())
    time.sleep(settle_s)
    pid = screen.pid
    cpu_before_s, begun_s = cpu_s(pid), time.monotonic()
    keys_s: list[float] = []
    lags_s: list[float] = []
    not_live = 0
    while time.monotonic() - begun_s < seconds:
        is_help = len(keys_s) % 2 == 0
        keys_s.append(_press(screen, "?" if is_help else "Escape", is_help))
        text = screen.text()
        not_live += "LIVE" not in text.partition("\n")[0]
        lag = lag_s(text)
        lags_s += [] if lag is None else [lag]
        time.sleep(_BETWEEN_KEYS_S)
    cores = (cpu_s(pid) - cpu_before_s) / (time.monotonic() - begun_s)
    keys_s.sort()
    return {
        "first_cells_s": first_s,
        "all_nodes_s": all_s,
        "cores": cores,
        "rss_mb": rss_mb(pid),
        "shown_time_s": statistics.median(lags_s),
        "shown_time_most_s": max(lags_s),
        "not_live_share": not_live / len(keys_s),
        "key_p50_ms": keys_s[len(keys_s) // 2] * 1e3,
        "key_p99_ms": keys_s[min(len(keys_s) - 1, int(len(keys_s) * 0.99))] * 1e3,
    }


def main() -> None:
    """Print a line of JSON: the medians of some runs, and where and when they were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ssh", action="store_true", help="through a real sshd on loopback")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    runs = [measure(options.nodes, options.seconds, options.ssh) for _ in range(options.runs)]
    medians = {key: statistics.median(each[key] for each in runs) for key in runs[0]}
    line = {
        "bench": "shipped over ssh" if options.ssh else "shipped",
        "nodes": options.nodes,
        "runs": options.runs,
        "seconds": options.seconds,
        **about(load_before),
        **{key: round(value, 3) for key, value in medians.items()},
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
