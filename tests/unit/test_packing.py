"""Packed frames: what a probe packs, the console unpacks; what is broken is refused."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import wire
from fabmon.fabric.wire.messages import Frame, Packed, WireError, decode
from fabmon.fabric.wire.unpacking import ENCODINGS, Unpacker

VALUE = st.one_of(st.none(), st.integers(-2, 2**64 - 1), st.integers(0, 2**40))
CLOCK = st.integers(0, 2**62)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int, list[wire.Block]]]]:
    """A layout, and frames of it: blocks of fixed widths, any of them not read at times."""
    widths = draw(st.lists(st.integers(1, 6), max_size=4))
    blocks = st.tuples(
        *(st.one_of(st.none(), st.lists(VALUE, min_size=w, max_size=w)) for w in widths)
    ).map(list)
    frames = st.lists(st.tuples(CLOCK, CLOCK, CLOCK, blocks), max_size=6)
    return widths, draw(frames)


def packed(line: bytes) -> Packed:
    message = decode(line)
    assert isinstance(message, Packed)
    return message


def plain(frame: Frame) -> Frame:
    """The frame with lists for all its blocks."""
    blocks = [None if block is None else list(block) for block in frame.blocks]
    return Frame(frame.seq, frame.wall_ns, frame.mono_ns, [*blocks])


@given(sessions())
def test_what_was_packed_is_unpacked(
    session: tuple[list[int], list[tuple[int, int, int, list[wire.Block]]]],
) -> None:
    widths, frames = session
    packer, unpacker = wire.FramePacker(), Unpacker(widths)
    for seq, wall_ns, mono_ns, blocks in frames:
        line = packer.frame(seq, wall_ns, mono_ns, [block and list(block) for block in blocks])
        assert plain(unpacker.frame(packed(line))) == Frame(seq, wall_ns, mono_ns, [*blocks])


def test_to_unpack_the_frames_of_a_node_takes_little_more_memory_than_its_values() -> None:
    """1,024 of these are connected: every kilobyte here is a megabyte."""
    widths = [1000] * 5
    Unpacker(widths)
    tracemalloc.start()
    unpackers = [Unpacker(widths) for _ in range(20)]
    each_bytes = tracemalloc.get_traced_memory()[0] / len(unpackers)
    tracemalloc.stop()
    assert each_bytes < 2 * 8 * sum(widths)


def test_the_first_encoding_that_both_know_is_taken() -> None:
    assert wire.choose_encoding(["morse", "delta-deflate", "plain"]) == "delta-deflate"
    assert wire.choose_encoding(["morse"]) == "plain"
    assert wire.choose_encoding([]) == "plain"
    for name in ENCODINGS:
        assert wire.choose_encoding([name]) == name


@given(st.binary(max_size=200))
def test_bytes_that_are_no_packed_frame_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        Unpacker([6]).frame(Packed(data))


def test_a_frame_that_inflates_without_end_is_refused() -> None:
    line = wire.FramePacker().frame(0, 0, 0, [[0] * 5_000_000])
    assert len(line) < wire.MAX_LINE
    with pytest.raises(WireError, match="more than"):
        Unpacker([10**7]).frame(packed(line))


def test_a_frame_inflates_to_what_its_hello_announced_and_no_further() -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, -wire.WINDOW_BITS)
    text = b"[0,0,0" + b" " * 100_000 + b",[[1,1]]]"
    line = stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert len(line) < 1000
    with pytest.raises(WireError, match="a packed frame inflates to more than 4224 bytes"):
        Unpacker([2]).frame(Packed(line))
    widest = wire.FramePacker().frame(0, 2**62, 2**62, [[2**64 - 1] * 2000])
    Unpacker([2000]).frame(packed(widest))


def test_a_frame_of_another_layout_is_refused() -> None:
    one, other, unpacker = wire.FramePacker(), wire.FramePacker(), Unpacker([2])
    unpacker.frame(packed(one.frame(0, 0, 0, [[1, 2]])))
    one.frame(1, 0, 0, [[1, 2]])
    with pytest.raises(WireError):
        unpacker.frame(packed(other.frame(0, 0, 0, [[1, 2, 3]])))


def test_a_big_host_with_a_third_of_its_counters_moving_takes_less_than_3_kb_a_tick() -> None:
    chance = random.Random(7)
    values = [chance.randrange(10**12, 10**15) for _ in range(8 * 24 + 8 * 40 + 10 * 12)]
    paces = [chance.choice((10**3, 10**6, 10**9, 5 * 10**10)) for _ in values]
    packer, sizes = wire.FramePacker(), []
    for seq in range(20):
        for place in chance.sample(range(len(values)), len(values) * 3 // 10):
            values[place] += chance.randrange(paces[place])
        clock = seq * 10**9 + chance.randrange(10**6)
        sizes.append(len(packer.frame(seq, clock, clock, [[clock, *values]])))
    assert max(sizes[2:]) < 3000


NUMERALS = (
    *("0", "-0", "17", "-17", "-", "", " 1", "1-1", "--1", "007", "1e3", "1.5", "null", "true"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "99999999999999999999999"),
)


@pytest.mark.parametrize("numeral", NUMERALS)
def test_a_frame_is_read_as_numbers_only_where_json_says_the_same(numeral: str) -> None:
    """Almost all frames have no gaps, and are read in half of the time."""
    for text in (b"[1,2,3,[[%b,5],[6]]]", b"[1,2,3,[[4,5],[%b]]]", b"[%b,2,3,[[4,5],[6]]]"):
        text %= numeral.encode()
        stream = zlib.compressobj(wbits=-wire.WINDOW_BITS)
        data = Packed(stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH))
        unpacker = Unpacker([2, 1])
        try:
            by_json: Frame | None = unpacker._any_frame(text)
        except WireError:
            by_json = None
        if by_json is None and numeral != "007":
            with pytest.raises(WireError):
                Unpacker([2, 1]).frame(data)
        elif by_json is not None:
            assert plain(Unpacker([2, 1]).frame(data)) == plain(by_json)


def test_a_number_with_a_sign_within_is_no_number_for_any_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """numpy 2.2 warns, which nobody sees, and returns what is before it."""
    monkeypatch.setattr(np, "fromstring", lambda *_, **__: np.array([1, 2, 3, 4, 5, 6]))
    assert Unpacker([2, 1])._frame_without_gaps(b"[1,2,3,[[4,5],[6-7]]]") is None


def test_a_frame_of_another_shape_is_not_read_as_numbers() -> None:
    for text in (b"[1,2,3,[[4],[5,6]]]", b"[1,2,3,[[4,5,6]]]", b"[1,2,3,[4,5],[6]]", b"[1,2,3]"):
        assert Unpacker([2, 1])._frame_without_gaps(text) is None
    assert Unpacker([2, 1])._frame_without_gaps(b"[1,2,3,[[4,5],[6]]]") is not None
