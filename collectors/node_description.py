"""Node descriptions of InfiniBand: the host and the device that an HCA names in its own.

An HCA whose host has set none answers with that of its firmware, as `MT4129 ConnectX7   Mellanox
Technologies`; one whose host has no name of its own yet with `localhost HCA-1`. Any number of hosts
have these: an HCA without a name is known by its GUID.
"""

import re
from typing import Tuple

_MODEL = re.compile(r"MT\d{4,5}(?: |$)|(?:Mellanox|NVIDIA|QLogic)(?: |$)|.*\bTechnologies$")
_NOBODY = frozenset(("", "localhost", "(none)", "unknown"))
"""Names that a host has before it has one of its own, without their domain."""

_MANAGED = re.compile(r"MF\d+;([^:;]+):[^/]*(?:/(.*))?")
_UNNAMED = "unnamed-"

NO_NODE = "Aggregation Node"
"""The end of the description of the SHARP unit inside a switch, which appears as an HCA."""


def is_model(description: str) -> bool:
    """Whether a description, of an HCA or a switch, is that of its firmware."""
    return _MODEL.match(description.strip()) is not None


def hca_owner(description: str) -> Tuple[str, str]:
    """The host and the device in the description of an HCA: `gpu7 mlx5_3` -> `gpu7` and `mlx5_3`.

    Each is empty where the description has none; the host of an HCA that has no name too.
    """
    text = description.strip()
    if is_model(text):
        return "", ""
    host, _, device = text.partition(" ")
    if host.partition(".")[0].lower() in _NOBODY:
        host = ""
    return host, device.strip()


def switch_name(description: str) -> str:
    """`MF0;leaf1:MQM9700/U1` -> `leaf1`; a module of a chassis keeps its slot: `core1-L03-U1`."""
    match = _MANAGED.match(description)
    if match is None:
        return _one_word(description)
    name, place = match.groups()
    is_module = place is not None and "/" in place
    return _one_word(f"{name}/{place}" if is_module else name)


def hca_name(description: str, number: int) -> Tuple[str, str]:
    """`gpu7 mlx5_3` -> `gpu7` and `mlx5_3`; the second port of a device is `mlx5_3/2`. The node is
    empty for an HCA without a name."""
    node, device = map(_one_word, hca_owner(description))
    if not device:
        return node, f"p{number}"
    return node, device if number == 1 else f"{device}/{number}"


def _one_word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.:-]+", "-", text.strip()).strip("-")


def unnamed_node(guid: str) -> str:
    """The name of the node of HCAs that have none, by their GUID in hexadecimal digits."""
    digits = guid.lower()
    digits = digits[2:] if digits.startswith("0x") else digits
    return _UNNAMED + digits.rjust(16, "0")


def is_unnamed(node: str) -> bool:
    """Whether a node is one of HCAs without a name."""
    return node.startswith(_UNNAMED)


def unnamed_note(number: int) -> str:
    """What there is to say of so many HCAs without a name."""
    hcas = "1 HCA has" if number == 1 else f"{number} HCAs have"
    return f"{hcas} no name, as the node description is not set (rdma-ndd sets it): shown by GUID"
