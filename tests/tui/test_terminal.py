"""What the terminal sends, byte by byte."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, Paste, Resize
from textual.message import Message

from fabmon.tui.typed_input import _MOST_TYPED, InputDecoder, KeyParser, typed_or_pasted
from tests import work


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


def _events(*reads: bytes) -> list[str]:
    """The keys, and pastes, of some reads, after which nothing comes."""
    decoder, parser = InputDecoder(), KeyParser()
    found: list[Message] = []
    for data in (*reads, b"", b"", b""):
        if not data:
            time.sleep(parser.wait_s or 0)
        found += typed_or_pasted([*parser.feed(decoder.feed(data)), *parser.tick()])
    return [each.key if isinstance(each, Key) else type(each).__name__ for each in found]


@pytest.mark.parametrize(
    ("reads", "keys"),
    [
        ((b"\x1b1",), ["alt+1"]),
        ((b"\x1b1j\x1b2",), ["alt+1", "j", "alt+2"]),
        ((b"\x1b?",), ["escape", "question_mark"]),
        ((b"\x1b\r",), ["escape", "enter"]),
        ((b"\x1b]abc",), ["escape", "right_square_bracket", "a", "b", "c"]),
        ((b"\x1b" + b"j" * 17,), ["alt+j", *"j" * 16]),
        ((b"\x1b[1;5", b"A"), ["ctrl+up"]),
    ],
    ids=str,
)
def test_escape_and_another_key_in_one_packet_are_both_known(
    reads: tuple[bytes, ...], keys: list[str]
) -> None:
    assert _events(*reads) == keys


@pytest.mark.parametrize("begin", [b"\x1b]52;c;", b"\x1b]10;", b"\x1bP1$r", b"\x1b_G"], ids=str)
@pytest.mark.parametrize("end", [b"\x07", b"\x1b\\"], ids=str)
def test_what_a_terminal_answers_presses_no_key(begin: bytes, end: bytes) -> None:
    text = b"rgb:ffff/ffff/" * 350
    assert _events(begin + text + end + b"q") == ["q"]
    assert _events(begin + text, text, end[:1], end[1:] + b"q") == ["q"]
    assert _events(begin + text) == []


def test_more_keys_than_anybody_types_at_once_are_pasted_text() -> None:
    assert _events(b"leaf1 up5 " * 500) == ["Paste"]
    assert _events(*[b"j" * 10] * 50) == ["j"] * 500, "a key that is held"
    assert _events(b"/leaf1\r") == ["slash", *"leaf1", "enter"]


@pytest.mark.parametrize("key", ["j", "\x1b", "\x1b[A", "\x1b[A\x1b[B", "\x1b[<35;1;1M"])
def test_of_a_key_that_is_held_few_repetitions_are_parsed(key: str) -> None:
    """Those of 20,000 took 0.4 s, in which no key was heard."""
    parser = KeyParser()
    with work.counted() as done:
        events = [*parser.feed(key * 4000 + "q"), *parser.tick()]
    assert done.lines < 60_000
    assert isinstance(events[-1], Key)
    assert events[-1].character == "q"


@pytest.mark.parametrize("cut", range(8))
def test_repetitions_in_pasted_text_are_kept(cut: int) -> None:
    """Where the mark of its beginning came in two reads, 64 of them were."""
    text, parser = f"\x1b[200~{'-' * 100}\x1b[201~", KeyParser()
    (paste,) = [*parser.feed(text[:cut]), *parser.feed(text[cut:])]
    assert isinstance(paste, Paste)
    assert paste.text == "-" * 100


def test_ctrl_c_is_no_part_of_pasted_text() -> None:
    assert _events(b"leaf1 up5 " * 100 + b"\x03") == ["Paste", "ctrl+c"]


def test_behind_thousands_of_clicks_a_key_is_heard_at_once() -> None:
    found = _events(b"\x1b[<0;9;9M\x1b[<0;9;9m" * 3000 + b"q")
    assert (len(found), found[-1]) == (_MOST_TYPED + 1, "q")


@pytest.mark.parametrize("cut", range(1, 18))
def test_a_paste_may_come_in_two_reads_wherever_it_is_cut(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\x1b[200~a\x1bq b\x1b[201~"
    clock = _Clock(monkeypatch)
    parser = KeyParser()
    found = list(parser.feed(text[:cut]))
    clock.now_s += 0.02
    found += [*parser.tick(), *parser.feed(text[cut:]), *parser.feed("\x1b1")]
    assert [_named(each) for each in found] == ["aq b", "alt+1"]


@pytest.mark.parametrize(
    ("begin", "end", "named"),
    [
        ("\x1b[200~a\x1b[20", "1~", ["a"]),
        ("\x1b[200~a\x1b", "[201~", ["a"]),
        ("\x1b[20", "0~a\x1b[201~", ["a"]),
        ("\x1b[<0;3", ";4M", ["MouseDown"]),
        ("\x1b[?2026;2", "$y", ["TerminalSupportsSynchronizedOutput"]),
    ],
    ids=str,
)
def test_the_rest_of_a_report_may_come_later_than_that_of_a_key(
    begin: str, end: str, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch)
    parser = KeyParser()
    found = list(parser.feed(begin))
    clock.now_s += 0.3
    found += [*parser.tick(), *parser.feed(end), *parser.feed("j")]
    assert [_named(each) for each in found] == [*named, "j"]


def test_a_report_that_never_ends_does_not_keep_the_keys_that_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock(monkeypatch)
    parser = KeyParser()
    assert not list(parser.feed("\x1b[<0;3"))
    clock.now_s += 1.0
    assert list(parser.tick())
    assert [_named(each) for each in parser.feed("j")] == ["j"]


@pytest.mark.parametrize("cut", ["", "\x1b", "\x1b[20"], ids=repr)
def test_a_paste_that_never_ends_does_not_keep_the_keys_that_follow(
    cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch)
    parser = KeyParser()
    assert not list(parser.feed("\x1b[200~gpu" + cut))
    clock.now_s += 6.0
    found = [*parser.tick(), *parser.feed("j\x03")]
    assert [_named(each) for each in found] == ["gpu", "j", "ctrl+c"]


class _Clock:
    """The clock of the parser, which stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        for module in ("fabmon.tui.typed_input", "textual._parser"):
            monkeypatch.setattr(f"{module}.get_time", lambda: self.now_s)


def _named(event: Message) -> str:
    """A key's name, or the text that was pasted, or what else it is."""
    if isinstance(event, Key):
        return event.key
    return event.text if isinstance(event, Paste) else type(event).__name__


def _read(data: str) -> list[Message]:
    """The events of one read."""
    parser = KeyParser()
    return list(typed_or_pasted([*parser.feed(data), *parser.tick()]))


def test_of_reports_of_the_focus_and_the_size_the_last_count() -> None:
    """Each of 20,000 was drawn, and no key was heard meanwhile."""
    events = _read("\x1b[I\x1b[O\x1b[<35;1;1M\x1b[48;40;120;800;1200t\x1b[?2048;1$y" * 300 + "q")
    assert len(events) < 64 + 8
    assert [type(each).__name__ for each in events[-5:-3]] == ["AppBlur", "MouseMove"]
    sizes = [each.size for each in events if isinstance(each, Resize)]
    assert sizes == [(120, 40)]
    assert isinstance(events[-1], Key)


def test_a_size_that_no_screen_has_is_no_size() -> None:
    assert not _read("\x1b[48;99999999;99999999;0;0t")


@pytest.mark.parametrize(
    "report",
    [
        *("\x1b[99999999999999999999u", "\x1b[1114112u", "\x1b[55296u", "\x1b[57344;;55296u"),
        "\x1b[48;40;120;0;0t\x1b[<35;5;5M",
        "\x1b[48;0;0;9;9t\x1b[<35;5;5M",
    ],
)
def test_a_report_of_a_number_that_is_none_ends_nothing(report: str) -> None:
    """`fabmon: unexpected error`, as of a text that a terminal without bracketed paste pasted."""
    events = _read(f"a{report}\x1b[Aq")
    keys = [each.key for each in events if isinstance(each, Key)]
    assert keys[0] == "a"
    assert keys[-2:] == ["up", "q"]
    "".join(keys).encode()


def test_ctrl_c_ends_a_paste_whose_end_is_lost() -> None:
    """Each press made the wait for the end longer, so that who pressed it again never left."""
    parser = KeyParser()
    assert not list(parser.feed("\x1b[200~begun"))
    paste, key = parser.feed("\x03")
    assert isinstance(paste, Paste)
    assert paste.text == "begun"
    assert isinstance(key, Key)
    assert key.key == "ctrl+c"
    parser = KeyParser()
    (whole,) = parser.feed("\x1b[200~a\x03b\x1b[201~")
    assert isinstance(whole, Paste)
    assert whole.text == "a\x03b"


def test_q_is_heard_after_a_report_or_a_paste_whose_end_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken for the end of the report, or for text that is pasted, for 0.5 and 5 s."""
    clock = _Clock(monkeypatch)
    for key, name in (("q", "q"), ("\x03", "ctrl+c")):
        parser = KeyParser()
        assert not list(parser.feed("\x1b[<0;3" + "1;" * 10))
        clock.now_s += 0.15
        assert [_named(each) for each in [*parser.tick(), *parser.feed(key)]] == [name]
        assert not list(parser.feed("\x1b[200~gpu"))
        clock.now_s += 0.15
        assert [_named(each) for each in [*parser.tick(), *parser.feed(key)]] == ["gpu", name]
        assert [_named(each) for each in parser.feed("j")] == ["j"]


def test_q_in_the_middle_of_a_paste_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    parser = KeyParser()
    assert not list(parser.feed("\x1b[200~se"))
    clock.now_s += 0.05
    assert not list(parser.feed("q"))
    clock.now_s += 1.0
    assert not list(parser.feed("u"))
    assert [_named(each) for each in parser.feed("ence q\x1b[201~")] == ["sequence q"]


def test_of_a_key_that_is_held_16_repetitions_of_a_read_count_and_more_of_a_character() -> None:
    """A character may be typed in an input, which takes those beyond 64 as text."""
    for sequence, name, count, rest in (
        ("j", "j", 64, ["j" * 1236]),
        ("\x1b[B", "down", 16, []),
        ("\x1b[27u", "escape", 16, []),
    ):
        keys = [_named(each) for each in _read("a" + sequence * 1300 + "q")]
        assert keys == ["a", *[name] * count, *rest, "q"]
