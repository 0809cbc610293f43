"""Series of an engine as hellos and frames, without an engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.wire.messages import Frame, check
from fabmon.feeds.prometheus import queries, responses
from fabmon.feeds.prometheus.client import BadAccess, PrometheusAccess, base_url, headers
from fabmon.feeds.prometheus.metric_names import exporters, vocabulary
from fabmon.feeds.prometheus.queries import SeriesSelection, label, matchers
from fabmon.feeds.prometheus.responses import NotPrometheus, QueryRefused
from fabmon.feeds.prometheus.series_table import SeriesTable, without_port
from fabmon.feeds.prometheus.target_blocks import PageInterpreter

SENSES = vocabulary()
TX, RX = "fabmon_ib_tx_bytes_total", "fabmon_ib_rx_bytes_total"


def key(instance: str, **labels: str) -> bytes:
    return json.dumps({"instance": instance, **labels}).encode()


def agents(instance: str, port: str) -> bytes:
    return key(instance, port=port, source="ib", kind="infiniband")


class Look:
    """A table, and what it says after each look."""

    def __init__(self) -> None:
        self.table = SeriesTable("instance", PageInterpreter(exporters()))
        self.clock = 0

    def at(self, found: dict[str, dict[bytes, float]]) -> dict[str, list[list[int | None] | None]]:
        """The frames when every unit was read again."""
        self.clock += 1
        self.table.sweep()
        self.table.clear()
        for name, series in found.items():
            places = self.table.places(SENSES[name], list(series))
            self.table.put(places, np.array(list(series.values()), np.float64))
        self.table.settle()
        units = [
            (target, unit) for target in self.table.targets for unit in self.table.units(target)
        ]
        return self.table.frames(dict.fromkeys(units, self.clock))

    def metrics(self, target: str) -> list[tuple[str, list[str]]]:
        hello = self.table.hello(target, {"interval_s": 1.0}, {})
        return [(o.id, list(o.metrics)) for block in hello.blocks for o in block.objects]


def test_values_lie_where_the_hello_says_whatever_their_order() -> None:
    look = Look()
    one, two = agents("a:1", "mlx5_0"), agents("a:1", "mlx5_1")
    assert look.at({TX: {one: 1, two: 2}, RX: {two: 4, one: 3}}) == {"a": [[1, 1, 3, 2, 4]]}
    assert look.at({TX: {two: 6, one: 5}, RX: {one: 7, two: 8}}) == {"a": [[2, 5, 7, 6, 8]]}
    names = ["ib_tx_bytes", "ib_rx_bytes"]
    assert look.metrics("a") == [("mlx5_0", names), ("mlx5_1", names)]
    hello = look.table.hello("a", {"interval_s": 1.0}, {})
    check(Frame(0, 0, 0, look.at({})["a"]), hello)


def test_a_series_that_is_gone_is_absent_and_then_dropped() -> None:
    look = Look()
    one, two = agents("a:1", "mlx5_0"), agents("a:1", "mlx5_1")
    look.at({TX: {one: 1, two: 2}})
    look.table.changed.clear()
    for _ in range(5):
        assert look.at({TX: {one: 1}})["a"][0] is not None
        assert len(look.metrics("a")) == 2
    assert look.at({TX: {one: 1}}) == {"a": [[7, 1]]}
    assert look.table.changed == {"a"}
    assert look.metrics("a") == [("mlx5_0", ["ib_tx_bytes"])]
    # It comes back as a series never seen.
    assert look.at({TX: {one: 1, two: 9}}) == {"a": [[8, 1, 9]]}


def test_units_of_prometheus_become_those_of_the_catalog() -> None:
    look = Look()
    port = key("a:1", port="eth0", source="ethtool", kind="ethernet")
    found = look.at(
        {
            "fabmon_pfc_rx_pause_prio3_seconds_total": {port: 1.5},
            "fabmon_netdev_speed_bytes_per_second": {port: 50e9},
        }
    )
    assert found == {"a": [[1, 1_500_000, 400_000_000_000]]}


def test_what_a_page_says_is_told_as_its_exporters_table_has_it() -> None:
    look = Look()
    device = key("a:9100", device="mlx5_0", port="1")
    found = look.at(
        {
            "node_infiniband_port_data_transmitted_bytes_total": {device: 4e9},
            "node_infiniband_rate_bytes_per_second": {device: 50e9},
        }
    )
    assert [name for name, _ in look.metrics("a")] == ["mlx5_0"]
    names = dict(look.metrics("a"))["mlx5_0"]
    values = found["a"][0]
    assert values is not None
    assert dict(zip(names, values[1:], strict=True)) == {
        "ib_tx_bytes": 4_000_000_000,
        "ib_rate_bps": 400_000_000_000,
    }


def test_ports_and_brackets_are_no_part_of_a_name() -> None:
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
def test_no_text_of_a_person_gets_into_a_query_unless_it_is_a_matcher(text: str, evil: str) -> None:
    for each in (text, f'a="{evil}"', f'{{a="x",b=~"{evil}"}}'):
        try:
            safe = matchers(each)
        except BadAccess:
            continue
        # What is accepted is read as the same matchers again.
        assert matchers(f"{{{safe}}}") == safe


@pytest.mark.parametrize(
    "text", ["up", 'up{job="a"}', '{__name__="up"}', "{job=a}", '{job="a"} or b', '{a="b" c="d"}']
)
def test_what_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(BadAccess, match="--match"):
        matchers(text)


def test_questions_ask_for_no_label_too_many() -> None:
    scope = SeriesSelection(['cluster="a"', 'cluster="b"'], "instance", ["gpu001"])
    only = r'instance=~"(gpu001)([.:].*)?"'
    assert queries.value(SENSES["node_network_mtu_bytes"], scope) == (
        "max by (instance, device) ("
        f'node_network_mtu_bytes{{cluster="a",{only}}} or '
        f'node_network_mtu_bytes{{cluster="b",{only}}})'
    )


def test_answers_are_read_with_every_spelling_of_a_number() -> None:
    body = (
        b'{"status":"success","isPartial":true,"warnings":["a store is away"],"data":{"resultType":'
        b'"vector","result":[{"metric":{"a":"b"},"value":[1,"1.5e3"]},'
        b'{"metric":{},"value":[1,"+Inf"]},{"metric":{},"value":[1,"NaN"]}]}}'
    )
    vector, warnings = responses.vector(body)
    assert vector.keys[0] == b'{"a":"b"}'
    assert vector.values.tolist()[:2] == [1500.0, float("inf")]
    assert np.isnan(vector.values[2])
    assert warnings[0] == "a store is away"
    assert "partial" in warnings[1]
    with pytest.raises(NotPrometheus):
        responses.vector(b"<html>")
    with pytest.raises(QueryRefused, match="too many"):
        responses.vector(b'{"status":"error","error":"too many"}')


def test_ranges_are_laid_on_their_steps_and_gaps_are_nan() -> None:
    body = (
        b'{"status":"success","data":{"resultType":"matrix","result":['
        b'{"metric":{},"values":[[10,"1"],[20,"3"]]},{"metric":{},"values":[]}]}}'
    )
    matrix, _ = responses.matrix(body, 10.0, 5.0, 3)
    np.testing.assert_array_equal(matrix.values, [[1, np.nan, 3], [np.nan] * 3])


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("prometheus:9090", "write the engine's URL"),
        ("http://ops:secret@prometheus:9090", "seen by everybody"),
        ("http://prometheus:99999", "1 to 65535"),
        ("http://prometheus/?a=b", "without what follows its path"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(url: str, complaint: str) -> None:
    with pytest.raises(BadAccess, match=complaint) as caught:
        base_url(url)
    assert "secret" not in str(caught.value)


def test_secrets_come_from_files_of_ones_own(tmp_path: Path) -> None:
    path = str(tmp_path / "token")
    Path(path).write_text("abc\n")
    Path(path).chmod(0o644)
    with pytest.raises(BadAccess, match="chmod 600"):
        headers(PrometheusAccess(url="http://a", token_file=path))
    with pytest.raises(BadAccess, match="not both"):
        headers(PrometheusAccess(url="http://a", token_file=path, password_file=path))
    with pytest.raises(BadAccess, match="not the name of a label"):
        label("a-b")
