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

_UNNAMED = "unnamed-"


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
