"""sFlow datagrams: the decoder on what the specification says, and on anything else."""

from __future__ import annotations

import random
import socket
import struct
import time

import pytest

from fabmon.fabric.flows.sampled import FlowKey
from fabmon.feeds.sflow.datagram import DatagramError, FlowSample, decode, flow_of
from tests.fixtures import sflow

A, B = "10.1.0.1", "10.1.9.2"
ROCE = FlowKey(A, B, 17, 49_153, 4791, 0x1A2B)


def sampled(packet: bytes, protocol: int = 1) -> FlowKey | None:
    """The flow of a packet, by way of a datagram."""
    made = sflow.datagram(sflow.flow_sample(sflow.raw_header(packet, 4096, protocol)))
    (sample,) = decode(made).flows
    return flow_of(sample)


def test_a_flow_sample_is_decoded() -> None:
    packet = sflow.roce(A, B, 49_153, 0x1A2B)
    made = sflow.datagram(sflow.flow_sample(sflow.raw_header(packet, 4178)), sequence=9)
    found = decode(made)
    assert (found.agent, found.sequence, found.uptime_ms) == (sflow.AGENT, 9, 1000)
    (sample,) = found.flows
    assert (sample.source, sample.rate, sample.input, sample.output) == (17, 1000, 17, 3)
    assert sample.frame_bytes == 4178
    assert flow_of(sample) == ROCE


def test_an_expanded_sample_and_an_agent_with_ipv6() -> None:
    header = sflow.raw_header(sflow.roce(A, B, 49_153, 0x1A2B), 4178)
    made = sflow.datagram(
        sflow.flow_sample(header, expanded=True, input_port=2**30, output_port=70_000),
        agent="2001:db8::1",
    )
    found = decode(made)
    assert found.agent == "2001:db8::1"
    assert (found.flows[0].input, found.flows[0].output) == (None, 70_000)


@pytest.mark.parametrize("output", [0x80000005, 0x40000001, 0x3FFFFFFF, 0])
def test_an_output_that_is_no_interface_is_none(output: int) -> None:
    header = sflow.raw_header(sflow.roce(A, B, 1, 2), 100)
    made = sflow.datagram(sflow.flow_sample(header, output_port=output))
    assert decode(made).flows[0].output is None


@pytest.mark.parametrize(
    ("packet", "protocol", "flow"),
    [
        (sflow.roce(A, B, 49_153, 0x1A2B, vlans=[100, 200]), 1, ROCE),
        (sflow.ipv4(A, B, 17, sflow.udp(49_153, 4791, sflow.bth(0x1A2B))), 11, ROCE),
        (
            sflow.ethernet(sflow.ipv6("fd00::1", "fd00::2", 6, sflow.udp(5, 80)), 0x86DD),
            1,
            FlowKey("fd00::1", "fd00::2", 6, 5, 80),
        ),
        (
            sflow.ipv6("fd00::1", "fd00::2", 0, bytes([17, 0]) + bytes(6) + sflow.udp(5, 53)),
            12,
            FlowKey("fd00::1", "fd00::2", 17, 5, 53),
        ),
        (sflow.ethernet(sflow.ipv4(A, B, 1, b"ping"), 0x0800), 1, FlowKey(A, B, 1)),
        (
            sflow.ethernet(sflow.ipv4(A, B, 17, b"later....", fragment=100), 0x0800),
            1,
            FlowKey(A, B, 17),
        ),
        (sflow.roce(A, B, 49_153, 0x1A2B)[:44], 1, FlowKey(A, B, 17, 49_153, 4791)),
        (sflow.ethernet(b"\0" * 30, 0x0806), 1, None),
        (sflow.ethernet(b"", 0x0800), 1, None),
        (b"", 1, None),
        (b"\x45", 99, None),
    ],
    ids=str,
)
def test_the_flow_of_a_header(packet: bytes, protocol: int, flow: FlowKey | None) -> None:
    sample = FlowSample(1, 1, 1, 2, 100, protocol, packet, None)
    assert flow_of(sample) == flow


def test_an_agent_may_send_fields_instead_of_a_header() -> None:
    ends = socket.inet_aton(A) + socket.inet_aton(B)
    fields = struct.pack(">II", 1500, 6) + ends + struct.pack(">IIII", 5, 80, 0, 0)
    (sample,) = decode(sflow.datagram(sflow.flow_sample(sflow.record(3, fields)))).flows
    assert flow_of(sample) == FlowKey(A, B, 6, 5, 80)
    assert sample.frame_bytes == 1500


@pytest.mark.parametrize("expanded", [False, True])
def test_interface_counters_are_decoded(expanded: bool) -> None:
    made = sflow.counter_sample(
        sflow.record(2, bytes(52)),
        sflow.if_counters(17, 10**15, 2 * 10**15),
        sflow.port_name("Ethernet17"),
        expanded=expanded,
    )
    (port,) = decode(sflow.datagram(made)).counters
    assert (port.if_index, port.name, port.is_up, port.speed_bps) == (
        17,
        "Ethernet17",
        True,
        400 * 10**9,
    )
    assert (port.rx_bytes, port.tx_bytes) == (10**15, 2 * 10**15)
    assert port.rx_packets == (10, 2, 1)
    assert port.tx_packets == (20, None, 0), "all ones is not counted"
    assert (port.rx_discards, port.rx_errors, port.tx_discards, port.tx_errors) == (4, 5, 6, 7)


def test_unknown_samples_and_records_are_skipped() -> None:
    vendor = sflow.record((4413 << 12) | 1, b"whatever")
    header = sflow.raw_header(sflow.roce(A, B, 49_153, 0x1A2B), 4178)
    found = decode(sflow.datagram(vendor, sflow.flow_sample(sflow.record(1001, bytes(16)), header)))
    assert found.skipped == 1
    assert flow_of(found.flows[0]) == ROCE


def test_a_datagram_cut_anywhere_is_refused() -> None:
    made = sflow.whole(A, B)
    for end in range(len(made)):
        with pytest.raises(DatagramError):
            decode(made[:end])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">II", 4, 1) + bytes(40), "version 4"),
        (struct.pack(">II", 5, 9) + bytes(40), "address type 9"),
        (struct.pack(">II", 5, 1) + bytes(16) + struct.pack(">I", 2**31), "samples"),
        (sflow.datagram(sflow.record(1, bytes(28) + struct.pack(">I", 2**31))), "records"),
        (bytes(70_000), "70000 bytes"),
    ],
)
def test_what_is_no_datagram_says_why(data: bytes, why: str) -> None:
    with pytest.raises(DatagramError, match=why):
        decode(data)


def test_no_bytes_make_the_decoder_fail_otherwise() -> None:
    """Random bytes, and real datagrams with random words and lengths: 10,000 of them."""
    dice = random.Random(14)
    made = sflow.whole(A, B)
    began = time.process_time()
    decoded = 0
    for _ in range(10_000):
        if dice.random() < 0.3:
            data = bytearray(made[:8] + dice.randbytes(dice.randrange(200)))
        else:
            data = bytearray(made)
            for _ in range(dice.randrange(1, 4)):
                place = dice.randrange(len(data) // 4) * 4
                word = dice.choice(
                    (0, 1, 2**32 - 1, 2**31, dice.getrandbits(32), dice.randrange(99))
                )
                data[place : place + 4] = word.to_bytes(4, "big")
        try:
            found = decode(bytes(data))
        except DatagramError:
            continue
        decoded += 1
        for sample in found.flows:
            flow_of(sample)
    assert decoded > 500, "not all of it is refused at the door"
    assert time.process_time() - began < 60
