"""What the console accepts from a node, and what it makes of the rest."""

from __future__ import annotations

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.wire.messages import (
    Burst,
    Frame,
    Hello,
    Notice,
    Trace,
    WireError,
    check,
    clean,
    decode,
)
from tests.builders import frame, hello, port
from tests.unit.feeds.wire_lines import hello_line

VALUES = st.lists(st.one_of(st.none(), st.integers(0, 2**64 - 1)), max_size=20)


@given(seq=st.integers(0, 2**40), clock=st.integers(0, 2**62), blocks=st.lists(VALUES))
def test_a_frame_arrives_as_it_was_sent(
    seq: int, clock: int, blocks: list[list[int | None]]
) -> None:
    sent: list[wire.Block] = [block if block else None for block in blocks]
    message = decode(wire.frame(seq, clock, clock, sent))
    assert isinstance(message, Frame)
    assert message == Frame(seq, clock, clock, sent)


TEXT = st.text(max_size=60)


@given(name=TEXT, fact=TEXT)
def test_no_text_of_a_hello_can_paint(name: str, fact: str) -> None:
    said = hello(Object(name, "ethernet", name, {"fw": fact, "list": [fact]}, ()))
    item = said.blocks[0].objects[0]
    assert item.id.isprintable()
    assert item.port is not None
    assert item.port.isprintable()
    assert item.info["fw"].isprintable()
    assert item.info["list"][0].isprintable()


def test_printable_names_are_kept_whatever_their_script() -> None:
    said = hello(port("eth0", rack="Zürich-機架[red]"))
    assert said.blocks[0].objects[0].info["rack"] == "Zürich-機架[red]"


def test_nodes_of_one_kind_share_the_names_of_their_metrics_and_what_they_say_of_ports() -> None:
    one, other = (
        hello(port("eth-100", fw_ver="28.39.1002 (MT_838)"), hostname=name) for name in "ab"
    )
    (here,), (there,) = one.blocks[0].objects, other.blocks[0].objects
    assert here.metrics is there.metrics
    assert one.metrics is other.metrics
    assert here.port is there.port
    assert here.info["fw_ver"] is there.info["fw_ver"]


@pytest.mark.parametrize("char", ["\t", "\n", "\x00", "\x7f", "\x1b", "\xad", "\u202e"])
def test_a_character_that_is_not_escaped_is_refused_or_replaced(char: str) -> None:
    line = wire.dump(["hello", _about("gpu@1")]).replace(b"@", char.encode())
    with contextlib.suppress(WireError):
        message = decode(line)
        assert isinstance(message, Hello)
        assert message.hostname == "gpu?1"


def _about(hostname: str) -> dict[str, object]:
    return {
        "wire": wire.VERSION,
        "hostname": hostname,
        "layout": "",
        "metrics": {},
        "blocks": [],
        "interval_s": 1.0,
    }


def test_a_notice_arrives_clean() -> None:
    message = decode(wire.notice("lost", "ib", "\x1b[2Jno answer", reason="late"))
    assert message == Notice("lost", "ib", reason="late", text="?[2Jno answer")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Welcome to gpu001\n",
        b"[]\n",
        b'["frame"]\n',
        b'["frame",0,0,0,[["a"]]]\n',
        b'["frame",0,0,0,[[1.5]]]\n',
        b'["hello",{"wire":1}]\n',
        b'["goodbye",{}]\n',
        b"\xff\xfe\n",
        b"[" * 100_000,
    ],
)
def test_what_is_not_the_wire_is_refused_in_words(line: bytes) -> None:
    with pytest.raises(WireError, match="not a wire message"):
        decode(line)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_be_refused(line: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(line)


def test_another_major_version_is_refused_with_what_to_do() -> None:
    line = wire.hello([], {"interval_s": 1.0})
    other = line.replace(b'"wire":1', b'"wire":2')
    with pytest.raises(WireError, match="wire version 2, this console 1: install the same fabmon"):
        decode(other)


@pytest.mark.parametrize("number", [-1, 2**64, 10**400])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("burst", '{"id": 1, "samples": [[5, 1, 2], [NUMBER, 3, 4]]}'),
        ("burst", '{"id": 1, "samples": [[5, 1, NUMBER]]}'),
        ("trace", '{"id": 1, "path": {"sport": 1, "end": "far", "hops": [[["a", NUMBER]]]}}'),
    ],
)
def test_an_answer_with_a_number_that_nothing_counts_to_is_refused(
    kind: str, body: str, number: int
) -> None:
    with pytest.raises(WireError, match="not a wire message: "):
        decode(f'["{kind}", {body.replace("NUMBER", str(number))}]'.encode())
    whole = decode(f'["{kind}", {body.replace("NUMBER", str(2**53))}]'.encode())
    assert isinstance(whole, Burst | Trace)


def test_keys_of_a_newer_probe_are_ignored() -> None:
    line = json.loads(wire.hello([], {"interval_s": 1.0, "colour_of_rack": "blue"}))
    assert isinstance(decode(json.dumps(line).encode()), Hello)


def test_a_frame_that_does_not_fit_its_layout_is_refused() -> None:
    said = hello(port("eth0"))
    check(frame(0, 1, 2, 3, 4), said)
    with pytest.raises(WireError, match="netdev: a block of 4 values, announced 5"):
        check(frame(0, 1, 2, 3), said)
    with pytest.raises(WireError, match="a frame of 0 blocks, announced 1"):
        check(Frame(0, 0, 0, []), said)


def test_long_texts_are_cut() -> None:
    assert len(clean("\x07" * 5000)) == 400


def test_long_texts_of_a_hello_are_cut_whatever_they_are_made_of() -> None:
    said = hello(Object("9" * 5000, "ethernet", "9" * 5000, {"x" * 5000: "y" * 5000}, ()))
    item = said.blocks[0].objects[0]
    assert item.port is not None
    assert {len(item.id), len(item.port)} == {400}
    assert [(len(key), len(value)) for key, value in item.info.items()] == [(400, 400)]


def test_a_hello_nested_without_end_is_refused() -> None:
    line = wire.hello([wire.BlockLayout("s", 1, [port("eth0", rack="RACK")])], {"interval_s": 1.0})
    for depth in (10, 400, 700, 900, 5000):
        nested = b"[" * depth + b"]" * depth
        with contextlib.suppress(WireError):
            decode(line.replace(b'"RACK"', nested))


def _large_hello(number: int) -> bytes:
    """A hello unlike the others: thousands of metrics of a port, of a catalog and of a driver."""
    names = [f"{number}m{place}" for place in range(3000)]
    coverage = [{"source": "ethtool", "driver": "x", "unmapped": names}]
    return hello_line(metrics=names, coverage=coverage)


def test_nothing_is_kept_for_others_of_a_hello_that_is_larger_than_any_probe_sends() -> None:
    decode(_large_hello(-1))
    tracemalloc.start()
    for number in range(20):
        decode(_large_hello(number))
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 1_000_000, "they were 20 times 0.9 MB"
