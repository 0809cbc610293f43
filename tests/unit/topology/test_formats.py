"""Topology files of every format: what is taken from them, and what is said of bad ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.topology.plan import Topology, TopologyError
from fabmon.fabric.topology.plan_files import parse, read
from fabmon.session.config import load as load_config
from fabmon.session.config import load_topology
from fabmon.session.errors import UsageError
from tests.goldens import check_golden
from tests.requirements import need_command

GOLDENS = Path(__file__).parent / "goldens"
BAD = Path(__file__).parent / "bad"


def ends(topology: Topology) -> list[str]:
    return [
        f"{c.one.node}/{c.one.port} {c.other.node}/{c.other.port} {c.by}" for c in topology.cables
    ]


def test_toml() -> None:
    topology = parse(
        """
[topology]
cables = [
  "leaf1/swp49 spine1/swp1",
  "gpu[01-02]/mlx5_[0-1] -- leaf1/swp[1-4]",
]
rails = ["mlx5_0", "mlx5_1"]
[topology.tiers]
leaf = ["leaf[1-2]", "edge1"]
[topology.planes]
red = "leaf1,spine1"
""",
        "pod7.toml",
    )
    assert ends(topology) == [
        "leaf1/swp49 spine1/swp1 pod7.toml:4",
        "gpu01/mlx5_0 leaf1/swp1 pod7.toml:5",
        "gpu01/mlx5_1 leaf1/swp2 pod7.toml:5",
        "gpu02/mlx5_0 leaf1/swp3 pod7.toml:5",
        "gpu02/mlx5_1 leaf1/swp4 pod7.toml:5",
    ]
    assert topology.tiers == {"leaf1": 1, "leaf2": 1, "edge1": 1}
    assert topology.planes == {"leaf1": "red", "spine1": "red"}
    assert topology.rails == ("mlx5_0", "mlx5_1")


@pytest.mark.parametrize("heading", ["", "device a,port a,device b,port b\n", "# by hand\n\n"])
def test_csv(heading: str) -> None:
    topology = parse(f"{heading}leaf1, Ethernet1/1, spine1, Ethernet1/1\nleaf1,,spine2,\n", "x")
    line = heading.count("\n")
    assert ends(topology) == [
        f"leaf1/Ethernet1/1 spine1/Ethernet1/1 x:{line + 1}",
        f"leaf1/ spine2/ x:{line + 2}",
    ]


@pytest.mark.parametrize(("delimiter", "name"), [(";", "x"), (";", "x.csv"), ("\t", "x.csv")])
def test_csv_as_spreadsheets_write_it_elsewhere(delimiter: str, name: str) -> None:
    """Where the comma is the decimal separator; ranges have commas with any."""
    rows = ["node,port,node,port", "leaf1,swp1,gpu1,", "gpu[2/3],eth0,leaf1,swp[2/3]"]
    text = "# cables\n" + "\n".join(row.replace(",", delimiter) for row in rows)
    assert ends(parse(text.replace("/", ","), name)) == [
        f"leaf1/swp1 gpu1/ {name}:3",
        f"gpu2/eth0 leaf1/swp2 {name}:4",
        f"gpu3/eth0 leaf1/swp3 {name}:4",
    ]


@pytest.mark.parametrize("first", ["sep=;", "sep=;;;;", "sep=,", "sep=\t"])
def test_csv_whose_first_line_says_what_separates_its_columns(first: str) -> None:
    rows = ["leaf1,swp1,gpu1,", "leaf1,swp2,gpu2,eth0"]
    text = "\r\n".join([first, *(row.replace(",", first[4]) for row in rows)])
    assert ends(parse(text, "x.csv")) == [
        "leaf1/swp1 gpu1/ x.csv:2",
        "leaf1/swp2 gpu2/eth0 x.csv:3",
    ]


def test_slurm() -> None:
    topology = parse(
        "# a tree\nSwitchName=leaf1 \\\n  Nodes=gpu[1-2]\n"
        "SwitchName=leaf2 Nodes=gpu[3-4] LinkSpeed=10\n"
        "SwitchName=spine1 Switches=leaf[1-2]\nSwitchName=core Switches=spine1\n",
        "topology.conf",
    )
    assert topology.tiers == {"leaf1": 1, "leaf2": 1, "spine1": 2, "core": 3}
    assert topology.groups == {"gpu1": "leaf1", "gpu2": "leaf1", "gpu3": "leaf2", "gpu4": "leaf2"}
    assert topology.cables == ()


def test_slurm_with_blocks() -> None:
    topology = parse("BlockName=b1 Nodes=gpu[1-2]\nBlockSizes=2,4\n", "topology.conf")
    assert topology.groups == {"gpu1": "b1", "gpu2": "b1"}


@pytest.mark.parametrize("empty", ["BlockName=b2", "BlockName=b2 Nodes=", "SwitchName=b2 Nodes="])
@pytest.mark.parametrize("more", ["", " LinkSpeed=10"])
def test_slurm_with_an_empty_block(empty: str, more: str) -> None:
    """As of nodes that were taken out: the others are used."""
    text = f"BlockName=b1 Nodes=gpu[1-2]\n{empty}{more}\nBlockName=b3 Nodes=gpu[3-4]\n"
    topology = parse(text, "topology.conf")
    assert topology.groups == {"gpu1": "b1", "gpu2": "b1", "gpu3": "b3", "gpu4": "b3"}


def test_scontrol_prints_an_empty_block() -> None:
    topology = parse(
        "BlockName=b1 BlockIndex=0 Nodes=gpu[1-2] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes= BlockSize=2\n",
        "topology.txt",
    )
    assert topology.groups == {"gpu1": "b1", "gpu2": "b1"}


def test_slurm_where_every_block_is_empty() -> None:
    with pytest.raises(TopologyError, match="no nodes below a switch or block"):
        parse("BlockName=b1\nBlockName=b2 Nodes=\n", "topology.conf")


def test_slurm_continues_lists_with_a_backslash() -> None:
    topology = parse(
        "SwitchName=leaf1 Nodes=gpu[1-2],\\\ngpu[3,\\\n  5]\nSwitchName=leaf2 \\\n Nodes=gpu7\n",
        "topology.conf",
    )
    assert set(topology.groups) == {"gpu1", "gpu2", "gpu3", "gpu5", "gpu7"}


def test_what_scontrol_prints_of_a_tree() -> None:
    topology = parse(
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[001-002]\n"
        "SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=gpu[001-004] Switches=leaf[1-2]\n"
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu[003-004]\n",
        "topology.txt",
    )
    assert topology.tiers == {"leaf1": 1, "leaf2": 1, "spine1": 2}
    assert topology.groups["gpu003"] == "leaf2"


def test_what_scontrol_prints_of_blocks() -> None:
    topology = parse(
        "BlockName=b1 BlockIndex=0 Nodes=gpu[1-2] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes=gpu[3-4] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=gpu[1-4] BlockSize=4\n",
        "topology.txt",
    )
    assert topology.groups == {"gpu1": "b1", "gpu2": "b1", "gpu3": "b2", "gpu4": "b2"}


SLURM_YAML = """---
- topology: blocks
  cluster_default: false
  block:
    block_sizes:
      - 2
      - 4
    blocks:
      - block: b1
        nodes: gpu[1-4]
      - block: b2
        nodes:
      - block: b3
- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: spine1
        children: leaf[1-2]   # both
      - switch: leaf1
        nodes: "gpu[1-2]"
      - switch: leaf2
        nodes: gpu[3-4]
- topology: login
  flat: true
"""


def test_slurm_yaml_has_the_default_topology_first() -> None:
    topology = parse(SLURM_YAML, "topology.yaml")
    assert topology.tiers == {"leaf1": 1, "leaf2": 1, "spine1": 2}
    assert topology.groups == {"gpu1": "leaf1", "gpu2": "leaf1", "gpu3": "leaf2", "gpu4": "leaf2"}


def test_the_topology_of_a_real_slurm() -> None:
    folder = CAPTURES.parent / "captures" / "slurm"
    if not folder.is_dir():
        pytest.skip("needs the captures of Slurm beside the repository")
    printed, written = (
        read(folder / name) for name in ("scontrol-show-topology-22.05.8.txt", "topology.conf")
    )
    assert printed == written
    assert printed.tiers == {"leaf1": 1, "leaf2": 1, "spine1": 2}


SAME = """# Topology file: generated on Sat Nov 21 09:00:00 2026
Switch	36 "S-00000000000000a1"		# "Quantum Mellanox Technologies" enhanced port 0 lid 1 lmc 0
[1]	"S-00000000000000b1"[1]		# "Quantum Mellanox Technologies" lid 2 4xHDR
[2]	"H-00000000000000c1"[1](c1) 		# "storage mlx5_0" lid 3 4xHDR
[3]	"H-00000000000000c2"[1](c2) 		# "storage mlx5_0" lid 4 4xHDR

Switch	36 "S-00000000000000b1"		# "Quantum Mellanox Technologies" enhanced port 0 lid 2 lmc 0
[1]	"S-00000000000000a1"[1]		# "Quantum Mellanox Technologies" lid 1 4xHDR
"""


def test_switches_and_hcas_with_the_same_description_are_distinguished_by_guid() -> None:
    topology = parse(SAME, "net.txt")
    one, other = (f"Quantum-Mellanox-Technologies-00000000000000{end}" for end in ("a1", "b1"))
    assert topology.switches == {one, other}
    assert ends(topology) == [
        f"{one}/p1 {other}/p1 net.txt:3",
        f"{one}/p2 storage/mlx5_0 net.txt:4",
        f"{one}/p3 storage/mlx5_0-00000000000000c2 net.txt:5",
    ]


UNNAMED = """vendid=0x2c9
sysimgguid=0xa0
switchguid=0xa1(a1)
Switch	64 "S-00000000000000a1"		# "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 1 lmc 0
[1]	"H-00000000000000c1"[1](c1) 		# "MT4129 ConnectX7   Mellanox Technologies" lid 3 4xNDR
[2]	"H-00000000000000c2"[1](c2) 		# "MT4129 ConnectX7   Mellanox Technologies" lid 4 4xNDR
[3]	"H-00000000000000d1"[1](d1) 		# "localhost HCA-1" lid 5 4xNDR
[4]	"H-00000000000000d2"[1](d2) 		# "localhost HCA-1" lid 6 4xNDR
[5]	"H-00000000000000e1"[1](e1) 		# "gpu7 mlx5_0" lid 7 4xNDR
"""

ONE_CARD = """
vendid=0x2c9
sysimgguid=0x{0}
caguid=0x{1}
Ca	1 "H-00000000000000{1}"		# "MT4129 ConnectX7   Mellanox Technologies"
[1]({1}) 	"S-00000000000000a1"[{2}]		# lid 9 lmc 0 "MF0;leaf1:MQM9700/U1" lid 1 4xNDR
"""


def hosts(topology: Topology) -> list[str]:
    return [
        f"{end.node}/{end.port}"
        for cable in topology.cables
        for end in (cable.one, cable.other)
        if end.node in topology.hosts
    ]


def test_hcas_without_a_name_are_nodes_by_their_guid() -> None:
    assert hosts(parse(UNNAMED, "net.txt")) == [
        "unnamed-00000000000000c1/p1",
        "unnamed-00000000000000c2/p1",
        "unnamed-00000000000000d1/HCA-1",
        "unnamed-00000000000000d2/HCA-1",
        "gpu7/mlx5_0",
    ]


@pytest.mark.parametrize("name", ["mt01", "nvidia-dgx01", "mellanox-lab", "qlogic.node"])
def test_names_that_begin_as_models_do_are_names(name: str) -> None:
    assert hosts(parse(UNNAMED.replace("gpu7", name), "net.txt"))[-1] == f"{name}/mlx5_0"


def test_hcas_without_a_name_on_one_card_are_one_node() -> None:
    cards = "".join(ONE_CARD.format("c0", guid, port) for guid, port in (("c1", 1), ("c2", 2)))
    assert hosts(parse(UNNAMED + cards, "net.txt"))[:2] == [
        "unnamed-00000000000000c0/p1",
        "unnamed-00000000000000c0/p1-00000000000000c2",
    ]


def test_the_unnamed_hcas_of_a_real_shape() -> None:
    net = CAPTURES.parent / "cases" / "unnamed-hcas-one-host" / "net.txt"
    if not net.is_file():
        pytest.skip("needs ../shared/cases beside the repository")
    topology = read(net)
    assert len(topology.hosts) == 6
    assert "node01" in topology.hosts
    assert not {"MT4129", "localhost"} & topology.hosts


def test_an_odd_line_of_an_open_port_costs_nothing() -> None:
    text = (
        "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0"
        " ( 'o0001 HCA-1' - 'ib1' )\n"
        "SW  2052 37 0x506b4b03005c2740 4x ??? 'ib1\n"
        "SW  2052 38 0x506b4b03005c2740 ??x ???\n"
    )
    assert len(parse(text, "net.txt").cables) == 1
    with pytest.raises(TopologyError, match="not a line of ibnetdiscover"):
        parse(text + "SW  2052 39 0x506b4b03005c2740 4x EDR - SW 17 10 0x7c ( 'x'\n", "net.txt")


def test_a_network_file_of_ibsim_is_named_as_one() -> None:
    with pytest.raises(TopologyError, match=r"net: a network file of ibsim: run ibsim with it"):
        parse(IBSIM, "net")


def test_ibnetdiscover() -> None:
    text = """#
# Topology file: generated on Sat Nov 21 09:00:00 2026
vendid=0x2c9
switchguid=0xb8599f0300fc6de4(b8599f0300fc6de4)
Switch	41 "S-b8599f0300fc6de4"		# "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 13 lmc 0
[3]	"S-0002c903007b78b0"[1]		# "MF0;spine1:MQM9700/U1" lid 19 4xNDR
[24]	"H-ec0d9a03007d7d0b"[1](ec0d9a03007d7d0b) 		# "gpu7 mlx5_3" lid 28 4xNDR
[41]	"H-b8599f0300fc6dec"[1](b8599f0300fc6dec) 		# "Mellanox Technologies Aggregation Node"

Switch	36 "S-0002c903007b78b0"		# "MF0;spine1:MQM9700/U1" enhanced port 0 lid 19 lmc 0
[1]	"S-b8599f0300fc6de4"[3]		# "MF0;leaf1:MQM9700/U1" lid 13 4xNDR

Ca	1 "H-ec0d9a03007d7d0b"		# "gpu7 mlx5_3"
[1](ec0d9a03007d7d0b) 	"S-b8599f0300fc6de4"[24]		# lid 28 lmc 0 "MF0;leaf1:MQM9700/U1"
"""
    topology = parse(text, "net.txt")
    assert ends(topology) == [
        "leaf1/p3 spine1/p1 net.txt:6",
        "leaf1/p24 gpu7/mlx5_3 net.txt:7",
    ]
    assert topology.switches == {"leaf1", "spine1"}
    assert topology.hosts == {"gpu7"}


def test_ibnetdiscover_of_ports() -> None:
    text = (
        "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0"
        " ( 'o0001 HCA-1' - 'ib1' )\n"
        "SW  1719 10 0x7cfe9003009ce5b0 4x EDR - CA   134  1 0x7cfe9003003b4bde"
        " ( 'ib1' - 'o0001 HCA-1' )\n"
        "SW  2052 37 0x506b4b03005c2740 4x ???                                    'ib1'\n"
    )
    assert ends(parse(text, "net.txt")) == ["o0001/HCA-1 ib1/p10 net.txt:1"]


def test_the_configuration_names_further_files_beside_it(tmp_path: Path) -> None:
    config = tmp_path / "fabmon.toml"
    config.write_text('[topology]\nfiles = ["pod7.csv"]\ncables = ["leaf1/swp1 gpu1/eth0"]\n')
    (tmp_path / "pod7.csv").write_text("leaf1,swp2,gpu2,eth0\n")
    other = tmp_path / "more.csv"
    other.write_text("leaf1,swp3,gpu3,eth0\n")
    topology = load_topology(load_config(config), config, [other])
    assert [cable.by for cable in topology.cables] == [
        f"{other}:1",
        f"{config}:3",
        f"{tmp_path}/pod7.csv:1",
    ]
    config.write_text('[topology]\nfiles = ["gone.csv"]\n')
    with pytest.raises(UsageError, match=r"gone\.csv: no such file"):
        load_topology(load_config(config), config, [])
    config.write_text("[topology]\ncabels = []\n")
    with pytest.raises(UsageError, match="did you mean `cables`"):
        load_config(config)


BAD_FILES = {
    "pod7.csv": "node,port,node,port\nleaf1,swp1,spine1,swp1\nleaf1,swp1,spine2,swp1\n"
    "leaf1,swp2\ngpu[1-4],mlx5_0,leaf1,swp[1-3]\nleaf1,swp[3,spine1,swp9\n-x,e,y,e\n",
    "empty.csv": "# nothing\n",
    "pod7.toml": '[topology]\ncables = [\n  "leaf1/swp49 spine1/swp1",\n  "leaf1/swp50",\n'
    '  "leaf1/swp49 spine2/swp1",\n]\n[topology.tiers]\nleaf = "leaf1"\nspime = "spine1"\n'
    'spine = "leaf1"\n',
    "broken.toml": "cables = [\n",
    "key.toml": 'cable = ["a/b c/d"]\n',
    "topology.conf": "SwitchName=s0 Nodes=gpu[1-4\nSwitchNam=s1 Nodes=gpu5\n"
    "SwitchName=a Switches=a\nSwitchName=b\nSwitchName=a Nodes=gpu9\n",
    "net.txt": 'switchguid=0x1\nSwitch 4 "S-01" # "x"\n[1] "S-02"[1] # "y" lid 1\nwhat is this\n',
    "nolinks.txt": "# Topology file: generated\n",
    "topo.xml": "<system>\n<cpu>\n</system>\n",
    "other.xml": "<html/>\n",
    "nonic.xml": "<system/>\n",
    "notes.txt": "what a nice day\n",
}


def test_everything_that_is_wrong_is_said_with_its_line() -> None:
    messages = []
    for name, text in BAD_FILES.items():
        with pytest.raises(TopologyError) as caught:
            parse(text, name)
        messages.append(str(caught.value))
    check_golden(GOLDENS / "bad_files.txt", "\n\n".join(messages) + "\n")


GARBAGE = [
    ("a.csv", f'leaf1,swp1,gpu1,"{"x" * 140_000}"\n', "a.csv:1: not CSV: field larger than"),
    (
        "n.xml",
        '<system><pci class="0x020000"><nic><net dev="x" name="mlx5_0"/></nic></pci></system>',
        'n.xml: <net name="mlx5_0"> has dev="x": write its number',
    ),
    (
        "n.xml",
        "<system>" + "<pci>" * 3000 + "</pci>" * 3000 + "</system>",
        "n.xml: elements more than 64 deep: dump it again",
    ),
    ("t.toml", "x = " + "[" * 5000 + "]" * 5000, "t.toml: not TOML: brackets are nested"),
    ("t.toml", "x = " + "9" * 5000, "t.toml: not TOML: a number is too long: "),
    (
        "ib.txt",
        f"CA   134  1 0x7cfe 4x EDR - SW  1719 {'9' * 5000} 0x7cff ( 'o1 HCA-1' - 'ib1' )\n",
        "ib.txt:1: 'CA   134  1 0x7cfe 4x EDR",
    ),
    (
        "s.conf",
        "SwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 rubbish here Nodes=n2\n",
        "s.conf:2: 'rubbish here' is not a key of topology.conf: ",
    ),
    (
        "s.conf",
        "SwitchName=leaf1 Nodes=gpu[1-4] \\\n",
        "s.conf:1: the last line ends in a backslash: remove it",
    ),
    (
        "d.toml",
        'cables = [\n"leaf1/swp1 gpu1/eth0",\n"gpu2/eth0 LEAF1/SWP1",\n]',
        "d.toml:3: LEAF1/SWP1 is already cabled on line 2: a port has one cable",
    ),
]


@pytest.mark.parametrize(("name", "text", "said"), GARBAGE)
def test_garbage_is_refused_with_its_place_and_what_to_do(name: str, text: str, said: str) -> None:
    with pytest.raises(TopologyError, match=f"^{re.escape(said)}"):
        parse(text, name)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a,b,c,d\n\xe9\n"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(TopologyError, match=r"x\.csv:\d: a byte that is not UTF-8"):
        read(tmp_path / "x.csv")


@given(
    st.text(max_size=200),
    st.sampled_from(["x.csv", "x.toml", "x.xml", "topology.conf", "topology.yaml", "net.txt"]),
)
def test_no_text_does_worse_than_be_refused(text: str, name: str) -> None:
    said = ""
    try:
        parse(text, name)
    except TopologyError as error:
        said = str(error)
    assert all(line.isprintable() for line in said.split("\n"))


HUGE = ["gpu[1-999999]/eth[0-99] leaf1/swp1", "a/p[1-999999] b/p[1-999999]", "a/" + "[1-99]" * 9]


@pytest.mark.parametrize("cable", HUGE)
def test_a_range_that_folds_out_to_too_much_is_refused_at_once(cable: str) -> None:
    with pytest.raises(TopologyError):
        parse(f'cables = ["{cable}"]', "x.toml")


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "a{0}x[1-9],p,b{0}x[1-9],p\n", "a.csv:4: more than 30 cables"),
        (
            "a.toml",
            "cables = [\n{1}]\n",
            "a.toml: more than 30 cables",
        ),
        ("t", "SwitchName=l{0} Nodes=a{0}x[1-9]\n", "t:4: more than 30 nodes and switches"),
        ("a.toml", "[pods]\n{2}", "'a3x[1-9]': more than 30 nodes"),
    ],
)
def test_many_lines_of_ranges_that_are_allowed_are_refused_together(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    """Each line may have 65,536 names: a file of 20 kB took all memory."""
    monkeypatch.setattr("fabmon.fabric.topology.cable_patterns.MOST_OF_FILE", 30)
    monkeypatch.setattr("fabmon.fabric.topology.toml_plan._MOST", 30)
    monkeypatch.setattr("fabmon.fabric.topology.slurm._MOST_NAMES", 30)
    cables = "".join(f'"a{at}x[1-9]/p b{at}x[1-9]/p",\n' for at in range(9))
    pods = "".join(f'p{at} = "a{at}x[1-9]"\n' for at in range(9))
    is_whole = "{0}" not in text
    lines = [text] if is_whole else [text] * 9
    whole = "".join(line.format(at, cables, pods) for at, line in enumerate(lines))
    with pytest.raises(TopologyError, match=re.escape(said)):
        parse(whole, name)


def test_a_machine_of_more_devices_than_any_is_refused_before_pairs_are_made() -> None:
    devices = "".join(
        f'<pci busid="0:{at}" class="0x020000"/><pci busid="1:{at}" class="0x030200"/>'
        for at in range(1025)
    )
    with pytest.raises(TopologyError, match="more than 1,024 GPUs or NICs"):
        parse(f"<system>{devices}</system>", "t.xml")


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=leaf\x1b[2J1 Nodes=gpu[1-2]\n",
        "- topology: main\n  tree:\n    switches:\n"
        "      - switch: leaf\x1b[2J1\n        nodes: gpu[1-2]\n",
        '<system><pci busid="0" class="0x0200"><nic><net name="a&#155;2J"/></nic></pci></system>',
    ],
)
def test_no_name_of_a_file_commands_a_terminal(text: str) -> None:
    topology = parse(text, "t")
    names = [*topology.tiers, *topology.groups.values(), *topology.rails, *topology.nearness.names]
    assert names
    assert all(name.isprintable() for name in names)


def test_every_example_in_the_documentation_can_be_read() -> None:
    text = (ROOT / "docs" / "topology.md").read_text()
    examples = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    # The table of routing modes belongs to fabmon.toml.
    examples = [each for each in examples if not each[1].startswith("[routing]")]
    assert len(examples) == 5
    for _, example in examples:
        # Files are named in fabmon.toml only.
        parse(re.sub(r"^files = .*$", "", example, flags=re.MULTILINE), "example")


CAPTURES = Path(__file__).parents[4] / "shared" / "hardware"
WANTED = {
    "topology/ibnetdiscover-small.txt": (15, 2),
    "infiniband-diags/ibnetdiscover-ports-test.out.txt": (4, 3),
    "infiniband-diags/ibnetdiscover-ports-test2.out.txt": (1, 1),
    "topology/nccl-topo-ndv5-h100.xml": (0, 0),
}


@pytest.mark.parametrize("name", WANTED)
def test_captures_of_real_fabrics(name: str) -> None:
    if not (CAPTURES / name).is_file():
        pytest.skip(f"needs the capture {name} beside the repository")
    topology = read(CAPTURES / name)
    cables, switches = WANTED[name]
    assert (len(topology.cables), len(topology.switches)) == (cables, switches)
    if name.endswith(".xml"):
        near = topology.nearness
        assert near.nics == tuple(f"010{n}:00:00.0" for n in range(1, 9))
        own = {gpu: nic for (gpu, nic), way in near.between.items() if way == "PIX"}
        assert len(own) == 8


IBSIM = """
Switch 8 "leaf1"\t# "MF0;leaf1:MQM9700/U1"
[1] "gpu1"[1]
[2] "gpu2"[1]
[5] "spine1"[1]

Switch 8 "spine1"
[1] "leaf1"[5]

Hca 1 "gpu1"\t# "gpu1 mlx5_0"
[1] "leaf1"[1]

Hca 1 "gpu2"\t# "gpu2 mlx5_0"
[1] "leaf1"[2]
"""
LIBRARY = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"


def test_a_real_ibnetdiscover_on_a_simulated_fabric(tmp_path: Path) -> None:
    need_command("ibsim", "ibsim-utils")
    need_command("ibnetdiscover", "infiniband-diags")
    (tmp_path / "net").write_text(IBSIM)
    name = f"fabmon-topology-{tmp_path.name}"
    simulator = subprocess.Popen(
        ["ibsim", "-s", str(tmp_path / "net")],
        env={"PATH": "/usr/sbin:/usr/bin:/bin", "IBSIM_SOCKNAME": name},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert simulator.stdout is not None
        said = ""
        while "Network simulator ready" not in said:
            line = simulator.stdout.readline()
            assert line, said
            said += line
        for options in ([], ["--ports"]):
            done = subprocess.run(
                [str(shutil.which("ibnetdiscover")), *options],
                env={
                    "PATH": "/usr/sbin:/usr/bin:/bin",
                    "IBSIM_SOCKNAME": name,
                    "SIM_HOST": "gpu1",
                    "LD_PRELOAD": LIBRARY,
                },
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=240,
                check=True,
            )
            topology = parse(done.stdout, "net.txt")
            cables = {frozenset((c.one[:2], c.other[:2])) for c in topology.cables}
            assert cables == {
                frozenset((("gpu1", "mlx5_0"), ("leaf1", "p1"))),
                frozenset((("gpu2", "mlx5_0"), ("leaf1", "p2"))),
                frozenset((("leaf1", "p5"), ("spine1", "p1"))),
            }
    finally:
        simulator.kill()
        simulator.communicate()
