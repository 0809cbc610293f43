"""What an agent and an exporter's page call by different names is one port."""

from __future__ import annotations

from collectors.wire import BlockLayout, Object
from fabmon.fabric.port_source import with_shared_ports


def item(port: str, metric: str = "netdev_tx_bytes", **info: object) -> Object:
    return Object(port, "ethernet", port, dict(info), (metric,))


def ports(*layouts: BlockLayout) -> list[list[str | None]]:
    return [[each.port for each in layout.objects] for layout in with_shared_ports(layouts)]


AGENT = BlockLayout("netdev", 1, [item("mlx5_0", netdev="ens1np0", rdma="mlx5_0"), item("eno1")])
PAGE = BlockLayout(
    "node_exporter",
    15,
    [item(name, exporter="node_exporter") for name in ("ens1np0", "mlx5_0", "eno1", "docker0")],
)


def test_an_interface_of_a_page_is_the_port_that_the_agent_says() -> None:
    assert ports(AGENT, PAGE) == [["mlx5_0", "eno1"], ["mlx5_0", "mlx5_0", "eno1", "docker0"]]


def test_a_page_alone_keeps_its_names() -> None:
    assert ports(PAGE) == [["ens1np0", "mlx5_0", "eno1", "docker0"]]


def test_an_interface_of_two_ports_is_neither() -> None:
    """Both ports of a bond name the bond."""
    agent = BlockLayout("ib", 1, [item("mlx5_0", netdev="bond0"), item("mlx5_1", netdev="bond0")])
    page = BlockLayout("node_exporter", 15, [item("bond0", exporter="node_exporter")])
    assert ports(agent, page) == [["mlx5_0", "mlx5_1"], ["bond0"]]


def test_a_page_of_an_agent_is_an_agent() -> None:
    agent = BlockLayout("fabmon", 15, [item("mlx5_0", netdev="ens1np0", exporter="fabmon")])
    page = BlockLayout("node_exporter", 15, [item("ens1np0", exporter="node_exporter")])
    assert ports(agent, page) == [["mlx5_0"], ["mlx5_0"]]
