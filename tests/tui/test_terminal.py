"""What the terminal sends, byte by byte."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key

from fabmon.tui.terminal import InputDecoder, KeyParser


def _decoded(*chunks: bytes) -> str:
    decoder = InputDecoder()
    return "".join(decoder.feed(chunk) for chunk in chunks)


def test_text_and_escape_sequences_are_kept() -> None:
    assert _decoded(b"q\x1b[A", "é↑".encode(), b"\x1b[<0;3;4M") == "q\x1b[Aé↑\x1b[<0;3;4M"


def test_bytes_that_are_not_utf8_are_dropped() -> None:
    assert _decoded(b"caf\xe9 q", b"\xff\x80", b"x") == "caf qx"


def test_x10_mouse_reports_are_dropped_wherever_they_are_cut() -> None:
    report = b"\x1b[M \xe9q"
    for cut in range(2, len(report) + 1):
        assert _decoded(b"a" + report[:cut], report[cut:] + b"b") == "ab"


def test_a_character_may_come_in_two_reads() -> None:
    whole = "é".encode()
    assert _decoded(whole[:1], whole[1:]) == "é"


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_no_bytes_are_an_error(chunks: list[bytes]) -> None:
    _decoded(*chunks)


def _escape_after_s(parser: KeyParser) -> float:
    """How long the parser wants to wait after a single ESC before it is the Escape key."""
    assert not list(parser.feed("\x1b"))
    wait_s = parser.wait_s
    assert wait_s is not None
    while not (keys := [each for each in parser.tick() if isinstance(each, Key)]):
        time.sleep(parser.wait_s or 0)
    assert [each.key for each in keys] == ["escape"]
    assert parser.wait_s is None
    return wait_s


def test_escape_does_not_wait_as_long_as_textual_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESCDELAY", raising=False)
    parser = KeyParser()
    assert _escape_after_s(parser) < 0.1
    # The parser goes on: an arrow key that is cut after its ESC is still one key.
    assert not list(parser.feed("\x1b"))
    assert [each.key for each in parser.feed("[A") if isinstance(each, Key)] == ["up"]


def test_escdelay_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCDELAY", "100")
    assert _escape_after_s(KeyParser()) == pytest.approx(0.1, abs=0.05)
