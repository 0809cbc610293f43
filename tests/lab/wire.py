"""A cable whose line rate the kernel knows.

A veth says 10 Gb/s whatever happens. Here each end is a macvlan on a tap, and a tap's line rate can
be set as `ethtool -s` sets that of a NIC: /sys then says what it would say of a link that trained
down. `tests.lab.copper` carries the frames from tap to tap.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lab import netns
from tests.lab.layout import Cable
from tests.lab.netns import LabError

_PROJECT = Path(__file__).parents[2]


def start(cable: Cable, prefix: str, mbps: float) -> subprocess.Popen[bytes]:
    """Lay `cable` between namespaces that are there; it lasts as long as the process."""
    near, far = cable.lower, cable.upper
    argv = [sys.executable, "-m", "tests.lab.copper", _tap(near.port), prefix + far.node]
    process = subprocess.Popen(
        netns.argv_in(prefix + near.node, [*argv, _tap(far.port)]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=_PROJECT,
        start_new_session=True,  # A ctrl-c in the terminal is for the lab's owner.
    )
    assert process.stdout is not None
    with process.stdout as said:
        if said.readline() != b"ready\n":
            raise LabError(f"no wire from {near.node} to {far.node}: {process.wait()}")
    for end in (near, far):
        ns, tap = prefix + end.node, _tap(end.port)
        lines = [f"link set dev {tap} up"]
        lines.append(f"link add link {tap} name {end.port} type macvlan mode passthru")
        netns.batch("ip", lines, ns)
        set_speed(ns, end.port, mbps)
    return process


def set_speed(ns: str, port: str, mbps: float) -> None:
    """Have the kernel say that an end of a wire runs at `mbps`."""
    argv = ["ethtool", "-s", _tap(port), "speed", str(round(mbps)), "duplex", "full"]
    done = subprocess.run(netns.argv_in(ns, [*argv, "autoneg", "off"]), capture_output=True)
    if done.returncode:
        raise LabError(f"ethtool in {ns}: {done.stderr.decode().strip()}")


def _tap(port: str) -> str:
    return f"{port}.tap"
