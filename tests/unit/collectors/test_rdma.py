from __future__ import annotations

from pathlib import Path

import pytest

from collectors.source import Unsupported
from tests.fixtures import hosts, parts
from tests.fixtures.reading import ask, source
from tests.fixtures.tree import Counter


def test_mlx5_on_roce_has_congestion_and_on_infiniband_has_none(tmp_path: Path) -> None:
    hosts.roce_host(tmp_path / "roce", hcas=1)
    hosts.ib_host(tmp_path / "ib", hcas=1)
    roce = ask("rdma", tmp_path / "roce").of("mlx5_0")
    assert roce["rdma_ecn_marked"] == 5_000_000_000
    assert roce["rdma_cnp_sent"] == 10_000_000
    assert roce["rdma_cnp_handled"] == 20_000_000
    assert roce["rdma_cnp_ignored"] == 1
    assert roce["rdma_out_of_sequence"] == 44
    assert roce["rdma_retransmits"] == 3
    assert "rdma_ecn_marked" not in ask("rdma", tmp_path / "ib").of("mlx5_0")
    rarely = ask("rdma_errors", tmp_path / "roce").of("mlx5_0")
    assert rarely["rdma_rx_write_requests"] == 4_294_900_000
    assert not set(rarely) & set(roce)


def test_bnxt_is_understood_in_both_spellings(tmp_path: Path) -> None:
    hosts.bnxt_host(tmp_path)
    answer = ask("rdma", tmp_path)
    own, like_mlx5 = answer.of("bnxt_re0"), answer.of("bnxt_re1")
    assert own == like_mlx5
    assert own["rdma_ecn_marked"] == 100
    assert own["rdma_cnp_sent"] == 101
    assert own["rdma_cnp_handled"] == 102
    assert own["rdma_out_of_sequence"] == 103
    assert own["rdma_tx_bytes"] == 8_000_000_000_000
    assert own["rdma_retransmits"] == 5


def test_irdma_sums_both_versions_of_ip(tmp_path: Path) -> None:
    hosts.ice_host(tmp_path)
    values = ask("rdma", tmp_path).of("rocep24s0f0")
    assert values["rdma_rx_bytes"] == 700_070
    assert values["rdma_tx_bytes"] == 800_080
    assert values["rdma_rx_drops"] == 3
    assert values["rdma_ecn_marked"] == 60
    hw = tmp_path / "sys/class/infiniband/rocep24s0f0/ports/1/hw_counters"
    (hw / "ip6OutPkts").unlink()
    # A sum of which a part is not there is not known.
    assert "rdma_tx_packets" not in ask("rdma", tmp_path).of("rocep24s0f0")


def test_a_wide_counter_of_a_narrow_metric_keeps_its_low_bits(tmp_path: Path) -> None:
    tree = hosts.bnxt_host(tmp_path)
    hw = tmp_path / "sys/class/infiniband/bnxt_re0/ports/1/hw_counters"
    (hw / "to_retransmits").write_text(f"{2**32 + 9}\n")
    (hw / "rx_bytes").write_text(f"{2**32 + 9}\n")
    values = ask("rdma", tree.root).of("bnxt_re0")
    assert values["rdma_retransmits"] == 9
    assert values["rdma_rx_bytes"] == 2**32 + 9


def test_what_the_device_counts_for_all_its_ports_is_an_object_of_its_own(tmp_path: Path) -> None:
    tree = hosts.bnxt_host(tmp_path)
    device = "sys/class/infiniband/bnxt_re0"
    counters = {"cmds_err": Counter(6), "rx_bytes": Counter(1), "keep_alive_rcvd": Counter(2)}
    parts.hw_counters(tree, device, counters, lifespan_ms=0)
    # What a port counts already is not taken twice.
    assert not ask("rdma", tmp_path).of("bnxt_re0/device")
    answer = ask("rdma_errors", tmp_path)
    assert answer.of("bnxt_re0/device") == {"rdma_commands_failed": 6}
    assert [item.port for item in answer.objects if item.id == "bnxt_re0/device"] == ["bnxt_re0"]


def test_the_longest_lifespan_bounds_how_often_it_is_read(tmp_path: Path) -> None:
    hosts.ib_host(tmp_path, hcas=2)
    rdma = source("rdma", tmp_path)
    assert [item.info for item in rdma.discover()] == [{"lifespan_ms": 12}] * 2
    assert rdma.min_period_s == pytest.approx(0.012)
    lifespan = tmp_path / "sys/class/infiniband/mlx5_1/ports/1/hw_counters/lifespan"
    lifespan.write_text("10000\n")
    rdma.close()
    rdma.discover()
    assert rdma.min_period_s == pytest.approx(10)
    rdma.close()
    assert rdma.min_period_s == 0


def test_a_driver_without_counters_is_said_to_have_none(tmp_path: Path) -> None:
    hosts.old_kernel_host(tmp_path)
    with pytest.raises(Unsupported):
        source("rdma", tmp_path).discover()


def test_efa_is_always_active_and_so_says_nothing_of_its_link(tmp_path: Path) -> None:
    hosts.HOSTS["efa"](tmp_path)
    assert "ib_state" not in ask("ib", tmp_path).of("rdmap79s0")
    assert set(ask("ib_errors", tmp_path).of("rdmap79s0")) == {"ib_rate_bps"}
    assert ask("netdev", tmp_path).of("ens32")["netdev_up"] == 1
    values = ask("rdma", tmp_path).of("rdmap79s0")
    assert values["rdma_tx_bytes"] == 1_001
    assert values["rdma_retransmits"] == 19_019
    assert values["rdma_retransmit_timeouts"] == 20_020
    assert ask("rdma_errors", tmp_path).of("rdmap79s0/device") == {"rdma_commands_failed": 3_003}


def test_the_limits_of_a_rented_port_are_part_of_its_drops(tmp_path: Path) -> None:
    hosts.HOSTS["erdma"](tmp_path)
    assert ask("rdma", tmp_path).of("erdma_0")["rdma_tx_drops"] == 4_004 + 5_005 + 6_006
    assert ask("rdma_errors", tmp_path).of("erdma_0")["rdma_tx_limit_drops"] == 5_005 + 6_006


def test_mana_counts_marks_for_all_its_ports(tmp_path: Path) -> None:
    hosts.HOSTS["mana"](tmp_path)
    answer = ask("rdma", tmp_path)
    assert [item.port for item in answer.objects] == ["mana_0/1", "mana_0/2", None]
    assert answer.of("mana_0/2")["rdma_cnp_handled"] == 22_022
    assert answer.of("mana_0/device") == {"rdma_ecn_marked": 2_002, "rdma_cnp_sent": 1_001}


def test_omni_path_counts_flits_and_has_no_symbol_errors(tmp_path: Path) -> None:
    hosts.HOSTS["opa"](tmp_path)
    assert ask("ib", tmp_path).of("hfi1_0")["ib_tx_bytes"] == 8 * 230_000_000_000_000
    errors = ask("ib_errors", tmp_path).of("hfi1_0")
    assert errors["ib_link_downed"] == 2
    assert not {"ib_symbol_errors", "ib_vl15_dropped", "ib_tx_unicast_packets"} & set(errors)
    values = ask("rdma", tmp_path).of("hfi1_0")
    assert values["rdma_retransmits"] == 2_002
    assert values["rdma_out_of_sequence"] == 8_008


WANTED = {
    "bnxt": {"bytes", "packets", "ecn_marked", "cnp_sent", "cnp_handled", "retransmits"},
    "ice": {"bytes", "packets", "ecn_marked", "cnp_sent", "cnp_handled", "retransmits"},
    "efa": {"bytes", "packets", "retransmits", "rx_drops"},
    "ionic": {"bytes", "packets", "ecn_marked", "cnp_sent", "cnp_handled", "retransmits"},
    "erdma": {"bytes", "packets", "rx_drops", "tx_drops"},
    "hns": {"packets", "cnp_sent", "cnp_handled"},
    "mana": {"bytes", "packets", "ecn_marked", "cnp_sent", "cnp_handled", "out_of_sequence"},
    "opa": {"retransmits", "out_of_sequence", "ack_timeouts", "rnr_nak_retries"},
    "rxe": {"packets", "retransmits", "out_of_sequence", "rnr_nak_retries"},
}
BOTH_WAYS = {"bytes", "packets"}


@pytest.mark.parametrize("name", sorted(WANTED))
def test_what_each_driver_counts_is_found(tmp_path: Path, name: str) -> None:
    hosts.HOSTS[name](tmp_path)
    found = {metric for item in ask("rdma", tmp_path).objects for metric in item.metrics}
    for what in WANTED[name]:
        ways = [f"rx_{what}", f"tx_{what}"] if what in BOTH_WAYS else [what]
        assert found >= {f"rdma_{way}" for way in ways}, what
