from __future__ import annotations

import errno
import json
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.readers.netlink import Netlink
from collectors.source import Failed, NoData
from collectors.sources.dcb import Pfc, ask_pfc, ieee_pfc
from tests.fixtures import hosts, parts
from tests.fixtures.in_namespace import can_have_one, namespace
from tests.fixtures.reading import ask, read, source
from tests.fixtures.tree import Tree
from tests.requirements import need, need_command, need_root

# Bytes as include/uapi/linux/dcbnl.h lays them out, of a little-endian machine.
HEAD = bytes.fromhex("00 15 0000")  # struct dcbmsg: AF_UNSPEC, DCB_CMD_IEEE_GET
IFNAME = bytes.fromhex("0900 0100 6574683000 000000")  # "eth0"
PFC = bytes.fromhex(
    "8c00 0200"  # 140 bytes of DCB_ATTR_IEEE_PFC
    "08 28 00 00 0000 0000"  # 8 priorities can, 3 and 5 have it on
    + "0000000000000000" * 3
    + "6400000000000000"  # 100 sent for priority 3
    + "0000000000000000" * 4
    + "0000000000000000" * 5
    + "0001000000000000"  # 256 received for priority 5
    + "0000000000000000" * 2
)
IEEE = bytes.fromhex("9000 0d80") + PFC  # NLA_F_NESTED | DCB_ATTR_IEEE
IEEE_WITHOUT_PFC = bytes.fromhex("0400 0d80")

Answers = dict[int, "bytes | int"]
"""Command -> the payload of the answer, or the errno."""


@contextmanager
def kernel(answers: Answers) -> Iterator[Netlink]:
    """Plays the kernel's side of the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def answer() -> None:
        while data := theirs.recv(65536):
            _, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data)
            assert (kind, flags) == (78, 1)
            family, command, _ = struct.unpack_from("=BBH", data, 16)
            assert family == 0
            assert data[20:28] == bytes.fromhex("0900 0100") + b"eth0"
            said = answers.get(command, errno.EOPNOTSUPP)
            if isinstance(said, int):
                kind, said = 2, struct.pack("=i", -said) + data[:16]
            theirs.send(struct.pack("=IHHII", 16 + len(said), kind, 0, sequence, 7) + said)

    thread = threading.Thread(target=answer)
    thread.start()
    netlink = Netlink(ours)
    try:
        yield netlink
    finally:
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()
        netlink.close()
        theirs.close()


def test_an_answer_in_the_dialect_of_ieee() -> None:
    with kernel({21: HEAD + IFNAME + IEEE}) as netlink:
        assert ask_pfc(netlink, "eth0") == Pfc(
            8, (3, 5), (0, 0, 0, 100, 0, 0, 0, 0), (0, 0, 0, 0, 0, 256, 0, 0)
        )


@pytest.mark.parametrize(("state", "priorities"), [(1, (3,)), (0, ())])
def test_an_answer_in_the_dialect_of_cee(state: int, priorities: tuple[int, ...]) -> None:
    levels = b"".join(struct.pack("=HHB3x", 5, 1 + prio, prio == 3) for prio in range(8))
    answers: Answers = {
        21: HEAD + IFNAME + IEEE_WITHOUT_PFC,
        14: HEAD + struct.pack("=HHB3x", 5, 3, state),
        7: HEAD + struct.pack("=HH", 4 + len(levels), 4) + levels,
    }
    with kernel(answers) as netlink:
        assert ask_pfc(netlink, "eth0") == Pfc(None, priorities)


def test_no_dcb_is_not_the_same_as_no_interface() -> None:
    with kernel({}) as netlink:
        assert ask_pfc(netlink, "eth0") is None
    with kernel({21: errno.ENODEV}) as netlink, pytest.raises(OSError, match="No such device"):
        ask_pfc(netlink, "eth0")


@pytest.mark.parametrize("cut", range(0, len(IEEE), 7))
def test_an_answer_that_is_cut_says_nothing(cut: int) -> None:
    assert ieee_pfc(HEAD + IFNAME + IEEE[:cut]) is None


def test_on_off_and_unsupported_are_different(tmp_path: Path) -> None:
    hosts.roce_host(tmp_path / "roce", hcas=2)
    roce = ask("dcb", tmp_path / "roce")
    assert roce.info("ens1np0") == {
        "pfc": "on",
        "pfc_priorities": [3],
        "pfc_cap": 8,
        "roce_ecn_np": [3],
        "roce_ecn_rp": [3],
        "roce_cnp_dscp": 48,
    }
    assert roce.info("ens2np0")["pfc"] == "off"
    assert roce.info("ens2np0")["roce_ecn_rp"] == []
    assert [item.port for item in roce.objects] == ["mlx5_0", "mlx5_1"]
    hosts.container_host(tmp_path / "container")
    assert ask("dcb", tmp_path / "container").info("eth0") == {"pfc": "unsupported"}


def qede_host(root: Path) -> Tree:
    """A NIC whose PFC frames only DCB counts."""
    tree = Tree(root)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", "qede"))
    return tree


def test_frames_are_reported_where_no_other_source_counts_them(tmp_path: Path) -> None:
    tree = qede_host(tmp_path)
    sent, received = [0, 0, 0, 40, 0, 0, 0, 0], [0] * 8
    tree.dcb({"eth0": {"pfc_cap": 8, "pfc_en": 8, "requests": [0] * 8, "indications": [0] * 8}})
    dcb = source("dcb", tmp_path)
    # A driver that counts none leaves them at 0.
    assert [item.metrics for item in dcb.discover()] == [()]
    before = dcb.signature()
    assert dcb.signature() == before
    tree.dcb({"eth0": {"pfc_cap": 8, "pfc_en": 8, "requests": sent, "indications": received}})
    assert dcb.signature() != before
    objects = dcb.discover()
    answer = read(dcb, objects)
    assert answer.of("eth0")["pfc_tx_frames_prio3"] == 40
    assert answer.of("eth0")["pfc_rx_frames_prio3"] == 0
    tree.dcb({})
    assert set(read(dcb, objects).faults.values()) == {"absent"}


def test_setting_pfc_or_ecn_differently_is_seen(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=2)
    dcb = source("dcb", tmp_path)
    first = dcb.signature()
    (tmp_path / "sys/class/net/ens1np0/ecn/roce_np/enable/5").write_text("1\n")
    second = dcb.signature()
    tree.dcb({"ens1np0": {"pfc_cap": 8, "pfc_en": 0}})
    third = dcb.signature()
    dcb.close()
    assert len({str(first), str(second), str(third)}) == 3


def test_the_type_of_service_of_the_connection_manager(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    tree.files("sys/kernel/config/rdma_cm/mlx5_0/ports/1", {"default_roce_tos": 106})
    assert ask("dcb", tmp_path).info("ens1np0")["roce_tos"] == 106


def test_a_tree_that_says_nothing_has_no_data(tmp_path: Path) -> None:
    tree = qede_host(tmp_path)
    with pytest.raises(NoData):
        source("dcb", tmp_path).discover()
    for text in ("{", '{"eth0": {}}', '{"eth0": 3}'):
        tree.write("dcb.json", text)
        with pytest.raises(Failed, match=r"dcb\.json"):
            source("dcb", tmp_path).discover()


@pytest.fixture
def netns() -> Callable[[str], object]:
    need_root()
    need_command("ip", "iproute2")
    need_command("unshare", "util-linux")
    need("network namespaces", can_have_one(), "run in a privileged container")
    return namespace


def test_a_real_kernel_says_that_a_veth_has_no_dcb(netns: Callable[[str], object]) -> None:
    seen = json.loads(json.dumps(netns("dcb")))
    assert seen["east0"] == {"pfc": "unsupported"}
    assert seen["gone"] == errno.ENODEV
    assert seen["signatures"] == 1
    if shutil.which("dcb"):
        # The command of iproute2 hears the same.
        assert "Operation not supported" in seen["command"]
