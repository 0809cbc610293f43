"""What the redactor makes of names, addresses, facts and texts."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Burst, BurstPort, Notice
from tests.builders import START_NS, LeafSpine, frame, hello, port, tick
from tests.work import counted


def test_the_same_name_is_the_same_everywhere() -> None:
    redactor = Redactor([Host(name="gpu10"), Host(name="gpu9.acme.example", user="alice")])
    assert redactor.node("gpu9") == redactor.node("GPU9.acme.example") == "host-1"
    assert redactor.text("gpu10-ib0 to gpu9.acme.example/mlx5_0, said alice@gpu10") == (
        "host-2-ib0 to host-1/mlx5_0, said user-1@host-2"
    )
    assert redactor.text("gpu1 and gpu100 are others") == "gpu1 and gpu100 are others"


def test_addresses_keep_their_kind() -> None:
    redactor = Redactor()
    text = redactor.text("00:11:22:33:44:55 fe80::1 10.0.0.1 0x506b4b0300a1b2c3")
    assert text == "00:00:00:00:00:01 fe80::1 198.18.0.2 0x0000000000000002"
    assert redactor.text("2600:1::9, 10.0.0.1/24, ::1") == "2001:db8::3, 198.18.0.2/24, ::1"
    assert redactor.text("0000:3b:00.0 28.39.1002") == "0000:3b:00.0 28.39.1002"
    assert redactor.text("00-11-22-33-44-55") == "00-00-00-00-00-01"
    assert redactor.text("see /home/alice/.ssh/id_rsa: denied") == "see path-1: denied"


def test_a_tick_without_names_is_not_changed() -> None:
    each = Tick(3, START_NS)
    assert Redactor().tick(each) == each


def test_facts_are_redacted() -> None:
    redactor = Redactor([Host(name="acme-n1")])
    facts: dict[str, Any] = {
        "alias": "roce_acmecorp_alice",
        "netdev": "rocep59s0f0",
        "description": "10.0.0.1/acme",
        "addresses": ["10.0.0.1/24", "10.0.0.1"],
        "exporter": "http://alice@acme-n1:9100/metrics?who=alice",
        "peers": {"acme-n1": {"port": "rocep59s0f0"}},
    }
    facts_redacted = redactor.hello(hello(port("eth0", "", **facts))).blocks[0].objects[0].info
    assert facts_redacted["exporter"] == "http://host-1:9100"
    assert facts_redacted["alias"] == "text-1"
    assert facts_redacted["description"] == "text-2"
    assert facts_redacted["addresses"] == ["198.18.0.1/24", "198.18.0.1"]
    assert facts_redacted["peers"] == {"host-1": {"port": "rocep59s0f0"}}
    assert redactor.text("see http://10.0.0.1:9100/a and file:/home/alice/x") == (
        "see http://198.18.0.1:9100 and file:path-1"
    )


def test_a_name_is_the_same_in_every_thread() -> None:
    names = [f"rack{number}" for number in range(20_000)]
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        redactor = Redactor()
        with ThreadPoolExecutor(4) as pool:
            redacted = list(pool.map(lambda _: [redactor.node(name) for name in names], range(4)))
    finally:
        sys.setswitchinterval(before_s)
    assert redacted[1:] == redacted[:1] * 3
    assert len(set(redacted[0])) == len(names)


def test_addresses_are_replaced_whole_however_they_are_written() -> None:
    redactor = Redactor()
    plain, mapped = redactor.text("10.1.2.3"), redactor.text("::ffff:10.1.2.3/128")
    assert mapped == f"::ffff:{plain}/128"
    assert redactor.text("fe80::1%eth0 fe80::1%acme-vlan") == "fe80::2%eth0 fe80::2%zone-1"
    assert redactor.text("mac aabbccddeeff") == "mac 000000000001"
    assert redactor.text("aa:bb:cc:dd:ee:ff") == "00:00:00:00:00:01"
    assert redactor.text("::1 4420 a:b") == "::1 4420 a:b"


@pytest.mark.parametrize(
    "name",
    [
        *("acme-0c42a1b2c3d4", "acme-10.1.2.3", "acme.0c42.a1b2.c3d4", "fe80::acme", "a:b:acme"),
        *(
            "acme gpu 1",
            "MF0;acme-sw1:MSB7700/U1",
            "acmé (1)",
            "acme_",
            "_acme",
            "acme:gpu1",
            "acme..x",
            "acme-c1.acme",
            "ac_m-e.1:2",
        ),
    ],
)
def test_every_name_that_a_node_may_have_is_found_in_texts(name: str) -> None:
    """One with the digits of a MAC address in it lost these only, and the site's name was left."""
    redactor = Redactor([Host(name=name), Host(name="c1", address="10.9.9.9")])
    shown = redactor.node(name)
    assert redactor.subject(f"{name}/eth0 of {name}") == f"{shown}/eth0 of {shown}"
    for text in ("{} is lost", "to {}/mlx5_0, ({})", "{}: x", "lost:{}", "{}-ib0 of {}.", "x@{}"):
        assert redactor.text(text.replace("{}", name)) == text.replace("{}", shown)
    assert redactor.text("c1:c1:c1:00:00:01 on c1:9100") == (
        f"00:00:00:00:00:01 on {redactor.node('c1')}:9100"
    )
    assert redactor.text("10.9.9.9:22") == f"{redactor.node('c1')}:22"


def test_a_text_of_many_words_costs_its_length() -> None:
    """4,000 characters of a log, `a.a.a.`, took 30 s; with names in them also too deep a stack."""
    redactor = Redactor([Host(name="acme1")])

    def work(word: str, count: int) -> int:
        with counted() as work:
            redactor.text(word * count)
        return work.lines

    for word in ("a.", "acme1-", "1:", "acme1."):
        assert work(word, 800) < 2.5 * work(word, 400)


def test_nodes_with_a_common_prefix_stay_two() -> None:
    redactor = Redactor([Host(name="worker-0.joba"), Host(name="worker-0.jobb"), Host(name="r9")])
    names = ["worker-0.joba", "worker-0.jobb", "r9"]
    shown = redactor.tick(tick(0, dict.fromkeys(names, frame(0, 1))))
    assert [node for node, _ in shown.frames] == ["host-2", "host-3", "host-1"]
    assert redactor.text("worker-0.jobb.acme.example/eth0, worker-0.joba") == "host-3/eth0, host-2"
    assert redactor.text("worker-0 is none of them") == "name-1 is none of them"
    assert [redactor.original(each) for each in ("host-2", "host-3")] == names[:2]
    found_later = redactor.tick(tick(1, {"r9.rack2": frame(1, 1), "r9": frame(1, 1)}))
    assert [node for node, _ in found_later.frames] == ["device-1", "host-1"]


def test_bursts_notices_and_hellos_are_redacted() -> None:
    redactor = Redactor([Host(name="acme-gpu17")])
    burst = Burst(
        id=1,
        ports=(BurstPort(port="mlx5_0", source="ib", metrics=("ib_tx_bytes", "ib_rx_bytes")),),
        missing={"acme-gpu17-ib1": "acme-gpu17 has none"},
        error="acme-gpu17: no such port",
    )
    notice = Notice("lost", "ib", "acme-gpu17-ib1", "", "acme-gpu17 says no", "acme")
    hello = msgspec.structs.replace(LeafSpine().hellos()["gpu001"], probe="http://acme-gpu17:9090")
    redacted = redactor.tick(
        Tick(
            0,
            START_NS,
            hellos=(("acme-gpu17", hello),),
            notices=(("acme-gpu17", notice),),
            answers=(("acme-gpu17", burst),),
        )
    )
    ((node, answer),) = redacted.answers
    assert isinstance(answer, Burst)
    assert (node, answer.ports) == ("host-1", burst.ports)
    assert "acme" not in str(
        (redacted.answers, redacted.notices, [each.probe for _, each in redacted.hellos])
    )


@pytest.mark.parametrize("nodes", [("gpu001", "gpu002"), ("gpu002", "gpu001")])
def test_the_order_in_which_nodes_answer_is_in_no_number(nodes: tuple[str, str]) -> None:
    far = {"gpu001": "spine2", "gpu002": "spine1"}
    said = {name: hello(port("eth0", peer_node=far[name], peer_role="switch")) for name in nodes}
    redactor = Redactor()
    redactor.learn(tick(0, hellos=said))
    shown = [redactor.node(each) for each in ("gpu001", "gpu002", "spine1", "spine2")]
    assert shown == ["device-1", "device-2", "switch-1", "switch-2"]
