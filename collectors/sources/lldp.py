"""Who is at the other end of each cable, as lldpd has heard it: `lldpcli show neighbors`.

Nothing here ticks. A neighbour has {dev, peer_node[, peer_port, peer_port_name, mac, peer_role]}:
the system's name, the port's ID (its description too, where the ID is a MAC address), and `host` as
the role of a system that says it is a station. lldpd is asked every 30 s by a thread that ends with
the answer: no read waits for it, and nothing is left running. Where lldpd does not run, there is
nothing. A tree at another root carries what lldpcli prints in `<root>/lldp.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

from collectors import ports
from collectors.hostfs import HostFS
from collectors.permission import who_may
from collectors.ports import natural
from collectors.source import Denied, Failed, Faults, NoData, Source, SourceError
from collectors.wire import Object

_FIXTURE = "lldp.json"
_SOCKETS = ("run/lldpd.socket", "var/run/lldpd.socket", "run/lldpd/lldpd.socket")
_PATH = "/usr/sbin:/sbin:/usr/local/sbin"
"""Where lldpcli lies that a login's PATH leaves out."""

_AGAIN_S = 30.0
_PATIENCE_S = 10.0
_FIRST_LOOK_S = 0.25
"""How long a discovery waits for lldpd, which answers in 10 ms; later answers are announced."""

_MOST_NEIGHBOURS = 4096

Info = Dict[str, Any]


class Lldp(Source):
    """The neighbours of this machine's ports."""

    name = "lldp"
    every = 10
    deadline_s = 1.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._look: Optional[_Look] = None
        self._known: Optional[List[Info]] = None
        self._error: Optional[SourceError] = None
        self._asked_s = 0.0
        self._changes = 0

    def discover(self) -> List[Object]:
        """The neighbours as last heard. Raises NoData without lldpd, Denied when it is not ours."""
        if not self.host.is_live:
            text = self.host.text(_FIXTURE)
            if text is None:
                raise NoData(f"no {_FIXTURE} in this tree")
            self._known = neighbours(text)
        elif self._known is None and self._error is None:
            if self._look is None:
                self._ask()
            if self._look is not None:
                self._look.join(_FIRST_LOOK_S)
            self._hear()
            if self._known is None and self._error is None:
                raise NoData("lldpd has not answered yet")
        if self._error is not None:
            raise self._error
        wanted = {port.netdev for port in ports.find_ports(self.host) if port.netdev}
        seen = [info for info in self._known or [] if info["dev"] in wanted]
        if not seen:
            raise NoData("no LLDP neighbour on any port")
        return [
            Object(f"lldp/{info['dev']}/{number}", "neighbour", None, info, ())
            for number, info in enumerate(seen, 1)
        ]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """Nothing: the facts are all in the objects."""
        return []

    def signature(self) -> object:
        """Changes when lldpd tells something else, comes or goes. Asks it again when it is time."""
        if not self.host.is_live:
            return None
        self._hear()
        if self._look is None and time.monotonic() - self._asked_s >= _AGAIN_S:
            self._ask()
        return self._changes, ports.signature(self.host)

    def _ask(self) -> None:
        self._asked_s = time.monotonic()
        self._look = _Look(self.host)
        self._look.start()

    def _hear(self) -> None:
        """Take the answer, if there is one."""
        look = self._look
        if look is None or look.is_alive():
            return
        self._look = None
        news = (look.found, str(look.error)) != (self._known, str(self._error))
        self._known, self._error = look.found, look.error
        self._changes += news


class _Look(threading.Thread):
    """One question to lldpd, and then its answer or why there is none."""

    def __init__(self, host: HostFS) -> None:
        super().__init__(name="lldp", daemon=True)
        self.found: Optional[List[Info]] = None
        self.error: Optional[SourceError] = None
        self._host = host

    def run(self) -> None:
        """Ask."""
        try:
            self.found = neighbours(_lldpcli(self._host))
        except SourceError as error:
            self.error = error
        except Exception as error:
            self.error = Failed(f"lldpcli: {error}")


def _lldpcli(host: HostFS) -> str:
    """What lldpcli prints. Raises SourceError."""
    socket = next((path for path in _SOCKETS if host.exists(path)), None)
    command = shutil.which("lldpcli", path=f"{os.environ.get('PATH', '')}:{_PATH}")
    if socket is None or command is None:
        raise NoData("lldpd does not run here")
    path = host.path(socket)
    if not os.access(path, os.R_OK | os.W_OK):
        raise Denied(who_may(path) or f"{path} may not be opened")
    try:
        done = subprocess.run(
            [command, "-u", path, "-f", "json0", "show", "neighbors"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"lldpcli: no answer in {_PATIENCE_S:g} s") from None
    except OSError as error:
        raise Failed(f"lldpcli: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"lldpcli: {said[-1] if said else f'exit status {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


def neighbours(text: str) -> List[Info]:
    """The neighbours in lldpcli's json0, which has a list wherever there may be several.

    Raises Failed when it is something else.
    """
    try:
        found = [
            _info(str(interface["name"]), interface)
            for part in json.loads(text)["lldp"]
            for interface in part.get("interface", [])
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Failed(f"lldpcli printed something else than its json0: {error!r}") from error
    named = [info for info in found if "peer_node" in info or "mac" in info]
    return sorted(named, key=lambda info: natural(info["dev"]))[:_MOST_NEIGHBOURS]


def _info(dev: str, interface: Dict[str, Any]) -> Info:
    chassis, port = interface["chassis"][0], interface["port"][0]
    info: Info = {"dev": dev}
    for name in _values(chassis, "name"):
        info["peer_node"] = name
    described = next(_values(port, "descr"), "")
    for item in port.get("id", []):
        value = str(item["value"])
        if item.get("type") == "mac":
            info["mac"] = value
            if described:
                info["peer_port"] = described
        else:
            info["peer_port"] = value
            if described and described != value:
                info["peer_port_name"] = described
    enabled = {item["type"] for item in chassis.get("capability", []) if item.get("enabled")}
    if enabled == {"Station"}:
        info["peer_role"] = "host"
    return info


def _values(item: Dict[str, Any], key: str) -> Iterator[str]:
    return (str(each["value"]) for each in item.get(key, []) if each.get("value"))
