"""Series of Prometheus as hellos and frames, without a server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.wire.messages import Frame, check
from fabmon.feeds.prometheus import responses
from fabmon.feeds.prometheus.client import PrometheusAccess
from fabmon.feeds.prometheus.metric_names import known_metrics, other_exporters
from fabmon.feeds.prometheus.queries import QueryRound
from fabmon.feeds.prometheus.responses import BadAccess, NotPrometheus, QueryRefused
from fabmon.feeds.prometheus.series_selection import SeriesSelection, parse_label, parse_matchers
from fabmon.feeds.prometheus.series_table import SeriesTable, without_port
from fabmon.feeds.prometheus.target_blocks import PageInterpreter
from fabmon.feeds.prometheus.tick_builder import TickBuilder
from fabmon.feeds.scrape.page_coverage import names_coverage

METRICS = known_metrics()
TX, RX = "fabmon_ib_tx_bytes_total", "fabmon_ib_rx_bytes_total"


def key(instance: str, **labels: str) -> bytes:
    return json.dumps({"instance": instance, **labels}).encode()


def agents(instance: str, port: str) -> bytes:
    return key(instance, port=port, source="ib", kind="infiniband")


class Rounds:
    """A table, and its frames after each round of queries."""

    def __init__(self) -> None:
        self.table = SeriesTable("instance", PageInterpreter(other_exporters()))
        self.clock = 0

    def at(self, found: dict[str, dict[bytes, float]]) -> dict[str, list[list[int | None] | None]]:
        """The frames when every block was read again."""
        self.clock += 1
        self.table.sweep()
        self.table.clear()
        for name, series in found.items():
            values = np.array(list(series.values()), np.float64)
            self.table.store(METRICS[name], list(series), values)
        self.table.settle()
        blocks = [
            (target, block) for target in self.table.targets for block in self.table.blocks(target)
        ]
        return self.table.frames(dict.fromkeys(blocks, self.clock))

    def metrics(self, target: str) -> list[tuple[str, list[str]]]:
        hello = self.table.hello(target, {"interval_s": 1.0}, {})
        return [(o.id, list(o.metrics)) for block in hello.blocks for o in block.objects]


def test_values_are_in_the_order_of_the_hello_whatever_the_order_of_the_result() -> None:
    rounds = Rounds()
    one, two = agents("a:1", "mlx5_0"), agents("a:1", "mlx5_1")
    assert rounds.at({TX: {one: 1, two: 2}, RX: {two: 4, one: 3}}) == {"a": [[1, 1, 3, 2, 4]]}
    assert rounds.at({TX: {two: 6, one: 5}, RX: {one: 7, two: 8}}) == {"a": [[2, 5, 7, 6, 8]]}
    names = ["ib_tx_bytes", "ib_rx_bytes"]
    assert rounds.metrics("a") == [("mlx5_0", names), ("mlx5_1", names)]
    hello = rounds.table.hello("a", {"interval_s": 1.0}, {})
    check(Frame(0, 0, 0, rounds.at({})["a"]), hello)


def test_a_series_that_disappears_is_absent_and_then_dropped() -> None:
    rounds = Rounds()
    one, two = agents("a:1", "mlx5_0"), agents("a:1", "mlx5_1")
    rounds.at({TX: {one: 1, two: 2}})
    rounds.table.changed.clear()
    for _ in range(5):
        assert rounds.at({TX: {one: 1}})["a"][0] is not None
        assert len(rounds.metrics("a")) == 2
    assert rounds.at({TX: {one: 1}}) == {"a": [[7, 1]]}
    assert rounds.table.changed == {"a"}
    assert rounds.metrics("a") == [("mlx5_0", ["ib_tx_bytes"])]
    # It returns as a new series.
    assert rounds.at({TX: {one: 1, two: 9}}) == {"a": [[8, 1, 9]]}


def test_an_agent_whose_series_all_disappear_costs_no_more_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each series all others were gone through: of 4,000 it took 4 s, with the square of
    their number, in which nothing was shown."""
    monkeypatch.setattr("fabmon.feeds.prometheus.series_slots._MAX_MISSES", 1)
    rounds = Rounds()
    left = {agents("gpu001", "mlx5_0"): 1.0}
    rounds.at({TX: left | {agents("gpu001", f"p{number}"): 1.0 for number in range(20_000)}})
    began_s = time.thread_time()
    for _ in range(3):
        rounds.at({TX: left})
    assert time.thread_time() - began_s < 2
    assert rounds.metrics("gpu001") == [("mlx5_0", ["ib_tx_bytes"])]


def test_units_of_prometheus_become_those_of_the_catalog() -> None:
    rounds = Rounds()
    port = key("a:1", port="eth0", source="ethtool", kind="ethernet")
    found = rounds.at(
        {
            "fabmon_pfc_rx_pause_prio3_seconds_total": {port: 1.5},
            "fabmon_netdev_speed_bytes_per_second": {port: 50e9},
        }
    )
    assert found == {"a": [[1, 1_500_000, 400_000_000_000]]}


def test_a_page_is_mapped_by_its_exporters_table() -> None:
    rounds = Rounds()
    device = key("a:9100", device="mlx5_0", port="1")
    found = rounds.at(
        {
            "node_infiniband_port_data_transmitted_bytes_total": {device: 4e9},
            "node_infiniband_rate_bytes_per_second": {device: 50e9},
        }
    )
    assert [name for name, _ in rounds.metrics("a")] == ["mlx5_0"]
    names = dict(rounds.metrics("a"))["mlx5_0"]
    values = found["a"][0]
    assert values is not None
    assert dict(zip(names, values[1:], strict=True)) == {
        "ib_tx_bytes": 4_000_000_000,
        "ib_rate_bps": 400_000_000_000,
    }


def test_a_page_of_too_many_ports_is_refused_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exporter of one node with 16,385 ports ended the run for all nodes."""
    monkeypatch.setattr("fabmon.feeds.scrape.port_mapping._MAX_PORTS", 2)
    monkeypatch.setattr("fabmon.feeds.prometheus.series_slots._MAX_MISSES", 1)
    rounds = Rounds()
    builder = TickBuilder(rounds.table, 1.0, {})
    sent = "node_infiniband_port_data_transmitted_bytes_total"

    def hellos(ports: int) -> list[str]:
        devices = [key("bad:9100", device=f"mlx5_{number}", port="1") for number in range(ports)]
        good = key("good:9100", device="mlx5_0", port="1")
        rounds.at({sent: dict.fromkeys([*devices, good], 4e9)})
        read_s = dict.fromkeys([("bad", "bad:9100"), ("good", "good:9100")], float(rounds.clock))
        made, _ = builder.build(QueryRound(0.0, read_s, frozenset(), {}, {}))
        return [target for target, _ in made]

    assert hellos(3) == ["good"]
    assert builder.refused == {"bad": "more than 2 ports"}
    assert "bad" in [target for _ in range(3) for target in hellos(2)]
    assert builder.refused == {}


def test_ports_and_brackets_are_removed_from_names() -> None:
    names = ["gpu001:9100", "gpu001", "[fe80::1]:9100", "fe80::1", "10.0.0.1:80", "a:b"]
    assert [without_port(name) for name in names] == [
        "gpu001",
        "gpu001",
        "fe80::1",
        "fe80::1",
        "10.0.0.1",
        "a:b",
    ]


@given(st.text(max_size=30), st.text(alphabet="\"\\'{},=~! \nab", max_size=20))
def test_only_matchers_get_into_a_query(text: str, evil: str) -> None:
    for each in (text, f'a="{evil}"', f'{{a="x",b=~"{evil}"}}'):
        try:
            safe = parse_matchers(each)
        except BadAccess:
            continue
        # What is accepted is read as the same matchers again.
        assert parse_matchers(f"{{{safe}}}") == safe


@pytest.mark.parametrize(
    "text", ["up", 'up{job="a"}', '{__name__="up"}', "{job=a}", '{job="a"} or b', '{a="b" c="d"}']
)
def test_text_that_is_no_matcher_is_rejected(text: str) -> None:
    with pytest.raises(BadAccess, match="--match"):
        parse_matchers(text)


def test_queries_keep_only_the_labels_that_are_needed() -> None:
    selection = SeriesSelection(['cluster="a"', 'cluster="b"'], "instance", ["gpu001"])
    only = r'instance=~"(gpu001)([.:].*)?"'
    assert selection.values(METRICS["node_network_mtu_bytes"]) == (
        "max by (instance, device) ("
        f'node_network_mtu_bytes{{cluster="a",{only}}} or '
        f'node_network_mtu_bytes{{cluster="b",{only}}})'
    )


def test_every_spelling_of_a_number_is_decoded() -> None:
    body = (
        b'{"status":"success","isPartial":true,"warnings":["a store is away"],"data":{"resultType":'
        b'"vector","result":[{"metric":{"a":"b"},"value":[1,"1.5e3"]},'
        b'{"metric":{},"value":[1,"+Inf"]},{"metric":{},"value":[1,"NaN"]}]}}'
    )
    vector, warnings = responses.parse_vector(body)
    assert vector.keys[0] == b'{"a":"b"}'
    assert vector.values.tolist()[:2] == [1500.0, float("inf")]
    assert np.isnan(vector.values[2])
    assert warnings[0] == "a store is away"
    assert "partial" in warnings[1]
    with pytest.raises(NotPrometheus):
        responses.parse_vector(b"<html>")
    with pytest.raises(QueryRefused, match="too many"):
        responses.parse_vector(b'{"status":"error","error":"too many"}')


def test_range_results_have_a_column_per_step_and_nan_in_gaps() -> None:
    body = (
        b'{"status":"success","data":{"resultType":"matrix","result":['
        b'{"metric":{},"values":[[10,"1"],[20,"3"]]},{"metric":{},"values":[]}]}}'
    )
    matrix, _ = responses.parse_matrix(body, 10.0, 5.0, 3)
    np.testing.assert_array_equal(matrix.values, [[1, np.nan, 3], [np.nan] * 3])


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("prometheus:9090", "write the URL of Prometheus"),
        ("http://ops:secret@prometheus:9090", "every user of this machine can see"),
        ("http://prometheus:99999", "1 to 65535"),
        ("http://prometheus/?a=b", "without a query or fragment"),
    ],
)
def test_a_bad_url_is_explained_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(BadAccess, match=reason) as caught:
        PrometheusAccess(url=url).base_url()
    assert "secret" not in str(caught.value)


def test_secrets_come_from_private_files(tmp_path: Path) -> None:
    path = str(tmp_path / "token")
    Path(path).write_text("abc\n")
    Path(path).chmod(0o644)
    with pytest.raises(BadAccess, match="chmod 600"):
        PrometheusAccess(url="https://a", token_file=path).headers()
    with pytest.raises(BadAccess, match="both set"):
        PrometheusAccess(url="http://a", token_file=path, password_file=path).headers()
    with pytest.raises(BadAccess, match="not the name of a label"):
        parse_label("a-b")


def test_a_token_is_sent_in_clear_text_only_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(0o600)

    def headers(url: str, insecure: bool = False) -> dict[str, str]:
        return PrometheusAccess(url=url, token_file=str(path), insecure=insecure).headers()

    with pytest.raises(BadAccess, match=r"would be sent to prom in clear text: use https, or"):
        headers("http://prom:9090")
    for allowed in (headers("https://prom"), headers("http://127.0.0.1:9090")):
        assert allowed == {"Authorization": "Bearer abc"}
    assert headers("http://prom:9090", insecure=True) == {"Authorization": "Bearer abc"}
    assert PrometheusAccess(url="http://prom:9090").headers() == {}


def test_the_hello_says_what_of_its_exporter_the_server_has_and_nobody_reads() -> None:
    rounds = Rounds()
    page = key("a:9400", gpu="0", UUID="GPU-1")
    rounds.at({TX: {agents("a:1", "mlx5_0"): 1}, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": {page: 1}})
    names = ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", *(f"DCGM_FI_DEV_{n}S" for n in "ABCDEFGHIJKL"))
    rounds.table.coverage = names_coverage(names, METRICS.keys(), other_exporters())
    hello = rounds.table.hello("a", {"interval_s": 1.0}, {})
    assert [(each.driver, each.seen, each.read) for each in hello.coverage or ()] == [
        ("dcgm_exporter", 13, 1)
    ]
    (limit,) = hello.limits or ()
    assert limit.source == "dcgm_exporter"
    assert limit.text.startswith("dcgm_exporter: 1 of 13 counters read; not: DCGM_FI_DEV_AS, ")
    assert limit.text.endswith("DCGM_FI_DEV_JS and 2 more")


def test_an_interface_of_node_exporter_is_the_port_that_the_agent_of_the_node_says() -> None:
    """One server scrapes both: `ens1np0` of the page is the agent's `mlx5_0`, and one port."""
    rounds = Rounds()
    rounds.table.learn("a", None, "mlx5_0", {"netdev": "ens1np0", "rdma": "mlx5_0"})
    page = {key("a:9100", device=name): 1.0 for name in ("ens1np0", "eno1")}
    rounds.at(
        {
            TX: {agents("a:9838", "mlx5_0"): 1},
            "node_network_transmit_bytes_total": page,
            "node_network_up": page,
        }
    )
    hello = rounds.table.hello("a", {"interval_s": 1.0}, {})
    ports = {block.source: [item.port for item in block.objects] for block in hello.blocks}
    assert ports == {"ib": ["mlx5_0"], "node_exporter": ["eno1", "mlx5_0"]}
