"""Texts for a terminal: lines are broken between words, never in one."""

from __future__ import annotations

import pytest

from fabmon.report.output import folded


def test_a_short_line_is_as_it_was() -> None:
    assert folded("a  b\n\nc\n", 80) == "a  b\n\nc\n"


def test_a_sentence_continues_indented() -> None:
    text = "gpu003 did not reach gpu001: transport retry exceeded."
    assert folded(text, 30) == "gpu003 did not reach gpu001:\n  transport retry exceeded."


def test_a_row_continues_below_its_last_cell() -> None:
    text = "  lldp      absent    cables known only from addresses"
    assert folded(text, 44) == (
        "  lldp      absent    cables known only from\n                      addresses"
    )


def test_a_row_of_cells_continues_between_them() -> None:
    text = "status 12 RETRY_EXC_ERR  1  2026-05-04 19:55:27  rank 2 gpu002 mlx5_0  leaf1 swp3"
    assert folded(text, 60) == (
        "status 12 RETRY_EXC_ERR  1  2026-05-04 19:55:27\n  rank 2 gpu002 mlx5_0  leaf1 swp3"
    )
    assert folded(text, 30) == (
        "status 12 RETRY_EXC_ERR  1\n  2026-05-04 19:55:27\n  rank 2 gpu002 mlx5_0\n  leaf1 swp3"
    )


@pytest.mark.parametrize("columns", [10, 24, 40, 80])
def test_no_word_is_lost_or_broken(columns: int) -> None:
    text = "- mtu                gpu001 r1: MTU 1500 is less than what\n    ip link set mtu 9000\n"
    assert folded(text, columns).split() == text.split()
    longest = max(len(word) for word in text.split())
    assert all(
        len(line) <= max(columns, longest + columns // 2)
        for line in folded(text, columns).split("\n")
    )
