"""What Prometheus scrapes: read back by its own tools, and by people."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from collectors import wire
from collectors.catalog import CATALOG
from fabmon.agent.streams import ProbeState
from fabmon.fabric.openmetrics import EXPOSED, OPENMETRICS, PROMETHEUS, choose_content_type, meant
from tests.fixtures import hosts, nvml
from tests.goldens import check_golden
from tests.requirements import need_command
from tests.unit.agent.probe_lines import (
    NOW_NS,
    frame_line,
    hello_line,
    layout,
    lines_of_a_probe,
    page,
    state_after,
)

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(params=sorted(hosts.HOSTS))
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ProbeState:
    """An agent's memory of a fixture host."""
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    hosts.HOSTS[request.param](tmp_path)
    return state_after(lines_of_a_probe(tmp_path))


def promtool(text: str) -> None:
    """Fail unless promtool takes the page without a word."""
    need_command("promtool", "prometheus")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def samples(text: str, content_type: str) -> dict[tuple[str, str, str], float]:
    """(name, port, source) -> value, as prometheus_client reads the page."""
    parse = openmetrics if content_type == OPENMETRICS else prometheus
    return {
        (sample.name, sample.labels.get("port", ""), sample.labels.get("source", "")): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("name", ["hgx", "ib", "roce"])
def test_the_page_of_a_host(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    hosts.SMALL_HOSTS[name](tmp_path)
    text = page(state_after(lines_of_a_probe(tmp_path)), OPENMETRICS)
    # What the probe takes is never the same twice.
    text = re.sub(r"^(fabmon_probe_\S+) \S+$", r"\1 ...", text, flags=re.MULTILINE)
    check_golden(GOLDENS / f"metrics_{name}.txt", text)


def test_promtool_has_nothing_to_say_about_any_host(host: ProbeState) -> None:
    promtool(page(host, PROMETHEUS))


def test_every_value_of_a_frame_is_on_the_page_and_nothing_is_there_twice(host: ProbeState) -> None:
    assert host.hello is not None
    frame = {
        (block.source, place): value
        for block, values in zip(host.hello.blocks, host.blocks, strict=True)
        for place, value in enumerate((values or [None])[1:])
        if value is not None
    }
    for content_type, parse in ((OPENMETRICS, openmetrics), (PROMETHEUS, prometheus)):
        found = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in parse(page(host, content_type))
            for sample in family.samples
        ]
        assert len(found) == len(set(found))
        shown = sum(meant(name) is not None for name, _ in found)
        saturated = sum(name == "fabmon_saturated" for name, _ in found)
        assert shown + saturated == len(frame)


@pytest.mark.parametrize("content_type", [OPENMETRICS, PROMETHEUS])
def test_every_metric_of_the_catalog_can_be_shown_and_read_back(content_type: str) -> None:
    names = tuple(CATALOG)
    values = list(range(8_000_000, 8_000_000 + len(names)))
    state = state_after([hello_line(layout("all", *names)), frame_line(0, [1, *values])])
    text = page(state, content_type)
    if content_type == PROMETHEUS:
        promtool(text)
    found = samples(text, content_type)
    for name, value in zip(names, values, strict=True):
        shown = found[EXPOSED[name].sample, "eth0", "all"]
        assert shown * EXPOSED[name].factor == pytest.approx(value, rel=1e-12), name


def test_what_is_not_supported_is_absent_and_never_zero() -> None:
    state = state_after(
        [
            hello_line(layout("netdev", "netdev_rx_bytes", "netdev_tx_bytes", "netdev_rx_drops")),
            frame_line(0, [1, 0, None, None]),
        ]
    )
    text = page(state, PROMETHEUS)
    assert "fabmon_netdev_rx_bytes_total{" in text
    assert "fabmon_netdev_tx_bytes" not in text
    assert "fabmon_netdev_rx_drops" not in text


def test_a_counter_at_its_maximum_is_stuck_and_has_no_value() -> None:
    state = state_after(
        [
            hello_line(layout("ib_errors", "ib_symbol_errors", "ib_link_downed")),
            frame_line(0, [1, 65535, 254]),
        ]
    )
    text = page(state, PROMETHEUS)
    promtool(text)
    assert "fabmon_ib_symbol_errors" not in text
    labels = 'metric="ib_symbol_errors",port="eth0",kind="ethernet",source="ib_errors"'
    assert f"fabmon_saturated{{{labels}}} 1\n" in text
    assert 'fabmon_ib_link_downed_total{port="eth0"' in text


def test_a_source_that_is_lost_is_down_for_a_reason_and_has_no_values() -> None:
    state = state_after(
        [
            hello_line(layout("netdev", "netdev_up"), layout("ib", "ib_state")),
            frame_line(0, [1, 1], [1, 4]),
            wire.notice("lost", "ib", "Operation not permitted", reason="denied"),
            wire.notice("lost", "nvlink", "no library", reason="unsupported"),
            frame_line(1, [2, 1], None),
        ]
    )
    found = samples(page(state, OPENMETRICS), OPENMETRICS)
    assert ("fabmon_ib_state", "eth0", "ib") not in found
    assert found["fabmon_source_up", "", "netdev"] == 1
    assert found["fabmon_source_up", "", "ib"] == 0
    assert found["fabmon_source_up", "", "nvlink"] == 0
    assert found["fabmon_source_age_seconds", "", "ib"] == 0.5
    text = page(state, PROMETHEUS)
    assert 'fabmon_source_up{source="ib",reason="denied"} 0\n' in text
    assert 'fabmon_source_up{source="netdev",reason=""} 1\n' in text


def test_when_frames_stop_there_are_no_values_and_every_source_is_late() -> None:
    state = state_after([hello_line(layout("netdev", "netdev_up")), frame_line(0, [1, 1])])
    text = page(state, PROMETHEUS, is_fresh=False)
    assert "fabmon_netdev_up" not in text
    assert 'fabmon_source_up{source="netdev",reason="late"} 0\n' in text
    assert 'fabmon_source_age_seconds{source="netdev"} 0.500\n' in text
    promtool(text)


def test_a_port_has_one_row_of_facts_whatever_number_of_sources_knows_it() -> None:
    metrics = ("netdev_up",)
    one = wire.Object("ib0", "infiniband", "mlx5_0", {"netdev": "ib0", "mtu": 1}, metrics)
    other = wire.Object("mlx5_0/1", "infiniband", "mlx5_0", {"driver": "mlx5_core"}, ())
    blocks = [wire.BlockLayout("netdev", 1, [one]), wire.BlockLayout("ib", 1, [other])]
    state = state_after([hello_line(*blocks), frame_line(0, [1, 1], None)])
    text = page(state, PROMETHEUS)
    facts = 'port="mlx5_0",kind="infiniband",netdev="ib0",driver="mlx5_core"'
    assert f"fabmon_port_info{{{facts}}} 1\n" in text
    assert text.count("fabmon_port_info{") == 1


def test_an_object_about_another_node_says_which() -> None:
    item = wire.Object("S-1/3", "infiniband", "3", {}, ("ib_state",), node="switch1")
    state = state_after([hello_line(wire.BlockLayout("fabric", 1, [item])), frame_line(0, [1, 4])])
    text = page(state, PROMETHEUS)
    assert 'fabmon_ib_state{node="switch1",port="3",kind="infiniband",source="fabric"} 4\n' in text
    assert 'fabmon_port_info{node="switch1",port="3",kind="infiniband"} 1\n' in text


def test_two_objects_of_one_port_with_the_same_metric_differ_by_label() -> None:
    items = [wire.Object(name, "ethernet", "eth0", {}, ("netdev_up",)) for name in ("a", "b")]
    state = state_after(
        [hello_line(wire.BlockLayout("netdev", 1, items)), frame_line(0, [1, 1, 0])]
    )
    text = page(state, PROMETHEUS)
    promtool(text)
    assert 'source="netdev"} 1\n' in text
    assert 'source="netdev",object="b"} 0\n' in text


@given(st.text('\\\\"n{}=,# aé0', min_size=1, max_size=12))
def test_a_label_comes_back_as_it_was(name: str) -> None:
    state = state_after(
        [hello_line(layout("netdev", "netdev_up", port=name)), frame_line(0, [NOW_NS, 1])]
    )
    for content_type in (OPENMETRICS, PROMETHEUS):
        found = samples(page(state, content_type), content_type)
        assert found["fabmon_netdev_up", name, "netdev"] == 1


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", PROMETHEUS),
        ("*/*", PROMETHEUS),
        ("text/plain", PROMETHEUS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1", OPENMETRICS),
        (
            "application/openmetrics-text; version=0.0.1; q=0.75, text/plain; q=0.9",
            PROMETHEUS,
        ),
        ("application/openmetrics-text;q=0", PROMETHEUS),
        ("text/html,,;q=x,application/OpenMetrics-Text;q=0.2", OPENMETRICS),
    ],
)
def test_openmetrics_is_for_who_likes_it_best(accept: str, wanted: str) -> None:
    assert choose_content_type(accept) == wanted


@given(st.text(max_size=60))
def test_any_accept_header_gets_an_answer(accept: str) -> None:
    assert choose_content_type(accept) in (OPENMETRICS, PROMETHEUS)
