from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from fabmon.tui.line import Line, fit, right, wrap
from fabmon.tui.widgets.lines import strip_of

TEXT = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Mn", "Me", "Cf")), max_size=30)


@given(TEXT, st.integers(1, 20))
def test_fitted_text_takes_exactly_its_cells(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) == width
    assert cell_len(right(text, width)) == width


@given(TEXT, st.integers(2, 20))
def test_wrapped_text_is_never_too_wide_and_never_lost(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_what_is_cut_says_so() -> None:
    assert fit("gpu001", 4) == "gpu…"
    assert fit("gpu001", 0) == ""


def test_a_line_is_cut_or_padded_to_the_screen() -> None:
    line = Line((("abc", Style()), ("def", Style())))
    assert strip_of(line, 4, Style()).text == "abcd"
    assert strip_of(line, 8, Style()).text == "abcdef  "


@pytest.mark.parametrize("width", range(12, 60))
def test_a_line_never_breaks_between_a_number_and_its_unit(width: int) -> None:
    text = (
        "gpu006 r3 pauses its leaf 65 % of the time and receives 20.0 Gb/s for 1 min 59 s of 5 min"
    )
    lines = wrap(text, width)
    assert " ".join(lines) == text
    assert all(len(line) <= width for line in lines)
    assert not [line for line in lines if line.split()[0] in ("%", "Gb/s", "min", "s")]
