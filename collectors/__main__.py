"""`python -m collectors`: read this machine's counters and write the wire to standard output."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import platform
import resource
import sys
import threading
from typing import Any, Dict, List, Optional

from collectors import __version__, wire
from collectors.hostfs import HostFS
from collectors.loop import requests
from collectors.loop.probe import Probe
from collectors.loop.requests import RequestWorker
from collectors.loop.source_loader import make_source
from collectors.readers import visibility
from collectors.registry import SOURCES, choose_sources
from collectors.source import Source


def main() -> int:
    """Run the probe as the arguments say; the exit status."""
    options = _parser().parse_args()
    settings = requests.Settings(options.interval, 0.0, options.sources, options.root)
    try:
        if options.control:
            settings = requests.parse_settings(requests.read_line(0))
        sources = _sources(settings)
    except requests.BadSettings as error:
        print(f"fabmon probe: {error}", file=sys.stderr)
        return 2
    output = _Output()
    if options.control:
        requests.exit_with_console(0, settings.lease_s, _Requests(settings.root, output))
    _raise_file_limit()
    about = _about(HostFS(settings.root))
    if sys.version_info >= (3, 7):
        gc.freeze()  # Everything allocated so far lives as long as the probe.
    try:
        encoding = wire.choose_encoding(settings.encodings)
        probe = Probe(sources, output, about, settings.interval_s, encoding, _warnings())
        probe.run(1 if options.once else None)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m collectors", description=__doc__)
    parser.add_argument("--once", action="store_true", help="one hello and one frame, then exit")
    parser.add_argument("--root", default="/", help="read a tree laid out like / (default: /)")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between frames")
    parser.add_argument(
        "--sources",
        type=lambda text: text.split(","),
        help=f"from {','.join(SOURCES)}; or +NAME,-NAME to change the default set",
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="read settings as one JSON line on standard input, and exit when it closes",
    )
    return parser


def _sources(settings: requests.Settings) -> List[Source]:
    try:
        names = choose_sources(settings.sources)
        names += choose_sources(sorted(set(settings.arguments) - set(names)))
    except KeyError as error:
        known = ", ".join(SOURCES)
        raise requests.BadSettings(f"no source {error.args[0]!r}: there are {known}") from None
    host = HostFS(settings.root)
    made = [make_source(name, host) for name in names]
    for source in made:
        source.argument = settings.arguments.get(source.name, "")
    return [each for source in made for each in (source, *source.companions())]


def _about(host: HostFS) -> Dict[str, Any]:
    """The keys of the hello that describe the node, and what of it is not visible from here.

    `reached_at` is this machine's address that the console's SSH connection came in at, empty
    without one.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    return {
        "probe": __version__,
        "hostname": platform.node(),
        "boot_id": host.text("proc/sys/kernel/random/boot_id") or "",
        "python": platform.python_version(),
        "kernel": platform.release(),
        "reached_at": words[2] if len(words) == 4 else "",
        "limits": visibility.limits(host),
    }


def _warnings() -> List[bytes]:
    """The notice that another Python runs the probe than the one that the hosts file names."""
    named = os.environ.get("FABMON_PASSED_OVER", "")
    if not named:
        return []
    text = f"{named} is not there, does not run or is older than 3.6: {sys.executable} is used"
    return [wire.notice("lost", "python", text, reason="failed")]


class _Output:
    """Standard output, one whole line after the other whichever thread it comes from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, line: bytes) -> None:
        with self._lock:
            view = memoryview(line)
            while view:
                view = view[os.write(1, view) :]


class _Requests:
    """Passes the console's requests to their workers; requests of an unknown kind are ignored."""

    def __init__(self, root: str, output: _Output) -> None:
        self._root = root
        self._output = output
        self._workers: Dict[str, RequestWorker] = {}

    def __call__(self, given: Dict[str, Any]) -> None:
        for kind in ("burst", "trace"):
            if kind in given:
                if kind not in self._workers:
                    self._workers[kind] = RequestWorker(kind, self._handler(kind), self._output)
                self._workers[kind].submit(given[kind])

    def _handler(self, kind: str) -> requests.Handler:
        """What carries requests of a kind out; imported late: most probes never get a request."""
        if kind == "burst":
            from collectors.loop.burst import BurstRunner

            return BurstRunner(HostFS(self._root)).run
        from collectors.loop.trace import trace

        return trace


def _raise_file_limit() -> None:
    """Every counter keeps a file open; the usual soft limit of 1024 is too low for 16 HCAs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run() -> Optional[int]:
    """Run, then exit without waiting for threads that hang in a read."""
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
