"""A real snmpd for tests: its own files, a loopback port, no privileges."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.requirements import heeding_signals, need_command

COMMUNITY = "a community"
USER = "v3 fabmon SHA256 authpassword AES privpassword"

LLDP = """\
import sys
BASE = ".1.0.8802.1.1.2.1"
# LLDP-MIB for a port connected to a host, and for one connected to a switch.
ROWS = {
    "3.7.1.2.7": ("integer", "5"),
    "3.7.1.3.7": ("string", "@NAME@"),
    "3.7.1.4.7": ("string", "port seven"),
    "4.1.1.6.0.7.1": ("integer", "5"),
    "4.1.1.7.0.7.1": ("string", "Ethernet49"),
    "4.1.1.8.0.7.1": ("string", "to leaf1"),
    "4.1.1.9.0.7.1": ("string", "spine1"),
    "4.1.1.6.0.7.2": ("integer", "3"),
    "4.1.1.7.0.7.2": ("octet", "b8 ce f6 00 00 01"),
    "4.1.1.8.0.7.2": ("string", "ens1np0"),
    "4.1.1.9.0.7.2": ("string", "gpu001"),
}
def key(oid):
    return [int(part) for part in oid.split(".") if part]
ORDER = sorted(ROWS, key=key)
while True:
    command = sys.stdin.readline().strip()
    if not command:
        break
    if command == "PING":
        print("PONG", flush=True)
        continue
    requested = key(sys.stdin.readline().strip())
    base = key(BASE)
    found = [row for row in ORDER if (base + key(row) == requested if command == "get"
             else base + key(row) > requested)]
    if found:
        print(BASE + "." + found[0], *ROWS[found[0]], sep="\\n", flush=True)
    else:
        print("NONE", flush=True)
"""


class Snmpd:
    """An agent that can be killed and restarted. net-snmp refreshes counters every 3 s."""

    def __init__(self, directory: Path, lldp_port: str = "lo") -> None:
        need_command("snmpd", "snmpd")
        self.port = _free_port()
        self._directory = directory
        (directory / "var").mkdir()  # it keeps a snmpd.conf of its own there
        script = directory / "lldp.py"
        script.write_text(LLDP.replace("@NAME@", lldp_port))
        (directory / "snmpd.conf").write_text(
            "\n".join(
                [
                    f"agentAddress udp:127.0.0.1:{self.port}",
                    f'rocommunity "{COMMUNITY}" 127.0.0.1',
                    "createUser fabmon SHA-256 authpassword AES privpassword",
                    "rouser fabmon priv",
                    "rocommunity system 127.0.0.1 .1.3.6.1.2.1.1",
                    "sysName switch7",
                    f"pass_persist .1.0.8802.1.1.2.1 {sys.executable} {script}",
                    "",
                ]
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it replies."""
        arguments = ["snmpd", "-f", "-Lf", str(self._directory / "log"), "-C", "-I", "-smux"]
        arguments += ["-c", str(self._directory / "snmpd.conf")]
        environment = {
            **os.environ,
            "MIBS": "",
            "SNMP_PERSISTENT_DIR": str(self._directory / "var"),
        }
        self._process = subprocess.Popen(heeding_signals(arguments), env=environment)
        until = time.monotonic() + 240
        while not self._answers():
            assert time.monotonic() < until, (self._directory / "log").read_text()
            assert self._process.poll() is None, (self._directory / "log").read_text()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        """Whether something is bound to its port."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(0.2)
            try:
                probe.connect(("127.0.0.1", self.port))
                probe.send(_GET_UPTIME)
                return bool(probe.recv(1500))
            except OSError:
                time.sleep(0.02)
                return False


# A GET of sysUpTime.0 with the community `system`, by hand.
_GET_UPTIME = bytes.fromhex(
    "3026020101040673797374656da019020101020100020100300e300c06082b060102010103000500"
)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
