"""Any counters are decoded to the values that were encoded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabmon.recording.format import columns
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.predictions import PredictionChoice
from fabmon.recording.format.sections import decompress, uncompressed_section


def choice(count: int) -> PredictionChoice:
    like = np.full(count, -1, np.intp)
    like[count // 2 :] = np.arange(count - count // 2)
    return PredictionChoice(np.arange(count) // 3, like)


def decoded(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A matrix after it was encoded and decoded, row by row."""
    sections = columns.encode_columns(values, choice(values.shape[1]))
    table = columns.decode_columns(sections, *values.shape)
    return np.stack([table.row(number) for number in range(len(values))])


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[np.uint64]:
    """Constant, related, wrapping and random columns side by side."""
    rows = draw(st.integers(1, 12))
    steps = st.one_of(
        st.just(0), st.integers(0, 3), st.integers(0, 1 << 36), st.integers(0, (1 << 64) - 1)
    )
    made: list[NDArray[np.uint64]] = []
    for follows in draw(st.lists(st.booleans(), max_size=9)):
        if made and follows:
            made.append(made[-1] // np.uint64(draw(st.integers(1, 5000))))
            continue
        first = draw(st.integers(0, (1 << 64) - 1))
        rest = draw(st.lists(steps, min_size=rows - 1, max_size=rows - 1))
        made.append(np.cumsum(np.array([first, *rest], np.uint64), dtype=np.uint64))
    return np.stack(made, axis=1) if made else np.empty((rows, 0), np.uint64)


@given(matrices())
def test_columns_are_decoded_as_they_were_encoded(values: NDArray[np.uint64]) -> None:
    np.testing.assert_array_equal(decoded(values), values)


def test_related_columns_take_little_room() -> None:
    rng = np.random.default_rng(1)
    sent = np.cumsum(rng.integers(40 << 30, 50 << 30, 200)).astype(np.uint64)
    packets = sent // np.uint64(4096)
    alone = columns.encode_columns(sent[:, None], choice(1))
    both = columns.encode_columns(np.stack([sent, packets], axis=1), choice(2))
    assert sum(map(len, both)) < 1.3 * sum(map(len, alone))


def test_uncompressed_sections_are_zstd_frames_of_any_length() -> None:
    for length in (0, 1, (1 << 17) - 1, 1 << 17, (1 << 17) + 1, 300_000):
        data = bytes(length)
        assert decompress(b"".join(uncompressed_section(data))) == data


@given(st.binary(max_size=200))
def test_random_sections_are_reported_as_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        columns.decode_columns([data, data, data], 3, 3)
