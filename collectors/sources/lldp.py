"""The device at the other end of each cable, from lldpd: `lldpcli show neighbors`.

There are no counters here. A neighbour has {dev, peer_node[, peer_port, peer_port_name, mac,
peer_role]}: the system's name, the port's ID (its description too, where the ID is a MAC address),
and `host` as the role of a system that reports itself as a station. lldpcli runs every 30 s in a
thread that ends with it: no read waits for it, and nothing is left running. Where lldpd does not
run, there are no objects. A tree at another root carries the output of lldpcli in
`<root>/lldp.json`.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any, Dict, Iterator, List

from collectors.hostfs import readable_by
from collectors.readers import ports
from collectors.readers.background_source import BackgroundSource, command_output
from collectors.readers.ports import natural
from collectors.source import Denied, Failed, NoData
from collectors.wire import Object

_SOCKETS = ("run/lldpd.socket", "var/run/lldpd.socket", "run/lldpd/lldpd.socket")
_PATH = "/usr/sbin:/sbin:/usr/local/sbin"
"""Directories of lldpcli that a login's PATH may lack."""

_TIMEOUT_S = 10.0
_MAX_NEIGHBOURS = 4096

Info = Dict[str, Any]


class Lldp(BackgroundSource[List[Info]]):
    """The neighbours of this machine's ports."""

    name = "lldp"
    capture = "lldp.json"

    def output(self) -> str:
        """The output of lldpcli. Raises NoData without lldpd, Denied without access."""
        socket = next((path for path in _SOCKETS if self.host.exists(path)), None)
        command = shutil.which("lldpcli", path=f"{os.environ.get('PATH', '')}:{_PATH}")
        if socket is None or command is None:
            raise NoData("lldpd does not run here")
        path = self.host.path(socket)
        if not os.access(path, os.R_OK | os.W_OK):
            raise Denied(readable_by(path) or f"{path} may not be opened")
        argv = [command, "-u", path, "-f", "json0", "show", "neighbors"]
        return command_output(argv, _TIMEOUT_S)

    def parse(self, text: str) -> List[Info]:
        """The neighbours in lldpcli's output."""
        return neighbours(text)

    def objects(self, facts: List[Info]) -> List[Object]:
        """One object per neighbour of a port."""
        wanted = {port.netdev for port in ports.find_ports(self.host) if port.netdev}
        seen = [info for info in facts if info["dev"] in wanted]
        if not seen:
            raise NoData("no LLDP neighbour on any port")
        return [
            Object(f"lldp/{info['dev']}/{number}", "neighbour", None, info, ())
            for number, info in enumerate(seen, 1)
        ]


def neighbours(text: str) -> List[Info]:
    """The neighbours in lldpcli's json0, which has a list wherever several items may occur.

    Raises Failed for other output.
    """
    try:
        found = [
            _info(str(interface["name"]), interface)
            for part in json.loads(text)["lldp"]
            for interface in part.get("interface", [])
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Failed(f"lldpcli did not print its json0: {error!r}") from error
    named = [info for info in found if "peer_node" in info or "mac" in info]
    return sorted(named, key=lambda info: natural(info["dev"]))[:_MAX_NEIGHBOURS]


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
