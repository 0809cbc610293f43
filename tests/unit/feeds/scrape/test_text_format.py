"""The decoder compared with prometheus_client's parser: both read the same."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from fabmon.feeds.scrape.text_format import BadPage, DecodedPage, PageDecoder

Sample = tuple[str, dict[str, str], float, float | None]


def read(page: DecodedPage) -> list[Sample]:
    values, stamps = page.read()
    at = [None] * len(values) if stamps is None else stamps.tolist()
    return [
        (series.name, series.labels, value, None if stamp is None or math.isnan(stamp) else stamp)
        for series, value, stamp in zip(page.layout.series(), values.tolist(), at, strict=True)
    ]


def attempt(decoder: PageDecoder, page: bytes) -> list[Sample] | BadPage:
    try:
        return read(decoder.decode(page))
    except BadPage as error:
        return error


def oracle(text: str) -> list[Sample]:
    """The result of the other parser, which appends _total to counters that lack it."""
    found: list[Sample] = []
    for family in parse_text(text):
        for sample in family.samples:
            stamp = None if sample.timestamp is None else float(sample.timestamp)
            found.append((sample.name, dict(sample.labels), float(sample.value), stamp))
    return found


def same(ours: Iterable[Sample], theirs: Iterable[Sample]) -> bool:
    """Whether samples are equal; NaN equals NaN here, and -0 is 0."""
    return _shown(ours) == _shown(theirs)


def _shown(samples: Iterable[Sample]) -> list[str]:
    return [repr((name, labels, value + 0.0, at)) for name, labels, value, at in samples]


names = st.sampled_from(["up", "node_up", "a:b", "_x", "A9_total", "le_bucket"])
label_names = st.sampled_from(["device", "port", "a", "b9", "_c", "le"])
label_values = st.text('ab0 "\\\n,={}#\té\u2028', max_size=8)
numbers = st.one_of(
    st.integers(0, 2**64 - 1).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(lambda number: f"{number:g}"),
    st.sampled_from(["NaN", "+Inf", "-Inf", "0", "1.5e+06", "9.223372036854776e+18"]),
)
stamps = st.one_of(st.just(""), st.integers(0, 2**42).map(lambda ms: f" {ms}"))


def labelled(pairs: dict[str, str], comma: bool) -> str:
    escaped = {
        key: value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        for key, value in pairs.items()
    }
    inside = ",".join(f'{key}="{value}"' for key, value in escaped.items())
    return f"{{{inside}{',' if comma and inside else ''}}}"


series = st.builds(
    lambda name, pairs, comma: name + (labelled(pairs, comma) if pairs else ""),
    names,
    st.dictionaries(label_names, label_values, max_size=4),
    st.booleans(),
)
help_texts = st.text('ab "\\\\{}#é', max_size=12)
comments = st.one_of(
    st.builds(lambda name, text: f"# HELP {name} {text}", names, help_texts),
    st.builds(
        lambda name, type_: f"# TYPE {name} {type_}", names, st.sampled_from(["gauge", "untyped"])
    ),
    st.sampled_from(["", "# a comment", "#"]),
)


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, str]:
    """Two pages with the same series and different numbers."""
    one: list[str] = []
    two: list[str] = []
    for kind in draw(st.lists(st.booleans(), max_size=12)):
        if kind:
            what = draw(series)
            for page in (one, two):
                page.append(f"{what} {draw(numbers)}{draw(stamps)}")
        else:
            comment = draw(comments)
            one.append(comment)
            two.append(comment)
    return ("".join(f"{line}\n" for line in one), "".join(f"{line}\n" for line in two))


@given(pages())
def test_both_parsers_agree_with_and_without_a_known_layout(texts: tuple[str, str]) -> None:
    first, second = texts
    decoder = PageDecoder()
    before = decoder.decode(first.encode())
    assert same(read(before), oracle(first))
    after = decoder.decode(second.encode())
    assert after.layout is before.layout
    assert same(read(after), oracle(second))


@given(pages(), st.integers(0, 400), st.binary(max_size=3), st.integers(0, 3))
def test_a_damaged_page_is_rejected_or_read_like_the_other_parser(
    texts: tuple[str, str], at: int, put: bytes, take: int
) -> None:
    good, other = (text.encode() for text in texts)
    at = min(at, len(other))
    damaged = other[:at] + put + other[at + take :]
    decoder = PageDecoder()
    decoder.decode(good)
    ours = attempt(decoder, damaged)
    if isinstance(ours, BadPage):
        assert str(ours).startswith(f"line {ours.line}: ")
        assert 1 <= ours.line <= damaged.count(b"\n") + 1
        return
    assert same(ours, oracle(damaged.decode(errors="replace")))
    # The result is the same with and without the known layout.
    assert same(ours, read(PageDecoder().decode(damaged)))


@given(pages(), st.integers(1, 400))
def test_a_truncated_page_is_rejected_or_ends_with_a_complete_line(
    texts: tuple[str, str], cut: int
) -> None:
    page = texts[0].encode()
    short = page[: max(0, len(page) - cut)]
    if short and not short.endswith(b"\n"):
        with pytest.raises(BadPage, match="breaks off"):
            PageDecoder().decode(short)
    else:
        assert same(read(PageDecoder().decode(short)), oracle(short.decode()))


@given(st.binary(max_size=200))
def test_an_invalid_line_is_rejected_with_its_number(garbage: bytes) -> None:
    found = attempt(PageDecoder(), garbage + b"\n")
    assert not isinstance(found, BadPage) or str(found).startswith("line ")


NODE = b"""# HELP node_up Whether it is.
# TYPE node_up gauge
node_up{device="eth0"} 1
node_up{device="eth1"} 0
"""


def test_a_series_more_or_in_another_order_makes_a_new_layout() -> None:
    decoder = PageDecoder()
    first = decoder.decode(NODE)
    turned = decoder.decode(b"\n".join([*NODE.splitlines()[:2], *NODE.splitlines()[:1:-1], b""]))
    assert turned.layout is not first.layout
    assert [series.labels["device"] for series in turned.layout.series()] == ["eth1", "eth0"]
    assert turned.values().tolist() == [0, 1]
    more = decoder.decode(NODE + b"node_up 7\n")
    assert more.values().tolist() == [1, 0, 7]


def test_only_wanted_values_are_parsed() -> None:
    page = PageDecoder().decode(NODE)
    assert page.values([1]).tolist() == [0]
    assert page.values([]).tolist() == []


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"node_up 1\nnode_up{ 1\n", "line 2: neither a comment nor a name"),
        (b'node_up{device="eth0} 1\n', "line 1: neither a comment nor a name"),
        (b'node_up{a="1",a="2"} 1\n', "line 1: a label occurs twice"),
        (b"# HELP a b\n\nnode_up one\n", "line 3: there is no number where the value belongs"),
        (b"node_up 1_000\n", "line 1: there is no number where the value belongs"),
        (b"node_up 1 2 3\n", "line 1: there is no number where the value belongs"),
        (b"node_up 1e\n", "line 1: the value or the timestamp is not a number"),
        (b"node_up\n", "line 1: neither a comment nor a name"),
        (b"# TYPE node_up\n", "line 1: an unknown TYPE"),
        (b"# TYPE node_up level\n", "line 1: an unknown TYPE"),
        (b"# HELP 9 nine\n", "line 1: a HELP, TYPE or UNIT without a metric's name"),
        (b'node_up{a="\xff"} 1\n', "line 1: a label's value is not UTF-8"),
        (b"<html>\n", "line 1: neither a comment nor a name"),
        (b"node_up 12", "line 1: the page breaks off in the middle of a line: 'node_up 12'"),
    ],
)
def test_an_error_names_its_line(page: bytes, message: str) -> None:
    with pytest.raises(BadPage, match=message.replace("(", r"\(")):
        PageDecoder().decode(page)


def test_a_value_that_becomes_invalid_is_rejected_with_its_line() -> None:
    decoder = PageDecoder()
    decoder.decode(NODE)
    with pytest.raises(BadPage, match="line 4: there is no number"):
        decoder.decode(NODE.replace(b"} 0", b"} no")).values()


OPENMETRICS = """# TYPE port info
# HELP port A port.
port_info{name="mlx5_0"} 1.0
# TYPE sent_bytes counter
# UNIT sent_bytes bytes
sent_bytes_total{port="mlx5_0"} 17.0 1700000000.25
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.5"} 3 # {trace="x y"} 0.3 1700000000.0
wait_seconds_bucket{le="+Inf"} 4
wait_seconds_count 4
wait_seconds_sum 1.5
# EOF
"""


def test_openmetrics_with_timestamps_and_exemplars() -> None:
    decoder = PageDecoder()
    page = decoder.decode(OPENMETRICS.encode(), openmetrics=True)
    theirs = [
        (sample.name, dict(sample.labels), float(sample.value))
        for family in parse_openmetrics(OPENMETRICS)  # type: ignore[no-untyped-call]
        for sample in family.samples
    ]
    assert [sample[:3] for sample in read(page)] == theirs
    assert read(page)[1][3] == 1_700_000_000.25
    again = decoder.decode(OPENMETRICS.replace("17.0", "18.0").encode(), openmetrics=True)
    assert again.layout is page.layout
    values, stamps = again.read([1])
    assert stamps is not None
    assert (values.tolist(), stamps.tolist()) == ([18.0], [1_700_000_000.25])


def test_openmetrics_must_end_with_eof() -> None:
    with pytest.raises(BadPage, match="breaks off: it does not end with # EOF"):
        PageDecoder().decode(OPENMETRICS[:-7].encode(), openmetrics=True)
    assert PageDecoder().decode(OPENMETRICS[:-1].encode(), openmetrics=True).layout


def test_timestamps_of_the_older_format_are_in_milliseconds() -> None:
    stamps = PageDecoder().decode(b"a 1 1700000000250\nb 2\n").read()[1]
    assert stamps is not None
    assert stamps[0] == 1_700_000_000.25
    assert np.isnan(stamps[1])
